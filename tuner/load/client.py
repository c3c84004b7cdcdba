"""The streaming client: one request to an OpenAI-compatible server."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from tuner.load.prompts import Prompt
from tuner.load.sse import EventParser
from tuner.load.stream import DONE, StreamedAnswer, error_text, read_stream
from tuner.records import RequestSample
from tuner.spec import Workload

FIRST_BYTES_S = 1800.0
"""How long an answer may take to begin: a queue and a long prefill are legitimate."""

STALL_S = 120.0
"""How long an answer that has begun may stay silent. There is no limit on the whole of it."""


@dataclass(eq=False)
class Exchange:
    """One request, and what has arrived of its answer.

    ``due_s`` is when the plan would have it sent, from the round's start. ``sent`` is a
    ``time.perf_counter()`` value, ``arrivals`` are in ms from then. Until it has ``ended`` it is
    under way, or was cut off.
    """

    prompt: Prompt
    counted: bool = True
    due_s: float | None = None
    sent: float = 0.0
    arrivals: list[tuple[float, str]] = field(default_factory=list)
    error: str | None = None
    ended: bool = False

    @property
    def has_begun(self) -> bool:
        """Whether anything of an answer has arrived."""
        return bool(self.arrivals) or self.ended

    def sample(self, round_start: float) -> RequestSample:
        """``round_start`` is a ``time.perf_counter()`` value. What was cut off does not count."""
        if self.error is None:
            answer = read_stream(self.arrivals, cut_off=not self.ended)
        else:
            answer = StreamedAnswer(error=self.error)
        return RequestSample(
            prompt_id=self.prompt.id,
            kind=self.prompt.kind,
            started_s=self.sent - round_start,
            counted=self.counted and self.ended,
            due_s=self.due_s,
            **vars(answer),
        )


async def follow(
    exchange: Exchange,
    session: aiohttp.ClientSession,
    base_url: str,
    model: str,
    workload: Workload,
) -> None:
    """Sends one prompt and follows its answer; chat for messages, completions for a plain prompt.

    What goes wrong becomes the exchange's ``error``, which starts with the HTTP status where there
    was one. Cancelled, it closes the connection and leaves the exchange as it is.

    What arrived is read when the sample is asked for: reading takes time that would show in the
    arrivals of other requests. Only what does not end as it should is read at once.
    """
    body = _body(model, exchange.prompt, workload)
    exchange.sent = time.perf_counter()
    exchange.error = await _receive(exchange, session, base_url, body)
    if exchange.error is None and not _ends_well(exchange.arrivals):
        exchange.error = read_stream(exchange.arrivals).error
    exchange.ended = True


def _body(model: str, prompt: Prompt, workload: Workload) -> dict[str, Any]:
    asked = {"prompt": prompt.prompt} if prompt.messages is None else {"messages": prompt.messages}
    return {
        "model": model,
        **asked,
        "max_tokens": prompt.output_tokens or workload.output_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
        **({"ignore_eos": True} if workload.ignore_eos else {}),
        **workload.sampling.model_dump(exclude_none=True),
    }


async def _receive(
    exchange: Exchange, session: aiohttp.ClientSession, base_url: str, body: dict[str, Any]
) -> str | None:
    """Keeps what arrives in the exchange. Returns what went wrong on the way."""
    path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
    arrivals, sent = exchange.arrivals, exchange.sent
    parser = EventParser()
    silent_s = FIRST_BYTES_S
    check_from_ms = 0.0
    try:
        async with (
            asyncio.timeout(FIRST_BYTES_S) as limit,
            session.post(f"{base_url}{path}", json=body) as response,
        ):
            if response.status != 200:  # noqa: PLR2004
                return await _refusal(response)
            async for received in response.content.iter_any():
                at_ms = (time.perf_counter() - sent) * 1000
                arrivals += [(at_ms, payload) for payload in parser.feed(received)]
                if at_ms >= check_from_ms:  # setting a timer for each chunk would cost more than it
                    silent_s = STALL_S
                    limit.reschedule(asyncio.get_running_loop().time() + STALL_S)
                    check_from_ms = at_ms + STALL_S * 10
    except TimeoutError:
        return f"nothing arrived for {silent_s:g} s"
    except (aiohttp.ClientError, OSError, UnicodeDecodeError) as error:
        return f"the connection failed: {type(error).__name__}: {error}"
    return None


def _ends_well(arrivals: list[tuple[float, str]]) -> bool:
    """Whether it ends as a whole answer does, with the usage that was asked for."""
    last = [payload for _, payload in arrivals[-2:]]
    return len(last) == 2 and '"usage"' in last[0] and last[1] == DONE  # noqa: PLR2004


async def _refusal(response: aiohttp.ClientResponse) -> str:
    """``400: what the server said``."""
    text = await response.text(errors="replace")
    try:
        body = json.loads(text)
    except json.JSONDecodeError:
        return f"{response.status}: {text.strip() or response.reason}"
    # vLLM answers {"error": {"message": ...}}; older ones put the message at the top.
    error = body.get("error", body) if isinstance(body, dict) else body
    message = error.get("message", error) if isinstance(error, dict) else error
    return f"{response.status}: {error_text(message)}"
