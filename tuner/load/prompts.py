"""Prompts: the built-in ones or a user's own, and the draw of a round."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from itertools import cycle, islice
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tuner.errors import Mistake, SpecError
from tuner.spec import Workload, digest

BUILTIN = "prompts.jsonl"


@dataclass(frozen=True)
class Prompt:
    """One prompt: chat messages, or plain text to go on with; the other one is None."""

    id: str
    kind: str
    messages: tuple[Mapping[str, str], ...] | None
    prompt: str | None


class _Message(BaseModel):
    model_config = ConfigDict(extra="ignore")

    role: str = Field(min_length=1)
    content: str


class _Line(BaseModel):
    """A line of a prompts file; columns that a data set has beside these are left alone."""

    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True)

    id: str | None = None
    kind: str = "unlabelled"
    messages: tuple[_Message, ...] | None = None
    prompt: str | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if bool(self.messages) == bool(self.prompt):
            raise ValueError("give 'messages' or 'prompt', one of the two, and not empty")
        return self


def load_prompts(workload: Workload) -> list[Prompt]:
    """The prompts of ``workload.path``, or the built-in ones.

    The file is JSONL, a line being ``{"messages": [{"role": ..., "content": ...}, ...]}`` or
    ``{"prompt": ...}``, with an optional ``id`` and ``kind``. Raises SpecError with every bad line.
    """
    if workload.path is None:
        return _parse((files("tuner.load") / BUILTIN).read_text(encoding="utf-8"), BUILTIN)
    source = str(workload.path)
    try:
        text = workload.path.read_text(encoding="utf-8-sig")
    except OSError as error:
        mistake = Mistake("workload.path", f"can't read it: {error.strerror or error}")
        raise SpecError(source, [mistake]) from error
    except UnicodeDecodeError as error:
        mistake = Mistake("workload.path", f"not UTF-8 text: {error}")
        raise SpecError(source, [mistake]) from error
    return _parse(text, source)


def _parse(text: str, source: str) -> list[Prompt]:
    prompts: dict[str, Prompt] = {}
    mistakes: list[Mistake] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            prompt = _prompt(line, number)
        except ValidationError as error:
            mistakes += [
                Mistake(
                    ".".join(map(str, e["loc"])), e["msg"].removeprefix("Value error, "), number
                )
                for e in error.errors()
            ]
            continue
        if prompt.id in prompts:
            mistakes.append(Mistake("id", f"'{prompt.id}' is taken by an earlier line", number))
        prompts[prompt.id] = prompt
    if not prompts and not mistakes:
        mistakes.append(Mistake("", "no prompts; write one JSON object a line"))
    if mistakes:
        raise SpecError(source, mistakes)
    return list(prompts.values())


def _prompt(line: str, number: int) -> Prompt:
    read = _Line.model_validate_json(line)
    messages = None
    if read.messages:
        messages = tuple({"role": m.role, "content": m.content} for m in read.messages)
    return Prompt(read.id or f"line-{number}", read.kind, messages, read.prompt or None)


def workload_sha256(workload: Workload) -> str:
    """SHA-256 over what the traffic is: prompts, output tokens, requests and sampling.

    Not over the workload's name, nor over where its file lies. Raises SpecError as load_prompts.
    """
    return digest(
        {
            "prompts": [[p.kind, p.messages, p.prompt] for p in load_prompts(workload)],
            "output_tokens": workload.output_tokens,
            "requests": workload.requests,
            "sampling": workload.sampling.model_dump(exclude_none=True),
        }
    )


def round_prompts(prompts: Sequence[Prompt], *, count: int, seed: str) -> list[Prompt]:
    """Draws ``count`` prompts for a round: the same ones for the same seed, kinds taking turns.

    Each begins with a line of its own, so that no round finds another's prompts in the server's
    prefix cache (which made a second run 2.3 times faster in vllm#54227). A draw of more than there
    are goes through all of them again.
    """
    rng = random.Random(seed)  # noqa: S311
    drawn = islice(cycle(_taking_turns(prompts, rng)), count)
    return [_with_own_start(prompt, f"Request {rng.getrandbits(32):08x}\n\n") for prompt in drawn]


def _taking_turns(prompts: Sequence[Prompt], rng: random.Random) -> list[Prompt]:
    """All prompts in random order, each kind spread evenly over it."""
    by_kind: dict[str, list[Prompt]] = {}
    for prompt in rng.sample(prompts, len(prompts)):
        by_kind.setdefault(prompt.kind, []).append(prompt)
    places = [
        ((turn + rng.random()) / len(of_kind), prompt)
        for of_kind in by_kind.values()
        for turn, prompt in enumerate(of_kind)
    ]
    return [prompt for _, prompt in sorted(places, key=lambda place: place[0])]


def _with_own_start(prompt: Prompt, start: str) -> Prompt:
    if prompt.messages is None:
        return replace(prompt, prompt=f"{start}{prompt.prompt}")
    first, *others = prompt.messages
    return replace(prompt, messages=({**first, "content": f"{start}{first['content']}"}, *others))
