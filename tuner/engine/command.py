"""The command that starts an engine, as it is run and as it is exported."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.records import EngineFacts, Setting
from tuner.spec import EngineSpec, Target


@dataclass(frozen=True)
class EngineCommand:
    """An argv without host, port and logging, and what is added to the environment."""

    argv: tuple[str, ...]
    env: Mapping[str, str]


def engine_command(
    engine: EngineSpec, target: Target, setting: Setting, facts: EngineFacts, python: Path
) -> EngineCommand:
    """The command for one setting; for off it has no ``--speculative-config`` at all."""
    argv = [*_program(engine, target.model, facts, python)]
    if target.revision is not None:
        argv += ["--revision", target.revision]
    for name, value in engine.args.items():
        argv += _flag(name, value)
    if not setting.is_off:
        argv += ["--speculative-config", setting.config]
    return EngineCommand(tuple(argv), dict(engine.env))


def _program(engine: EngineSpec, model: str, facts: EngineFacts, python: Path) -> tuple[str, ...]:
    if engine.command:
        return (*engine.command, model)
    if facts.has_serve_script:
        return (str(python.parent / "vllm"), "serve", model)
    return (str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", model)


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
