"""The streaming client: one request to an OpenAI-compatible server."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import aiohttp

from tuner.load.prompts import Prompt
from tuner.load.sse import EventParser
from tuner.load.stream import StreamedAnswer, error_text, read_stream
from tuner.records import RequestSample
from tuner.spec import Workload

FIRST_BYTES_S = 1800.0
"""How long an answer may take to begin: a queue and a long prefill are legitimate."""

STALL_S = 120.0
"""How long an answer that has begun may stay silent. There is no limit on the whole of it."""


async def stream_request(  # noqa: PLR0917
    session: aiohttp.ClientSession,
    base_url: str,
    model: str,
    prompt: Prompt,
    workload: Workload,
    round_start: float,
) -> RequestSample:
    """Sends one prompt and follows its answer; chat for messages, completions for a plain prompt.

    ``round_start`` is a ``time.perf_counter()`` value. What goes wrong becomes the sample's
    ``error``, which starts with the HTTP status where there was one.
    """
    sent = time.perf_counter()
    answer = await _ask(session, base_url, _body(model, prompt, workload), sent)
    return RequestSample(
        prompt_id=prompt.id,
        kind=prompt.kind,
        started_s=sent - round_start,
        ttft_ms=answer.ttft_ms,
        e2e_ms=answer.e2e_ms,
        prompt_tokens=answer.prompt_tokens,
        completion_tokens=answer.completion_tokens,
        finish_reason=answer.finish_reason,
        text=answer.text,
        error=answer.error,
    )


def _body(model: str, prompt: Prompt, workload: Workload) -> dict[str, Any]:
    asked = {"prompt": prompt.prompt} if prompt.messages is None else {"messages": prompt.messages}
    return {
        "model": model,
        **asked,
        "max_tokens": workload.output_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        **workload.sampling.model_dump(exclude_none=True),
    }


async def _ask(
    session: aiohttp.ClientSession, base_url: str, body: dict[str, Any], sent: float
) -> StreamedAnswer:
    path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
    # Payloads are only kept while the answer streams, and read afterwards: reading takes time that
    # would show in the arrival of the other requests' chunks.
    arrivals: list[tuple[float, str]] = []
    parser = EventParser()
    try:
        async with (
            asyncio.timeout(FIRST_BYTES_S) as limit,
            session.post(f"{base_url}{path}", json=body) as response,
        ):
            if response.status != 200:  # noqa: PLR2004
                return StreamedAnswer(error=await _refusal(response))
            async for received in response.content.iter_any():
                at_ms = (time.perf_counter() - sent) * 1000
                arrivals += [(at_ms, payload) for payload in parser.feed(received)]
                limit.reschedule(asyncio.get_running_loop().time() + STALL_S)
    except TimeoutError:
        silent_s = STALL_S if arrivals else FIRST_BYTES_S
        return StreamedAnswer(error=f"nothing arrived for {silent_s:g} s")
    except (aiohttp.ClientError, OSError, UnicodeDecodeError) as error:
        return StreamedAnswer(error=f"the connection failed: {type(error).__name__}: {error}")
    return read_stream(arrivals)


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
