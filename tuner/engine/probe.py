"""What is installed where the engine will run, asked without starting it."""

from __future__ import annotations

import json
import os
import subprocess
from importlib.resources import as_file, files
from pathlib import Path

from tuner.errors import PreflightError
from tuner.records import EngineFacts
from tuner.spec import EngineSpec

TIMEOUT_S = 60


def probe(engine: EngineSpec, python: Path) -> EngineFacts:
    """Names and versions from the engine's interpreter; of a command of the user's only its name.

    Raises :class:`PreflightError` where the interpreter does not run or has no vLLM.
    """
    if engine.command:
        return EngineFacts(name=Path(engine.command[0]).name)
    with as_file(files("tuner.engine.inside") / "probe.py") as script:
        answer = json.loads(_run(python, script, engine.env))
    if answer["name"] is None:
        raise PreflightError(
            [f"{python} has no vLLM; name an interpreter that has it: engine.python in the study"]
        )
    return EngineFacts(**answer)


def _run(python: Path, script: Path, env: dict[str, str]) -> str:
    try:
        done = subprocess.run(
            [python, script],
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=True,
        )
    except OSError as error:
        raise PreflightError([f"engine.python: cannot run {python}: {error.strerror}"]) from error
    except subprocess.TimeoutExpired as error:
        raise PreflightError(
            [f"engine.python: {python} did not answer within {TIMEOUT_S} s"]
        ) from error
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no output"])[-1]
        raise PreflightError([f"engine.python: {python} failed: {last}"]) from error
    return done.stdout
