"""A streamed answer as a timeline: what arrived when, and what that comes to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

DONE = "[DONE]"
"""The payload that ends an OpenAI-style stream."""

NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True)
class StreamedAnswer:
    """What a stream came to; times count from when the request was sent.

    As in vLLM's benchmark, TTFT is when the first chunk with a token arrived, E2E when the last one
    did: the trailing usage chunk carries no token and does not count. ``chunk_ms`` are the arrivals
    of all that do. ``chunk_tokens`` and ``token_ids`` are empty unless the ids of all tokens came.
    """

    ttft_ms: float | None = None
    e2e_ms: float | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    finish_reason: str | None = None
    text: str = ""
    error: str | None = None
    chunk_ms: tuple[float, ...] = ()
    chunk_tokens: tuple[int, ...] = ()
    prompt_token_ids: tuple[int, ...] = ()
    token_ids: tuple[int, ...] = ()
    accepted_per_step: tuple[int, ...] | None = None
    drafted_per_step: tuple[int, ...] | None = None


def read_stream(arrivals: Iterable[tuple[float, str]], *, cut_off: bool = False) -> StreamedAnswer:
    """Reads ``(arrival in ms, payload)`` of a completions or chat stream, in order of arrival.

    What is wrong with the stream (an error object, no answer, an answer that ends too early, no
    JSON) is returned as ``error``, never raised. Where we ``cut_off`` the answer, ending early is
    no error, and E2E is unknown.
    """
    chunks = _Chunks()
    for at_ms, payload in arrivals:
        if payload == DONE:
            break
        chunk = _json_object(payload)
        if chunk is None:
            return StreamedAnswer(error=f"the stream carried no JSON object: {payload[:200]!r}")
        if error := chunk.get("error"):
            return StreamedAnswer(error=error_text(error))
        chunks.add(at_ms, chunk)
    if not cut_off and not chunks.times_ms:
        return StreamedAnswer(error="the stream ended without an answer")
    if not cut_off and chunks.finish_reason is None:
        return StreamedAnswer(error="the stream ended before the answer did")
    return chunks.answer(cut_off=cut_off)


def error_text(error: object) -> str:
    """An OpenAI-style error object as text, with its status code in front where it has one."""
    if not isinstance(error, Mapping):
        return str(error)
    code, message = error.get("code"), error.get("message") or json.dumps(dict(error))
    return f"{code}: {message}" if isinstance(code, int) else str(message)


class _Chunks:
    """What the chunks of a stream add up to."""

    def __init__(self) -> None:
        self.times_ms: list[float] = []
        self.finish_reason: str | None = None
        self._texts: list[str] = []
        self._usage = NOTHING
        self._drafting = NOTHING
        self._prompt_ids: tuple[int, ...] = ()
        self._ids: list[tuple[int, ...] | None] = []
        """Of each chunk in ``times_ms``; None where it carries a token and no ids."""

    def add(self, at_ms: float, chunk: Mapping[str, Any]) -> None:
        self._usage = _mapping(chunk.get("usage")) or self._usage
        metrics = _mapping(chunk.get("metrics"))
        self._drafting = _mapping(metrics.get("speculative_decoding")) or self._drafting
        # vLLM puts a prompt's ids in the first chunk: of a chat beside the choices, else in one.
        self._prompt_ids = _integers(chunk.get("prompt_token_ids")) or self._prompt_ids
        for choice in _mappings(chunk.get("choices")):
            self._prompt_ids = _integers(choice.get("prompt_token_ids")) or self._prompt_ids
            finish_reason = choice.get("finish_reason")
            text, ids = _text(choice), _integers(choice.get("token_ids"))
            spoken = bool(text or _delta(choice).get("tool_calls"))
            # The finishing chunk counts even without text: its token is the end-of-sequence one,
            # which usage counts too. One that only names the role carries nothing.
            if spoken or ids or finish_reason:
                self.times_ms.append(at_ms)
                self._ids.append(None if ids is None and spoken else ids or ())
            self._texts.append(text)
            self.finish_reason = str(finish_reason) if finish_reason else self.finish_reason

    def answer(self, *, cut_off: bool) -> StreamedAnswer:
        ids = [of_chunk for of_chunk in self._ids if of_chunk is not None]
        all_known = len(ids) == len(self._ids) and any(ids)
        return StreamedAnswer(
            ttft_ms=self.times_ms[0] if self.times_ms else None,
            e2e_ms=self.times_ms[-1] if self.times_ms and not cut_off else None,
            prompt_tokens=_count(self._usage.get("prompt_tokens")),
            completion_tokens=_count(self._usage.get("completion_tokens")),
            finish_reason=None if cut_off else self.finish_reason,
            text="".join(self._texts),
            chunk_ms=tuple(self.times_ms),
            chunk_tokens=tuple(len(of_chunk) for of_chunk in ids) if all_known else (),
            prompt_token_ids=self._prompt_ids,
            token_ids=tuple(one for of_chunk in ids for one in of_chunk) if all_known else (),
            accepted_per_step=self._per_step("accepted"),
            drafted_per_step=self._per_step("drafted"),
        )

    def _per_step(self, what: str) -> tuple[int, ...] | None:
        """Nothing, not unknown, where no step was verified: vLLM leaves the list out then."""
        if self._drafting.get("num_spec_steps") == 0:
            return ()
        return _integers(self._drafting.get(f"per_step_{what}"))


def _json_object(payload: str) -> dict[str, Any] | None:
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _delta(choice: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a choice adds: completions put it in the choice itself, chat in its delta."""
    return _mapping(choice.get("delta")) or choice


def _text(choice: Mapping[str, Any]) -> str:
    delta = _delta(choice)
    reasoning = delta.get("reasoning") or delta.get("reasoning_content") or ""
    return f"{reasoning}{delta.get('content') or delta.get('text') or ''}"


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else NOTHING


def _mappings(value: object) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _integers(value: object) -> tuple[int, ...] | None:
    if isinstance(value, list) and all(type(one) is int for one in value):
        return tuple(value)
    return None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None
