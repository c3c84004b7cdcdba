"""A streamed answer as a timeline: what arrived when, and what that comes to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

DONE = "[DONE]"
"""The payload that ends an OpenAI-style stream."""


@dataclass(frozen=True)
class StreamedAnswer:
    """What a stream came to; times count from when the request was sent.

    As in vLLM's benchmark, TTFT is when the first chunk with a token arrived, E2E when the last one
    did: the trailing usage chunk carries no token and does not count.
    """

    ttft_ms: float | None = None
    e2e_ms: float | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    finish_reason: str | None = None
    text: str = ""
    error: str | None = None


def read_stream(arrivals: Iterable[tuple[float, str]]) -> StreamedAnswer:
    """Reads ``(arrival in ms, payload)`` of a completions or chat stream, in order of arrival.

    What is wrong with the stream (an error object, no answer, an answer cut off, no JSON) is
    returned as ``error``, never raised.
    """
    token_times: list[float] = []
    texts: list[str] = []
    finish_reason: str | None = None
    usage: Mapping[str, Any] = {}
    for at_ms, payload in arrivals:
        if payload == DONE:
            break
        chunk = _json_object(payload)
        if chunk is None:
            return StreamedAnswer(error=f"the stream carried no JSON object: {payload[:200]!r}")
        if error := chunk.get("error"):
            return StreamedAnswer(error=error_text(error))
        usage = chunk.get("usage") or usage
        for choice in chunk.get("choices") or ():
            finish_reason = choice.get("finish_reason") or finish_reason
            texts.append(_text(choice))
            if _carries_token(choice):
                token_times.append(at_ms)
    if not token_times:
        return StreamedAnswer(error="the stream ended without an answer")
    if finish_reason is None:
        return StreamedAnswer(error="the stream ended before the answer did")
    return StreamedAnswer(
        ttft_ms=token_times[0],
        e2e_ms=token_times[-1],
        prompt_tokens=usage.get("prompt_tokens"),
        completion_tokens=usage.get("completion_tokens"),
        finish_reason=finish_reason,
        text="".join(texts),
    )


def error_text(error: object) -> str:
    """An OpenAI-style error object as text, with its status code in front where it has one."""
    if not isinstance(error, Mapping):
        return str(error)
    code, message = error.get("code"), error.get("message") or json.dumps(dict(error))
    return f"{code}: {message}" if isinstance(code, int) else str(message)


def _json_object(payload: str) -> dict[str, Any] | None:
    try:
        value = json.loads(payload)
    except json.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def _delta(choice: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a choice adds: completions put it in the choice itself, chat in its delta."""
    return choice.get("delta") or choice


def _text(choice: Mapping[str, Any]) -> str:
    delta = _delta(choice)
    reasoning = delta.get("reasoning") or delta.get("reasoning_content") or ""
    return f"{reasoning}{delta.get('content') or delta.get('text') or ''}"


def _carries_token(choice: Mapping[str, Any]) -> bool:
    """False for a chunk that only names the role or keeps the connection alive.

    The finishing chunk counts even without text: its token is the end-of-sequence one, which
    ``usage`` counts too.
    """
    return bool(
        _text(choice)
        or _delta(choice).get("tool_calls")
        or choice.get("token_ids")
        or choice.get("finish_reason")
    )
