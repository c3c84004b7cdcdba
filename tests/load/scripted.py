"""A real local HTTP server whose answers a test scripts, byte by byte where it wants to."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@contextmanager
def serving(answer: Handler, metrics: Callable[[], str] = str) -> Iterator[str]:
    """Serves ``answer`` on the two completion paths and ``metrics`` beside; gives the base URL."""

    async def show_metrics(_: web.Request) -> web.Response:
        return web.Response(text=metrics())

    app = web.Application()
    app.router.add_post("/v1/completions", answer)
    app.router.add_post("/v1/chat/completions", answer)
    app.router.add_get("/metrics", show_metrics)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    runner = web.AppRunner(app, handler_cancellation=True)

    async def start() -> str:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}"

    async def stop() -> None:
        # asyncio loses a connection that it is accepting while it closes the server.
        for _ in range(10):
            await asyncio.sleep(0)
        await runner.cleanup()

    try:
        yield asyncio.run_coroutine_threadsafe(start(), loop).result()
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class ScriptedServer:
    """A server that is always well."""

    model = "m"

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url

    def check(self) -> None:
        pass


async def send(request: web.Request, *pieces: bytes) -> web.StreamResponse:
    """Streams ``pieces``, each in a write of its own, and leaves the answer open."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for piece in pieces:
        await response.write(piece)
    return response


def event(value: Any) -> bytes:
    """One event as vLLM frames it."""
    return f"data: {value if isinstance(value, str) else json.dumps(value)}\n\n".encode()


def delta(content: str, finish_reason: str | None = None, **others: Any) -> dict[str, Any]:
    """A chat chunk."""
    choice = {"index": 0, "delta": {"content": content, **others}, "finish_reason": finish_reason}
    return {"object": "chat.completion.chunk", "choices": [choice]}


def usage(completion_tokens: int, prompt_tokens: int = 9) -> dict[str, Any]:
    """The chunk that ends a stream asked for usage."""
    counts = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
    return {"object": "chat.completion.chunk", "choices": [], "usage": counts}


def chat_answer(*contents: str, completion_tokens: int) -> list[bytes]:
    """A whole sound chat answer, one event per content."""
    *first, last = contents
    return [
        event(delta("", role="assistant")),
        *(event(delta(content)) for content in first),
        event(delta(last, finish_reason="length")),
        event(usage(completion_tokens)),
        event("[DONE]"),
    ]
