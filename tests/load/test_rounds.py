from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Sequence
from itertools import pairwise
from math import ceil

import pytest
from aiohttp import web

from tests.load.scripted import Handler, chat_answer, delta, event, send, serving, usage
from tuner.load.plan import Deck, RoundPlan
from tuner.load.prompts import Prompt
from tuner.load.rounds import run_round
from tuner.records import Round
from tuner.spec import Load, Workload

PATIENCE_S = 20
"""Far longer than anything here takes."""

PROMPTS = [
    Prompt(f"p{n}", "chat", ({"role": "user", "content": f"Say {n}"},), None, at_s=n / 100)
    for n in range(12)
]
LIMIT = 12
OPEN = Load(request_rate=400.0)
RECORDED = Load(request_rate="recorded")


def plan_of(load: Load, requests: int = 6) -> RoundPlan:
    return Deck(PROMPTS, "seed").plan(load, Workload(requests=requests))


def run(answer: Handler, plan: RoundPlan, *, padded: bool = True) -> Round:
    with serving(answer) as base_url:
        return run_round(base_url, "m", plan, Workload(output_tokens=LIMIT), padded=padded)


def said(plan: RoundPlan) -> list[str]:
    """What the plan's counted requests say, in its order."""
    return [a.prompt.messages[0]["content"] for a in plan.counted if a.prompt.messages]


class Server:
    """Answers the oldest request each time there are ``size`` in flight; notes what it saw."""

    def __init__(self, size: int, failing: str | None = None) -> None:
        self._size = size
        self._failing = failing
        self._waiting: list[asyncio.Future[None]] = []
        self.in_flight = 0
        self.all_gone = threading.Condition()
        self.arrived: list[tuple[str, int]] = []
        """What a request said, and how many others were in flight."""
        self.limits: list[int] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        text: str = body["messages"][0]["content"]
        self.arrived.append((text, self.in_flight))
        self.limits.append(body["max_tokens"])
        if text == self._failing:
            return web.Response(status=500, text="out of luck")
        self.in_flight += 1
        try:
            response = await send(request, event(delta("a")))
            await self._turn()
            for piece in (delta("b", finish_reason="length"), usage(2), "[DONE]"):
                await response.write(event(piece))
        finally:
            with self.all_gone:
                self.in_flight -= 1
                self.all_gone.notify()
        return response

    async def _turn(self) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        if len(self._waiting) == self._size:
            self._waiting.pop(0).set_result(None)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await turn
        finally:
            if turn in self._waiting:
                self._waiting.remove(turn)


def others_when_counted(server: Server, plan: RoundPlan) -> list[int]:
    counted = set(said(plan))
    return [others for text, others in server.arrived if text in counted]


