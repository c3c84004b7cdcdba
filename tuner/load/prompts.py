"""Prompts: the built-in ones or a user's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

from tuner.errors import Mistake, SpecError
from tuner.load.prompt_files import PromptFile, read_prompt_file
from tuner.load.prompt_line import Line
from tuner.spec import Workload, digest

BUILTIN = "prompts.jsonl"


@dataclass(frozen=True)
class Prompt:
    """One prompt: chat messages, or plain text to go on with; the other one is None.

    ``output_tokens`` is the most of its answer where it has a number of its own, ``at_s`` when it
    was sent in the traffic it was recorded from, in seconds from any one moment.
    """

    id: str
    kind: str
    messages: tuple[Mapping[str, str], ...] | None
    prompt: str | None
    output_tokens: int | None = None
    at_s: float | None = None


def load_prompts(workload: Workload) -> list[Prompt]:
    """The prompts of ``workload.path`` in the file's order, or the built-in ones.

    The file's format is told from what it holds: see :mod:`tuner.load.prompt_files`. Raises
    SpecError with every bad line.
    """
    source = BUILTIN if workload.path is None else str(workload.path)
    file = _file(workload)
    mistakes = list(file.mistakes)
    if not file.lines and not mistakes:
        mistakes.append(Mistake("", _nothing(file)))
    if mistakes:
        raise SpecError(source, mistakes)
    return [_prompt(line) for line in file.lines]


def skipped_conversations(workload: Workload) -> int:
    """How many ShareGPT conversations of the file begin with no person's words and are left out.

    Raises SpecError where the file can't be read.
    """
    return _file(workload).skipped


def require_timestamps(prompts: Sequence[Prompt]) -> Mistake | None:
    """What keeps these prompts from being sent as they were recorded."""
    times = {prompt.at_s for prompt in prompts}
    if None in times:
        lacking = [prompt.id for prompt in prompts if prompt.at_s is None]
        message = (
            f"request_rate: recorded needs a timestamp at every prompt; {len(lacking)} of"
            f" {len(prompts)} have none, {lacking[0]} first"
        )
        return Mistake("workload.path", message)
    if len(times) < 2:  # noqa: PLR2004
        message = "request_rate: recorded needs at least two different timestamps"
        return Mistake("workload.path", message)
    return None


def workload_sha256(workload: Workload) -> str:
    """SHA-256 over what the traffic is: prompts with their lengths and times, and how it is sent.

    Not over the workload's name, nor over where its file lies. Raises SpecError as load_prompts.
    """
    return digest(
        {
            "prompts": [
                [p.kind, p.messages, p.prompt, p.output_tokens, p.at_s]
                for p in load_prompts(workload)
            ],
            "output_tokens": workload.output_tokens,
            "requests": workload.requests,
            "sampling": workload.sampling.model_dump(exclude_none=True),
            "ignore_eos": workload.ignore_eos,
            "shared_prefixes": workload.shared_prefixes,
        }
    )


def _file(workload: Workload) -> PromptFile:
    if workload.path is None:
        text = (files("tuner.load") / BUILTIN).read_text(encoding="utf-8")
        return read_prompt_file(text)
    try:
        return read_prompt_file(workload.path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        message = f"can't read it: {error.strerror or error}"
        raise SpecError(str(workload.path), [Mistake("workload.path", message)]) from error
    except UnicodeDecodeError as error:
        message = f"not UTF-8 text: {error}"
        raise SpecError(str(workload.path), [Mistake("workload.path", message)]) from error


def _nothing(file: PromptFile) -> str:
    if file.skipped:
        return (
            f"none of the {file.skipped} conversations begins with a person's words;"
            " the first turn, a system's aside, must be from human"
        )
    return "no prompts; write one JSON object a line"


def _prompt(line: Line) -> Prompt:
    messages = None
    if line.messages:
        messages = tuple({"role": m.role, "content": m.content} for m in line.messages)
    return Prompt(
        id=line.id,
        kind=line.kind,
        messages=messages,
        prompt=line.prompt or None,
        output_tokens=line.output_tokens,
        at_s=line.timestamp,
    )
