"""A recommendation as a POSIX shell script."""

from __future__ import annotations

import shlex

from tuner.answers import Recommendation, Speedup
from tuner.records import Setting


def shell_script(answer: Recommendation) -> str:
    """A script that becomes the recommended server. HOST and PORT may be set from outside
    (127.0.0.1 and 8000 otherwise); arguments of the script are handed on to vLLM.
    """
    exports = [f"export {name}={shlex.quote(v)}" for name, v in sorted(answer.environment.items())]
    lines = [
        "#!/bin/sh",
        *(f"# {' '.join(line.split())}".rstrip() for line in _header(answer)),
        "set -eu",
        'set -- --host "${HOST:-127.0.0.1}" --port "${PORT:-8000}" "$@"',
        *exports,
        f'exec {shlex.join(answer.launch_command)} "$@"',
    ]
    return "\n".join(lines) + "\n"


def _header(answer: Recommendation) -> list[str]:
    """What was measured, where, and how sure it is."""
    engine = answer.engine
    lines = [
        f"vLLM with {_named(answer)}, as recommended for {answer.load}.",
        "",
        f"Study: {answer.study}, objective {answer.objective}, workload {answer.workload.name}",
        f"Target: {answer.target}",
        _claim(answer),
        *(
            f"Considered: {Setting.of(other.speculative_config).label}, {_interval(other.speedup)}"
            for other in answer.considered
        ),
        f"Hardware: {answer.hardware}",
        f"Engine: {engine.name} {engine.version or 'of unknown version'}",
        f"Runner: {engine.runner or 'unknown'}",
        f"Measured: {answer.measured_at:%Y-%m-%d}",
    ]
    if answer.hardware.startswith("CPU"):
        lines.append("Measured on a CPU: this says nothing about a GPU.")
    return [*lines, *(f"Warning: {warning}" for warning in answer.warnings)]


def _named(answer: Recommendation) -> str:
    if answer.speculative_config is None:
        return "speculative decoding off"
    return f"speculative decoding by {Setting.of(answer.speculative_config).label}"


def _claim(answer: Recommendation) -> str:
    if answer.speculative_config is None:
        return "Speed-up: none; nothing measured was better than the baseline by more than noise"
    if not answer.confirmed:
        return f"Speed-up, predicted, not confirmed: {_interval(answer.speedup)}"
    return f"Speed-up, measured against the baseline: {_interval(answer.speedup)}"


def _interval(speedup: Speedup) -> str:
    return (
        f"{speedup.value:.2f} times "
        f"({speedup.confidence:.0%} interval {speedup.low:.2f} to {speedup.high:.2f})"
    )