class TestClosedLoop:
    @pytest.mark.parametrize("concurrency", [2, 3, 6])
    def test_all_others_are_in_flight_whenever_a_counted_request_is_sent(
        self, concurrency: int
    ) -> None:
        plan = plan_of(Load(concurrency=concurrency))
        server = Server(concurrency)

        run(server.answer, plan)

        assert others_when_counted(server, plan) == [concurrency - 1] * 6
        assert max(others for _, others in server.arrived) == concurrency - 1

    def test_padding_comes_first_and_last_and_does_not_count(self) -> None:
        plan = plan_of(Load(concurrency=3))
        server = Server(3)

        round_ = run(server.answer, plan)

        counted = [text in said(plan) for text, _ in server.arrived]
        assert counted[:3] == [False] * 3
        assert counted[-2:] == [False] * 2
        assert [text for text, _ in server.arrived if text in said(plan)] == said(plan)
        assert [s.prompt_id for s in round_.counted] == [a.prompt.id for a in plan.counted]
        assert [s.text for s in round_.counted] == ["ab"] * 6
        assert round_.load == plan.load

    def test_what_is_under_way_in_the_end_is_cut_off(self) -> None:
        server = Server(3)

        round_ = run(server.answer, plan_of(Load(concurrency=3)))

        cut_off = [s for s in round_.samples if s.finish_reason is None]
        assert len(cut_off) == 2
        assert all((s.error, s.e2e_ms, s.counted) == (None, None, False) for s in cut_off)
        assert all(s.text in {"", "a"} for s in cut_off)
        with server.all_gone:
            assert server.all_gone.wait_for(lambda: server.in_flight == 0, PATIENCE_S)

    def test_first_answers_have_staggered_lengths(self) -> None:
        server = Server(5)

        run(server.answer, plan_of(Load(concurrency=5)))

        assert sorted(server.limits[:5]) == [ceil(LIMIT * n / 5) for n in range(1, 6)]
        assert set(server.limits[5:]) == {LIMIT}

    def test_nothing_counts_before_something_of_each_clients_first_answer_arrived(self) -> None:
        plan = plan_of(Load(concurrency=3))
        texts: list[str] = []
        enough = asyncio.Event()

        async def answer(request: web.Request) -> web.StreamResponse:
            texts.append((await request.json())["messages"][0]["content"])
            place = len(texts)
            if place == 6:
                enough.set()
            if place in {2, 3}:  # their prefill takes as long as four other requests do
                async with asyncio.timeout(PATIENCE_S):
                    await enough.wait()
            return await send(request, *chat_answer("a", completion_tokens=2))

        round_ = run(answer, plan)

        assert len(round_.counted) == 6
        assert not set(texts[:6]) & set(said(plan))

    def test_one_client_needs_no_padding(self) -> None:
        plan = plan_of(Load(concurrency=1))
        server = Server(1)

        round_ = run(server.answer, plan)

        assert server.arrived == [(text, 0) for text in said(plan)]
        assert len(round_.counted) == len(round_.samples) == 6

    @pytest.mark.parametrize("clients", [3, 6])
    def test_without_padding_the_counted_are_sent_and_nothing_else(self, clients: int) -> None:
        plan = plan_of(Load(concurrency=clients))

        async def answer(request: web.Request) -> web.StreamResponse:
            return await send(request, *chat_answer("a", completion_tokens=2))

        round_ = run(answer, plan, padded=False)

        assert [s.prompt_id for s in round_.samples] == [a.prompt.id for a in plan.counted]
        assert [s.counted for s in round_.samples] == [True] * 6
        assert [s.due_s for s in round_.samples] == [None] * 6


class TestFailure:
    @pytest.mark.parametrize("concurrency", [1, 3])
    def test_a_failed_request_ends_the_round(self, concurrency: int) -> None:
        plan = plan_of(Load(concurrency=concurrency))
        server = Server(concurrency, failing=said(plan)[2])

        round_ = run(server.answer, plan)

        assert [s.error for s in round_.samples if s.error] == ["500: out of luck"]
        texts = [text for text, _ in server.arrived]
        assert texts.index(said(plan)[2]) == len(texts) - 1
        assert len(round_.counted) <= 3

    def test_failed_padding_does_too(self) -> None:
        plan = plan_of(Load(concurrency=3))
        padding = [next(plan.padding()).prompt.messages]
        server = Server(3, failing=padding[0][0]["content"] if padding[0] else None)

        round_ = run(server.answer, plan)

        assert round_.counted == ()
        assert [s.error for s in round_.samples if s.error] == ["500: out of luck"]
        assert len(server.arrived) <= 3

    def test_an_answer_that_breaks_off_is_a_failure(self) -> None:
        async def answer(request: web.Request) -> web.StreamResponse:
            return await send(request, event(delta("Half an")), event("[DONE]"))

        round_ = run(answer, plan_of(Load(concurrency=1)))

        assert [s.error for s in round_.samples] == ["the stream ended before the answer did"]


