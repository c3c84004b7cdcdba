"""What a round's reader is warned of; a scripted server has the counters for it."""

from __future__ import annotations

import pytest
from aiohttp import web

from tests.load.scripted import chat_answer, send, serving
from tests.measure.exposition import exposition
from tuner.errors import FailureKind, RoundError
from tuner.load.prompts import Prompt
from tuner.measure.measure import Measured, measure_round
from tuner.spec import Load, Workload

PROMPTS = [Prompt("p", "chat", ({"role": "user", "content": "Hello"},), None)] * 3
TOKENS = 11.0


class Scripted:
    """A server that is always well."""

    model = "m"

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url

    def check(self) -> None:
        pass


def measured(**grown: float) -> Measured:
    """A round of three requests with 11 tokens each, over which the counters grew by ``grown``."""
    readings = iter(
        [
            exposition(dict.fromkeys(grown, 5.0) | {"generation_tokens": 7.0}),
            exposition(
                {name: 5.0 + value for name, value in grown.items()}
                | {"generation_tokens": 7.0 + grown.get("generation_tokens", 3 * TOKENS)}
            ),
        ]
    )

    async def answer(request: web.Request) -> web.StreamResponse:
        return await send(request, *chat_answer("a", "b", completion_tokens=int(TOKENS)))

    with serving(answer, lambda: next(readings)) as base_url:
        return measure_round(Scripted(base_url), PROMPTS, Load(concurrency=2), Workload())


def test_nothing_to_warn_of() -> None:
    found = measured(
        spec_decode_num_drafts=12.0,
        spec_decode_num_draft_tokens=24.0,
        spec_decode_num_accepted_tokens=18.0,
        prefix_cache_queries=100.0,
        prefix_cache_hits=16.0,
        num_preemptions=0.0,
    )

    assert found.warnings == ()
    assert found.figures.acceptance_length == 2.5


def test_case_6_speculation_that_drafted_nothing() -> None:
    """0/0 in two tools (vllm#24322)."""
    found = measured(spec_decode_num_drafts=0.0, spec_decode_num_draft_tokens=0.0)

    assert found.warnings == ("no drafts: acceptance is unknown",)
    assert found.figures.acceptance_length is None


def test_case_15_a_draft_of_which_nothing_is_accepted() -> None:
    """0 of 692 accepted, acceptance length exactly 1.00 (vllm#35548)."""
    found = measured(spec_decode_num_drafts=346.0, spec_decode_num_draft_tokens=692.0)

    (warning,) = found.warnings
    assert warning.startswith("none of 692 draft tokens was accepted: the draft looks broken")
    assert found.figures.acceptance_length == 1.0


def test_off_drafts_nothing_and_needs_no_warning() -> None:
    assert measured().warnings == ()


def test_preemptions() -> None:
    assert measured(num_preemptions=2.0).warnings == (
        "2 preemptions: the KV cache is too small for this load",
    )


def test_prefix_cache_hits() -> None:
    assert measured(prefix_cache_queries=100.0, prefix_cache_hits=45.0).warnings == (
        "45% of prompt tokens came from the prefix cache",
    )


def test_other_traffic() -> None:
    (warning,) = measured(generation_tokens=50.0).warnings

    assert warning.startswith("the server generated 50 tokens, this round's requests got 33: ")


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

    reading = exposition({"generation_tokens": 0.0})
    with (
        serving(answer, lambda: reading) as base_url,
        pytest.raises(RoundError, match=f"2 of 2 requests failed: {status}: no") as caught,
    ):
        measure_round(Scripted(base_url), PROMPTS, Load(concurrency=2), Workload())

    assert caught.value.failure.kind is kind


def test_a_server_that_streams_no_usage() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        role, text, _, done = chat_answer("a", completion_tokens=2)
        return await send(request, role, text, done)

    reading = exposition({"generation_tokens": 0.0})
    with (
        serving(answer, lambda: reading) as base_url,
        pytest.raises(RoundError, match=r"stream_options\.include_usage") as caught,
    ):
        measure_round(Scripted(base_url), PROMPTS, Load(concurrency=2), Workload())

    assert caught.value.failure.kind is FailureKind.REQUEST_REJECTED
