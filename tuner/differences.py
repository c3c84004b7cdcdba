"""What is no longer as it was between two contexts, in words."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from tuner.answers import EngineName
from tuner.records import Context


def differences(
    then: Context, now: Context, engine_then: EngineName, engine_now: EngineName
) -> list[str]:
    """One phrase for each; empty where nothing that is known of both differs.

    The engines are named as their own logs did, which know a runner, and the version of an engine
    that the tuner cannot ask beforehand.
    """
    found = []
    if then.target_digest != now.target_digest:
        found.append("target: its files or its revision are others")
    if then.workload_sha256 != now.workload_sha256:
        found.append("workload: its prompts are others")
    facts = {
        "engine": (_engine(engine_then), _engine(engine_now)),
        "runner": (engine_then.runner, engine_now.runner),
        "device": (then.host.device, now.host.device),
        "CPU": (then.host.cpu_model, now.host.cpu_model),
        "CPU cores": (str(then.host.cpus), str(now.host.cpus)),
        "GPUs": (", ".join(then.host.gpus), ", ".join(now.host.gpus)),
        "driver": (then.host.driver, now.host.driver),
        "arguments": (shlex.join(then.baseline_argv), shlex.join(now.baseline_argv)),
    }
    found += [
        f"{name}: {before} → {after}"
        for name, (before, after) in facts.items()
        if before != after and before and after
    ]
    if then.engine.packages and now.engine.packages:
        found += _entries("package", then.engine.packages, now.engine.packages)
    found += _entries("environment", then.env, now.env)
    return found


def _engine(engine: EngineName) -> str:
    return f"{engine.name} {engine.version or 'of unknown version'}"


def _entries(what: str, then: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(then.keys() | now.keys()):
        before, after = then.get(name, "none"), now.get(name, "none")
        if before != after:
            yield f"{what} {name}: {before} → {after}"
