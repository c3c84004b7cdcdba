"""Prompt files: what each line says, whichever of the known formats it is written in.

A file holds JSON objects, one a line or all in one list, and each shows by its keys what it is:

- ours: ``prompt`` or ``messages``; with ``id``, ``kind``, ``output_tokens`` and ``timestamp`` where
  known. What vLLM's benchmark reads as a custom data set is a case of it.
- a ShareGPT conversation: ``conversations``; all that stands before the first answer is the prompt.
- a line of a request log: the request lies in ``body`` (as in OpenAI's batch files) or ``request``,
  or is the line itself, which its ``model`` or ``max_tokens`` shows. Its sampling is not used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from tuner.errors import Mistake
from tuner.load.prompt_line import Line
from tuner.spec_mistakes import plain

REQUESTS = ("body", "request")
LIMITS = ("max_completion_tokens", "max_tokens")
TIMES = ("timestamp", "created", "created_at", "time")
LOG_IDS = ("custom_id", "id", "request_id")

ROLES = {"human": "user", "user": "user", "system": "system"}
ANSWERING = frozenset({"gpt", "assistant"})

_SPACE = re.compile(r"[ \t\r\n]*")


@dataclass(frozen=True)
class PromptFile:
    """What a file holds: lines with ids of their own, and every mistake in the file's order.

    ``skipped`` conversations did not begin with a person's words.
    """

    lines: tuple[Line, ...]
    skipped: int
    mistakes: tuple[Mistake, ...]


@dataclass(frozen=True)
class _Said:
    """The fields of a :class:`Line` as an entry gives them, and its own names for them.

    ``own`` are lines in our format: there an id that is taken is a mistake. A log's or a
    conversation's gets its line number added.
    """

    fields: Mapping[str, Any]
    names: Mapping[str, str]
    own: bool = False


def read_prompt_file(text: str) -> PromptFile:
    """Reads every line. Nothing is raised: what is wrong is in ``mistakes``."""
    lines: dict[str, Line] = {}
    mistakes: list[Mistake] = []
    skipped = 0
    for number, entry in _entries(text):
        said = entry if isinstance(entry, Mistake) else _said(entry, number)
        if said is None:
            skipped += 1
            continue
        line = [said] if isinstance(said, Mistake) else _line(said, number, lines)
        if isinstance(line, Line):
            lines[line.id] = line
        else:
            mistakes += line
    return PromptFile(tuple(lines.values()), skipped, tuple(mistakes))


def _line(said: _Said, number: int, earlier: Mapping[str, Line]) -> Line | list[Mistake]:
    fields = {name: value for name, value in said.fields.items() if value not in (None, "")}
    try:
        line = Line.model_validate({"id": f"line-{number}"} | fields)
    except ValidationError as error:
        return [
            Mistake(".".join(said.names.get(str(p), str(p)) for p in e["loc"]), plain(e), number)
            for e in error.errors()
        ]
    if line.id in earlier and not said.own:
        line = line.model_copy(update={"id": f"{line.id}-line-{number}"})
    if line.id in earlier:
        return [Mistake("id", f"'{line.id}' is taken by an earlier line", number)]
    return line


def _said(entry: Mapping[str, Any], number: int) -> _Said | Mistake | None:
    """What an entry says; None for a conversation to skip."""
    if "conversations" in entry:
        return _conversation(entry, number)
    if not entry.keys() & {"prompt", "messages"}:
        for name in REQUESTS:
            if name in entry:
                return _logged(entry, entry[name], name, number)
    if entry.keys() & {"model", *LIMITS}:
        return _logged(entry, entry, "", number)
    return _Said(entry, {}, own=True)


def _logged(entry: Mapping[str, Any], request: object, name: str, number: int) -> _Said | Mistake:
    if not isinstance(request, dict):
        return Mistake(name, "must be the request, an object with messages or a prompt", number)
    inside = f"{name}." if name else ""
    limit = _first(request, LIMITS)
    time = _first(entry, TIMES)
    identity = _first(entry, LOG_IDS)
    fields = {
        "id": entry.get(identity),
        "kind": entry.get("kind"),
        "messages": request.get("messages"),
        "prompt": request.get("prompt"),
        "output_tokens": request.get(limit),
        "timestamp": entry.get(time),
    }
    names = {
        "id": identity,
        "messages": f"{inside}messages",
        "prompt": f"{inside}prompt",
        "output_tokens": f"{inside}{limit}",
        "timestamp": time,
    }
    return _Said(fields, names)


def _first(entry: Mapping[str, Any], names: tuple[str, ...]) -> str:
    """The first of the names that the entry gives a value to; else the first of them."""
    return next((name for name in names if entry.get(name) is not None), names[0])


def _conversation(entry: Mapping[str, Any], number: int) -> _Said | Mistake | None:
    turns = entry["conversations"]
    if not isinstance(turns, list):
        return Mistake("conversations", "must be a list of turns, {from: ..., value: ...}", number)
    messages = []
    for place, turn in enumerate(turns):
        speaker = turn.get("from") if isinstance(turn, dict) else None
        if not isinstance(speaker, str) or speaker not in {*ROLES, *ANSWERING}:
            known = ", ".join(sorted({*ROLES, *ANSWERING}))
            return Mistake(f"conversations.{place}.from", f"must be one of {known}", number)
        if speaker in ANSWERING:
            break
        messages.append({"role": ROLES[speaker], "content": turn.get("value")})
    if not any(message["role"] == "user" and message["content"] for message in messages):
        return None
    fields = {"id": entry.get("id"), "kind": entry.get("kind"), "messages": messages}
    return _Said(fields, {"messages": "conversations", "content": "value"})


def _entries(text: str) -> Iterator[tuple[int, Mapping[str, Any] | Mistake]]:
    """Every JSON object of a file with the number of its line, or what is wrong with it."""
    start = _after_space(text, 0)
    values = _listed(text, start + 1) if text[start : start + 1] == "[" else _lines(text)
    for number, value in values:
        if isinstance(value, dict | Mistake):
            yield number, value
        else:
            yield number, Mistake("", 'must be an object, such as {"prompt": "..."}', number)


def _lines(text: str) -> Iterator[tuple[int, Any]]:
    # Not splitlines(): U+2028 and the like may stand inside a JSON text.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            yield number, json.loads(line)
        except (ValueError, RecursionError) as error:
            yield number, _no_json(error, number, "write one JSON object a line")


def _listed(text: str, position: int) -> Iterator[tuple[int, Any]]:
    """The values of the JSON list that begins before ``position``, one after another."""
    decoder = json.JSONDecoder()
    number, counted = 1, 0
    position = _after_space(text, position)
    ended = text[position : position + 1] == "]"
    while not ended:
        number, counted = number + text.count("\n", counted, position), position
        try:
            value, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            yield number, _no_json(error, number, "a list holds objects, with commas between")
            return
        yield number, value
        position = _after_space(text, position)
        ended = text[position : position + 1] == "]"
        if not ended and text[position : position + 1] != ",":
            yield number, Mistake("", "must be followed by a comma or the list's end", number)
            return
        if not ended:
            position = _after_space(text, position + 1)
    if _after_space(text, position + 1) < len(text):
        yield number, Mistake("", "must be the end: nothing may follow the list", number)


def _after_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


def _no_json(error: ValueError | RecursionError, number: int, right: str) -> Mistake:
    what = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
    return Mistake("", f"is no JSON ({what}); {right}", number)