class OpenServer:
    """Answers nothing before ``first_after`` requests came, then one, then none but the counted,
    and those when all of them came.
    """

    def __init__(self, counted: Sequence[str], first_after: int) -> None:
        self._counted = counted
        self._first_after = first_after
        self._changed = asyncio.Event()
        self.texts: list[str] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        text = (await request.json())["messages"][0]["content"]
        self.texts.append(text)
        self._changed.set()
        place = len(self.texts)
        async with asyncio.timeout(PATIENCE_S):
            while not self._is_due(text, place):
                self._changed.clear()
                await self._changed.wait()
        return await send(request, *chat_answer("a", completion_tokens=2))

    def _is_due(self, text: str, place: int) -> bool:
        if text in self._counted:
            return set(self._counted) <= set(self.texts)
        return place == 1 and len(self.texts) >= self._first_after


class TestOpenLoop:
    @pytest.mark.parametrize("load", [OPEN, RECORDED], ids=str)
    def test_requests_are_sent_whether_or_not_answers_come(self, load: Load) -> None:
        plan = plan_of(load, requests=8)
        server = OpenServer(said(plan), first_after=3)

        round_ = run(server.answer, plan)

        assert [s.prompt_id for s in round_.counted] == [a.prompt.id for a in plan.counted]
        assert [text for text in server.texts if text in said(plan)] == said(plan)
        first = server.texts.index(said(plan)[0])
        assert first >= 3

    @pytest.mark.parametrize("load", [OPEN, RECORDED], ids=str)
    def test_the_counted_are_due_at_the_plans_gaps_and_never_early(self, load: Load) -> None:
        plan = plan_of(load, requests=8)

        round_ = run(OpenServer(said(plan), first_after=1).answer, plan)

        due_s = [s.due_s for s in round_.samples if s.due_s is not None]
        assert len(due_s) == len(round_.samples)
        assert due_s[0] == 0
        counted = [s.due_s or 0.0 for s in round_.counted]
        gaps = [later - earlier for earlier, later in pairwise(counted)]
        assert gaps == pytest.approx([a.gap_s for a in plan.counted][1:])
        assert all(s.started_s >= (s.due_s or 0.0) for s in round_.samples)

    def test_padding_goes_on_until_the_last_counted_is_answered(self) -> None:
        plan = plan_of(OPEN, requests=2)
        last = said(plan)[-1]
        texts: list[str] = []
        more = asyncio.Event()

        async def answer(request: web.Request) -> web.StreamResponse:
            text = (await request.json())["messages"][0]["content"]
            texts.append(text)
            if last in texts and len(texts) - texts.index(last) > 4:
                more.set()
            if text == last:
                async with asyncio.timeout(PATIENCE_S):
                    await more.wait()
            return await send(request, *chat_answer("a", completion_tokens=2))

        round_ = run(answer, plan)

        assert [s.error for s in round_.samples if s.error] == []
        assert len(round_.counted) == 2
        assert len(texts) - texts.index(last) > 4

    def test_without_padding_the_counted_are_sent_and_nothing_else(self) -> None:
        plan = plan_of(OPEN)

        async def answer(request: web.Request) -> web.StreamResponse:
            return await send(request, *chat_answer("a", completion_tokens=2))

        round_ = run(answer, plan, padded=False)

        assert [s.prompt_id for s in round_.samples] == [a.prompt.id for a in plan.counted]
        assert len(round_.counted) == 6


@pytest.mark.parametrize("load", [Load(concurrency=4), OPEN], ids=str)
def test_nothing_is_left_running(load: Load, caplog: pytest.LogCaptureFixture) -> None:
    threads = threading.active_count()
    plan = plan_of(load)

    run(Server(4).answer if load.concurrency else OpenServer(said(plan), 1).answer, plan)
    gc.collect()  # a warning of what was never closed or awaited fails the test

    assert threading.active_count() == threads
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


def test_a_plan_of_nothing_is_over_at_once() -> None:
    round_ = run(Server(1).answer, RoundPlan(Load(concurrency=4), ()))

    assert round_ == Round(Load(concurrency=4), ())
