"""What drafts make of recorded answers, asked of vLLM's environment; no engine is started."""

from __future__ import annotations

import json
import os
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from tuner.errors import ScoringError

Text = tuple[Sequence[int], Sequence[int]]
"""The token ids of a prompt and of its answer."""

LAST_LINES = 20


@dataclass(frozen=True)
class Interpreter:
    """vLLM's own, with what is added to its environment."""

    python: Path
    env: Mapping[str, str]


@dataclass(frozen=True)
class Model:
    """A path, or a name that the Hub resolves; quantised while it is loaded, as vLLM can."""

    name: str
    revision: str | None = None
    quantization: str | None = None


@dataclass(frozen=True)
class ScoredDraft:
    """``agreements`` say of each token of each answer whether the draft would have drafted it.

    ``parameters`` is None where they could not be counted.
    """

    agreements: Sequence[Sequence[bool]]
    parameters: int | None
    seconds: float


@dataclass(frozen=True)
class Scored:
    """By draft: its score, or why it has none. ``target_parameters`` is None where unknown."""

    drafts: Mapping[Model, ScoredDraft | str]
    target_parameters: int | None


def score_drafts(
    interpreter: Interpreter,
    target: Model,
    drafts: Sequence[Model],
    answers: Sequence[Text],
    progress: Callable[[str], None],
    *,
    dtype: str = "auto",
    device: str = "auto",
    trust_remote_code: bool = False,
) -> Scored:
    """One teacher-forced pass of each draft over the answers.

    ``device`` is ``cpu``, ``cuda``, or ``auto``: the GPU where it has room. ``progress`` is given a
    line for each draft. Raises ScoringError where the interpreter fails as a whole.
    """
    found = _ask(
        interpreter,
        "score_drafts.py",
        {
            "target": target.name,
            "revision": target.revision,
            "dtype": dtype,
            "device": device,
            "trust_remote_code": trust_remote_code,
            "drafts": [{"model": draft.name, "revision": draft.revision} for draft in drafts],
            "answers": _answers(answers),
        },
        progress,
    )
    scores = map(_scored, found["drafts"])
    return Scored(dict(zip(drafts, scores, strict=True)), found["target_parameters"])


def replay_suffix(
    interpreter: Interpreter,
    configs: Sequence[Mapping[str, Any]],
    answers: Sequence[Text],
    *,
    in_flight: int = 1,
    context_tokens: int | None = None,
) -> list[list[list[tuple[int, int]]]]:
    """For each speculative config and each answer, (drafted, accepted) of each decode step.

    The answers are taken in their order, ``in_flight`` of them at once; each config begins without
    any history. Raises ScoringError where the interpreter fails or has no arctic-inference.
    """
    found = _ask(
        interpreter,
        "replay_suffix.py",
        {
            "answers": _answers(answers),
            "in_flight": in_flight,
            "context_tokens": context_tokens,
            "settings": [dict(config) for config in configs],
        },
    )
    return [
        [[(drafted, accepted) for drafted, accepted in steps] for steps in of_config]
        for of_config in found["steps"]
    ]


def _answers(answers: Sequence[Text]) -> list[dict[str, list[int]]]:
    return [{"prompt": list(prompt), "output": list(output)} for prompt, output in answers]


def _scored(found: Mapping[str, Any]) -> ScoredDraft | str:
    if error := found.get("error"):
        return str(error)
    agreements = [[mark == "1" for mark in answer] for answer in found["agreements"]]
    return ScoredDraft(agreements, found["parameters"], found["seconds"])


def _ask(
    interpreter: Interpreter,
    script: str,
    request: Mapping[str, Any],
    progress: Callable[[str], None] | None = None,
) -> Any:
    """Request and answer go through files: either may be larger than a pipe holds."""
    with (
        as_file(files("tuner.engine.inside") / script) as path,
        TemporaryFile("w+") as asked,
        TemporaryFile("w+") as answered,
    ):
        json.dump(request, asked)
        asked.seek(0)
        try:
            process = subprocess.Popen(
                [interpreter.python, path],
                env={**os.environ, **interpreter.env},
                stdin=asked,
                stdout=answered,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
            )
        except OSError as error:
            raise ScoringError(f"cannot run {interpreter.python}: {error.strerror}") from error
        with process:
            last = _follow(process, progress)
        if process.returncode:
            said = next((line for line in reversed(last) if line.strip()), "it said nothing")
            raise ScoringError(f"{interpreter.python} failed: {said}")
        answered.seek(0)
        return json.load(answered)


def _follow(
    process: subprocess.Popen[str], progress: Callable[[str], None] | None
) -> Sequence[str]:
    """Its last lines; progress is passed on as it comes. An interrupt ends the process too."""
    last: deque[str] = deque(maxlen=LAST_LINES)
    try:
        for line in process.stderr or ():
            last.append(line.rstrip())
            if progress and line.startswith("["):
                progress(line.rstrip())
    except BaseException:
        process.kill()
        raise
    return last
