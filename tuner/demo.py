"""Sets up the SmolLM2 family, the models of the presets: ``python -m tuner.demo`` builds them all.

What the members are, and why their answer is known beforehand: ``tuner/engine/inside/family.py``,
which does the work with an interpreter that has vLLM.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from importlib.resources import as_file, files
from pathlib import Path

from tuner.errors import EngineStartError, Failure, FailureKind, PreflightError, TunerError
from tuner.settings import Settings
from tuner.spec import StudySpec

FAMILY = "smollm2-family"
NAMES = tuple(
    f"{FAMILY}/{member}"
    for member in ("smollm2", "target", "draft-noise-0.1", "draft-noise-0.2", "draft-10-layers")
)
"""The models by the names that studies use."""


def locate(model: str, models_dir: Path) -> str:
    """Where a model of the family lies, built or not; any other model's name as it is."""
    return str(models_dir.absolute() / model) if model in NAMES else model


def located(spec: StudySpec, models_dir: Path) -> StudySpec:
    """The study with the family's names replaced by paths that vLLM can open."""
    target = spec.target.model_copy(update={"model": locate(spec.target.model, models_dir)})
    candidates = tuple(
        c.model_copy(update={"model": locate(c.model, models_dir)}) if c.model else c
        for c in spec.candidates
    )
    return spec.model_copy(update={"target": target, "candidates": candidates})


def missing(spec: StudySpec, models_dir: Path) -> list[str]:
    """The names of the family's models that the study uses and nobody has built yet."""
    used = {spec.target.model, *(candidate.model for candidate in spec.candidates)}
    return [name for name in NAMES if name in used and not (models_dir / name).is_dir()]


def build(python: Path, models_dir: Path, members: Iterable[str]) -> None:
    """Build models of the family (by their names in NAMES) that are not there yet, 40 s for all.

    Says on stderr what it builds. Can be interrupted and called again, and from two processes at
    once. Raises ``PreflightError`` where ``python`` cannot be run, ``EngineStartError`` where it
    lacks a package or fails.
    """
    wanted = [
        name.removeprefix(f"{FAMILY}/") for name in members if not (models_dir / name).is_dir()
    ]
    if not wanted:
        return
    with as_file(files("tuner.engine.inside") / "family.py") as script:
        argv = [str(python), str(script), str(models_dir / FAMILY), *wanted]
        try:
            process = subprocess.Popen(
                argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
            )
        except OSError as error:
            reason = f"{python} cannot be run ({error.strerror}): name an interpreter with vLLM"
            raise PreflightError([f"{reason}, in engine.python or TUNER_ENGINE_PYTHON"]) from error
        with process:
            output = _follow(process)
    if process.returncode:
        raise EngineStartError(_failure(python, output, process.returncode))


def _follow(process: subprocess.Popen[str]) -> list[str]:
    """All lines of the process's output; its progress is shown as it comes."""
    lines = []
    for line in process.stdout or ():
        lines.append(line.rstrip())
        if line.startswith("["):
            sys.stderr.write(line)
            sys.stderr.flush()
    return lines


def _failure(python: Path, output: list[str], exit_code: int) -> Failure:
    said = next((line for line in reversed(output) if line), "it said nothing")
    lacking = "ModuleNotFoundError" in said or "is missing" in said
    kind = FailureKind.MISSING_PACKAGE if lacking else FailureKind.UNKNOWN
    return Failure(kind, f"building the models with {python} failed: {said}", exit_code)


def main() -> None:
    settings = Settings()
    try:
        build(settings.default_engine_python, settings.models_dir, NAMES)
    except TunerError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
