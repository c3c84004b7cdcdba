"""Which rounds count, against a server whose answers and counters are scripted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, repeat
from typing import Any

import pytest
from aiohttp import web

from tests.load.scripted import ScriptedServer, chat_answer, send, serving
from tests.measure.answers import answered
from tests.measure.exposition import exposition
from tuner.errors import FailureKind, RoundError
from tuner.load.plan import Arrival, RoundPlan
from tuner.load.prompts import Prompt
from tuner.measure import measure
from tuner.measure.measure import Measured, measure_round, probe_request, warm_up
from tuner.records import Round
from tuner.spec import Load, Workload

PROMPT = Prompt("p", "chat", ({"role": "user", "content": "Hello"},), None)
PLAN = RoundPlan(Load(concurrency=2), (Arrival(PROMPT),) * 3)
TOKENS = 11


async def sound(request: web.Request) -> web.StreamResponse:
    return await send(request, *chat_answer(*"abcdefghijk", completion_tokens=TOKENS))


def in_turn(*readings: str) -> Callable[[], str]:
    """What /metrics says one time after the other; the last reading for good."""
    following: Iterator[str] = chain(readings, repeat(readings[-1]))
    return lambda: next(following)


def counted(tokens: float, **others: Any) -> str:
    return exposition({"generation_tokens": tokens}, **others)


def measured(*readings: str) -> Measured:
    with serving(sound, in_turn(*readings)) as base_url:
        return measure_round(ScriptedServer(base_url), PLAN, Workload())


def test_counters_are_what_the_round_added() -> None:
    found = measured(counted(7), counted(7 + 3 * TOKENS))

    assert found.counters.generation_tokens == 3 * TOKENS
    assert found.figures.output_tokens == 3 * TOKENS
    assert found.figures.acceptance_length is None
    assert len(found.round.counted) == 3
    assert found.warnings == ()


def test_figures_and_caveats_are_of_the_same_counters() -> None:
    drafts = {
        "spec_decode_num_drafts": 12.0,
        "spec_decode_num_draft_tokens": 24.0,
        "spec_decode_num_accepted_tokens": 18.0,
    }
    before = exposition({"generation_tokens": 0.0, **dict.fromkeys(drafts, 0.0)})
    after = exposition({"generation_tokens": 3.0 * TOKENS, "num_preemptions": 2.0, **drafts})

    found = measured(before, after)

    assert found.figures.acceptance_length == 2.5
    assert found.warnings == ("2 preemptions: the KV cache is too small for this load",)


def test_it_waits_until_every_token_is_counted() -> None:
    """A server answers a step before it counts it."""
    found = measured(counted(0), counted(30), counted(31), counted(33), counted(99))

    assert found.counters.generation_tokens == 33


def test_it_waits_until_nothing_runs_any_more() -> None:
    """What was cut off runs on for a step."""
    found = measured(
        counted(0), counted(33, running=2.0), counted(34, waiting=1.0), counted(35), counted(99)
    )

    assert found.counters.generation_tokens == 35


def test_it_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "SETTLE_S", 0.0)

    found = measured(counted(0), counted(20, running=1.0))

    assert found.counters.generation_tokens == 20
    assert [w.partition(":")[0] for w in found.warnings] == [
        "the server generated 20 tokens, this round's requests got 33"
    ]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, FailureKind.REQUEST_REJECTED),
        (404, FailureKind.REQUEST_REJECTED),
        (408, FailureKind.REQUESTS_FAILED),
        (429, FailureKind.REQUESTS_FAILED),
        (503, FailureKind.REQUESTS_FAILED),
    ],
)
def test_case_10_failed_requests_are_no_round(status: int, kind: FailureKind) -> None:
    """817 requests per second 'completed', 200 of 200 failed (vllm#32927). Only what would be
    refused again is a rejection.
    """

    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, text="no")

    with (
        serving(answer, in_turn(counted(0))) as base_url,
        pytest.raises(RoundError, match=f"requests failed: {status}: no") as caught,
    ):
        measure_round(ScriptedServer(base_url), PLAN, Workload())

    assert caught.value.failure.kind is kind


def test_case_10_failed_padding_is_no_round() -> None:
    """The load was not what the round says it was."""

    async def only_counted(request: web.Request) -> web.StreamResponse:
        if "padding" in await request.text():
            return web.Response(status=500, text="no")
        return await sound(request)

    padding = Prompt("q", "chat", ({"role": "user", "content": "padding"},), None)
    plan = RoundPlan(PLAN.load, PLAN.counted, spare=(Arrival(padding),))

    with (
        serving(only_counted, in_turn(counted(0))) as base_url,
        pytest.raises(RoundError, match="requests failed: 500: no"),
    ):
        measure_round(ScriptedServer(base_url), plan, Workload())


def test_a_plan_without_requests_is_no_round() -> None:
    with (
        serving(sound, in_turn(counted(0))) as base_url,
        pytest.raises(RoundError, match="0 of 0 planned requests were answered") as caught,
    ):
        measure_round(ScriptedServer(base_url), RoundPlan(Load(concurrency=2), ()), Workload())

    assert caught.value.failure.kind is FailureKind.REQUESTS_FAILED


def test_fewer_answers_than_planned_are_no_round(monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_short(*_: object, **__: object) -> Round:
        return Round(PLAN.load, (answered([1, 1]),) * 2)

    monkeypatch.setattr(measure, "run_round", cut_short)
    with (
        serving(sound, in_turn(counted(0))) as base_url,
        pytest.raises(RoundError, match="2 of 3 planned requests were answered"),
    ):
        measure_round(ScriptedServer(base_url), PLAN, Workload())


def test_a_server_that_streams_no_usage_is_told_the_flag() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        role, text, _, done = chat_answer("a", completion_tokens=2)
        return await send(request, role, text, done)

    with (
        serving(answer, in_turn(counted(0))) as base_url,
        pytest.raises(RoundError, match="--enable-force-include-usage") as caught,
    ):
        measure_round(ScriptedServer(base_url), PLAN, Workload())

    assert caught.value.failure.kind is FailureKind.REQUEST_REJECTED


class TestWithoutCounting:
    @staticmethod
    def asked(act: Callable[[ScriptedServer], None]) -> Sequence[dict[str, Any]]:
        """The bodies of the requests that ``act`` makes; the counters are not looked at."""
        bodies = []

        async def answer(request: web.Request) -> web.StreamResponse:
            bodies.append(json.loads(await request.text()))
            return await sound(request)

        with serving(answer, in_turn("no metrics")) as base_url:
            act(ScriptedServer(base_url))
        return bodies

    def test_a_probe_is_one_short_request(self) -> None:
        long = Prompt("p", "chat", PROMPT.messages, None, output_tokens=500)

        (body,) = self.asked(lambda server: probe_request(server, long, Workload()))

        assert body["max_tokens"] == measure.PROBE_TOKENS

    def test_a_probe_is_never_longer_than_the_prompts_own_answer(self) -> None:
        short = Prompt("p", "chat", PROMPT.messages, None, output_tokens=3)

        (body,) = self.asked(lambda server: probe_request(server, short, Workload()))

        assert body["max_tokens"] == 3

    def test_a_warm_up_needs_no_padding(self) -> None:
        plan = RoundPlan(PLAN.load, PLAN.counted, spare=PLAN.counted)

        bodies = self.asked(lambda server: warm_up(server, plan, Workload(output_tokens=64)))

        assert [body["max_tokens"] for body in bodies] == [64] * 3
