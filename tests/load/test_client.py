from __future__ import annotations

import asyncio
import socket
import threading
import time
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.load.scripted import Handler, chat_answer, delta, event, send, serving
from tuner.load import client
from tuner.load.prompts import Prompt
from tuner.records import RequestSample
from tuner.spec import Sampling, Workload

HELLO = Prompt("hello", "chat", ({"role": "user", "content": "Hello"},), None)


def ask(base_url: str, prompt: Prompt = HELLO, workload: Workload | None = None) -> RequestSample:
    async def once() -> RequestSample:
        start = time.perf_counter()
        exchange = client.Exchange(prompt)
        async with aiohttp.ClientSession() as session:
            await client.follow(exchange, session, base_url, "m", workload or Workload())
        return exchange.sample(start)

    return asyncio.run(once())


def ask_served(answer: Handler) -> RequestSample:
    with serving(answer) as base_url:
        return ask(base_url)


def echo_into(asked: list[tuple[str, dict[str, Any]]]) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append((request.path, await request.json()))
        return await send(request, *chat_answer("Hi", completion_tokens=2))

    return answer


def test_a_chat_answer() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return await send(request, *chat_answer("Good", " day", completion_tokens=3))

    sample = ask_served(answer)

    assert sample.error is None
    assert (sample.prompt_id, sample.kind) == ("hello", "chat")
    assert (sample.text, sample.finish_reason) == ("Good day", "length")
    assert (sample.prompt_tokens, sample.completion_tokens) == (9, 3)
    assert sample.ttft_ms is not None
    assert sample.e2e_ms is not None
    assert 0 < sample.ttft_ms <= sample.e2e_ms
    assert sample.started_s >= 0
    assert sample.counted
    assert len(sample.chunk_ms) == 2


def test_bytes_cut_anywhere_give_the_same_answer() -> None:
    whole = b"".join(chat_answer("Gr\u00fc\u00df", " dich", completion_tokens=3))

    async def answer(request: web.Request) -> web.StreamResponse:
        return await send(request, *(whole[i : i + 1] for i in range(len(whole))))

    sample = ask_served(answer)

    assert (sample.text, sample.completion_tokens, sample.error) == ("Gr\u00fc\u00df dich", 3, None)


def test_what_is_asked_for() -> None:
    asked: list[tuple[str, dict[str, Any]]] = []
    workload = Workload(output_tokens=7, sampling=Sampling(temperature=0.5, min_p=0.1))
    plain = Prompt("plain", "code", None, "def ")

    with serving(echo_into(asked)) as base_url:
        ask(base_url, HELLO, workload)
        ask(base_url, plain, workload)

    common = {
        "model": "m",
        "max_tokens": 7,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
        "temperature": 0.5,
        "min_p": 0.1,
    }
    messages = [{"role": "user", "content": "Hello"}]
    assert asked == [
        ("/v1/chat/completions", common | {"messages": messages}),
        ("/v1/completions", common | {"prompt": "def "}),
    ]


def test_a_prompt_has_a_length_of_its_own_and_may_run_past_its_end() -> None:
    asked: list[tuple[str, dict[str, Any]]] = []

    with serving(echo_into(asked)) as base_url:
        ask(base_url, replace(HELLO, output_tokens=3), Workload(ignore_eos=True))

    ((_, body),) = asked
    assert (body["max_tokens"], body["ignore_eos"]) == (3, True)


def test_what_is_cut_off_keeps_what_had_arrived_and_does_not_count() -> None:
    left = threading.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            response = await send(request, event(delta("", role="assistant")), event(delta("Half")))
            await asyncio.Event().wait()
        finally:
            left.set()
        return response

    async def cut_off(base_url: str) -> RequestSample:
        exchange = client.Exchange(HELLO)
        async with aiohttp.ClientSession() as session:
            asking = asyncio.create_task(
                client.follow(exchange, session, base_url, "m", Workload())
            )
            while len(exchange.arrivals) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            asking.cancel()
            await asyncio.wait([asking])
        return exchange.sample(0.0)

    with serving(answer) as base_url:
        sample = asyncio.run(cut_off(base_url))
        assert left.wait(10)

    assert not sample.counted
    assert (sample.text, sample.error, sample.finish_reason) == ("Half", None, None)
    assert sample.ttft_ms is not None
    assert sample.chunk_ms == (sample.ttft_ms,)
    assert (sample.e2e_ms, sample.completion_tokens) == (None, None)


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (
            400,
            '{"error": {"message": "min_p is unsupported", "code": 400}}',
            "min_p is unsupported",
        ),
        (400, '{"object": "error", "message": "too long"}', "too long"),
        (422, '{"detail": "odd"}', '{"detail": "odd"}'),
        (500, "Internal Server Error", "Internal Server Error"),
        (503, "", "Service Unavailable"),
        (502, '"just text"', "just text"),
    ],
)
def test_a_refusal_says_the_status_and_what_the_server_said(
    status: int, body: str, error: str
) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, text=body)

    assert ask_served(answer).error == f"{status}: {error}"


def test_an_error_in_the_stream() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        broken = event({"error": {"message": "EngineCore encountered an issue", "code": 500}})
        return await send(request, event(delta("a")), broken, event("[DONE]"))

    sample = ask_served(answer)

    assert sample.error == "500: EngineCore encountered an issue"
    assert sample.completion_tokens is None


def test_a_dropped_connection() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = await send(request, event(delta("a")))
        assert request.transport is not None
        request.transport.abort()
        return response

    error = ask_served(answer).error

    assert error is not None
    assert error.startswith("the connection failed: ")


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]

    error = ask(f"http://127.0.0.1:{port}").error

    assert error is not None
    assert error.startswith("the connection failed: ClientConnectorError")


def test_a_stream_that_falls_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "STALL_S", 0.05)

    async def answer(request: web.Request) -> web.StreamResponse:
        response = await send(request, event(delta("a")))
        await asyncio.Event().wait()
        return response

    assert ask_served(answer).error == "nothing arrived for 0.05 s"


def test_an_answer_that_never_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FIRST_BYTES_S", 0.05)

    async def answer(request: web.Request) -> web.StreamResponse:
        response = await send(request)
        await asyncio.Event().wait()
        return response

    assert ask_served(answer).error == "nothing arrived for 0.05 s"


def test_text_that_is_not_utf_8() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return await send(request, b"data: \xff\n\n")

    error = ask_served(answer).error

    assert error is not None
    assert "UnicodeDecodeError" in error
