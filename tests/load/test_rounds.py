from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from tests.load.scripted import chat_answer, send, serving
from tuner.load.prompts import Prompt
from tuner.load.rounds import run_round
from tuner.spec import Load, Workload

PROMPTS = [
    Prompt(f"p{n}", "chat", ({"role": "user", "content": f"Say {n}"},), None) for n in range(6)
]


async def content(request: web.Request) -> str:
    text: str = (await request.json())["messages"][0]["content"]
    return text


def test_each_prompt_is_sent_once_and_samples_keep_their_order() -> None:
    asked = []

    async def answer(request: web.Request) -> web.StreamResponse:
        said = await content(request)
        asked.append(said)
        return await send(request, *chat_answer(said, "!", completion_tokens=4))

    with serving(answer) as base_url:
        round_ = run_round(base_url, "m", PROMPTS, Load(concurrency=4), Workload())

    assert sorted(asked) == [f"Say {n}" for n in range(6)]
    assert [s.prompt_id for s in round_.samples] == [p.id for p in PROMPTS]
    assert [s.text for s in round_.samples] == [f"Say {n}!" for n in range(6)]
    assert round_.load == Load(concurrency=4)
    ends_s = [s.started_s + (s.e2e_ms or 0) / 1000 for s in round_.samples]
    assert max(ends_s) <= round_.duration_s


@pytest.mark.parametrize("concurrency", [1, 3, 6])
def test_the_concurrency_is_reached_and_never_passed(concurrency: int) -> None:
    running, most = 0, 0
    together = asyncio.Barrier(concurrency)

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal running, most
        running += 1
        most = max(most, running)
        async with asyncio.timeout(10):
            await together.wait()
        running -= 1
        return await send(request, *chat_answer("a", completion_tokens=2))

    with serving(answer) as base_url:
        round_ = run_round(base_url, "m", PROMPTS, Load(concurrency=concurrency), Workload())

    assert [s.error for s in round_.samples] == [None] * 6
    assert most == concurrency


def test_a_failed_request_ends_the_round() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        if await content(request) == "Say 2":
            return web.Response(status=500, text="out of luck")
        return await send(request, *chat_answer("a", completion_tokens=2))

    with serving(answer) as base_url:
        round_ = run_round(base_url, "m", PROMPTS, Load(concurrency=1), Workload())

    assert [s.error for s in round_.samples] == [None, None, "500: out of luck"]
