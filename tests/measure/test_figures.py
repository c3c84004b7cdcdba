from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import FailureKind, RoundError
from tuner.measure.figures import figures
from tuner.records import Counters, RequestSample, Round
from tuner.spec import Load

STEP_MS = 20.0
TTFT_MS = 100.0


def answered(tokens: int, decode_steps: int, step_ms: float = STEP_MS) -> RequestSample:
    """A request that decoded so many tokens, its first one included, in so many steps."""
    return RequestSample(
        prompt_id="p",
        kind="chat",
        started_s=0.0,
        ttft_ms=TTFT_MS,
        e2e_ms=TTFT_MS + decode_steps * step_ms,
        completion_tokens=tokens,
        finish_reason="length",
    )


def round_of(*samples: RequestSample, duration_s: float = 2.0) -> Round:
    return Round(Load(concurrency=2), samples, duration_s)


def spoken(accepted: Sequence[Sequence[int]], k: int) -> tuple[Round, Counters]:
    """A round whose requests' verify steps accepted so many tokens each, and its counters."""
    samples = [answered(1 + sum(steps) + len(steps), len(steps)) for steps in accepted]
    flat = [n for steps in accepted for n in steps]
    counters = Counters(
        drafts=len(flat),
        draft_tokens=k * len(flat),
        accepted_tokens=sum(flat),
        accepted_at_position=tuple(sum(n > position for n in flat) for position in range(k)),
    )
    return round_of(*samples), counters


def test_latencies_and_throughput() -> None:
    samples = [answered(11, 10, step_ms) for step_ms in (10.0, 20.0, 40.0)]

    found = figures(round_of(*samples, duration_s=3.0), Counters(generation_tokens=33))

    assert (found.requests, found.output_tokens, found.duration_s) == (3, 33, 3.0)
    assert found.output_throughput_tok_s == pytest.approx(11.0)
    assert found.tpot_ms_p50 == pytest.approx(20.0)
    assert found.tpot_ms_p95 == pytest.approx(38.0)
    assert found.ttft_ms_p50 == pytest.approx(TTFT_MS)
    assert found.ttft_ms_p95 == pytest.approx(TTFT_MS)
    assert found.e2e_ms_p50 == pytest.approx(300.0)
    assert found.e2e_ms_p95 == pytest.approx(480.0)


def test_without_speculation_a_step_is_a_token() -> None:
    found = figures(round_of(answered(11, 10), answered(6, 5)), Counters())

    assert found.tokens_per_decode_step == 1.0


@given(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=20), min_size=1, max_size=8))
def test_counters_give_back_what_happened(accepted: list[list[int]]) -> None:
    found = figures(*spoken(accepted, k=5))

    steps = [1 + n for request in accepted for n in request]
    assert found.tokens_per_decode_step == pytest.approx(sum(steps) / len(steps))
    assert found.acceptance_length == pytest.approx(sum(steps) / len(steps))
    assert found.draft_coverage == 1.0
    assert found.acceptance_at_position is not None
    assert 1 + sum(found.acceptance_at_position) == pytest.approx(found.acceptance_length)
    assert list(found.acceptance_at_position) == sorted(found.acceptance_at_position, reverse=True)


def test_a_method_that_drafts_sometimes() -> None:
    """20 decode steps, 5 of them with a draft, 10 tokens accepted."""
    counters = Counters(drafts=5, draft_tokens=15, accepted_tokens=10)

    found = figures(round_of(answered(31, 20)), counters)

    assert found.draft_coverage == pytest.approx(0.25)
    assert found.tokens_per_decode_step == pytest.approx(1.5)
    assert found.acceptance_length == pytest.approx(3.0)


def test_case_2_counters_are_pooled() -> None:
    """Windows of 150/387, 725/1488 and 5306/8703 accepted (vllm#19254): 58.5 % of all drafted
    tokens, where the mean of the three percentages would say 49.5 %.
    """
    accepted, drafted = 150 + 725 + 5306, 387 + 1488 + 8703
    counters = Counters(
        drafts=drafted,
        draft_tokens=drafted,
        accepted_tokens=accepted,
        accepted_at_position=(accepted,),
    )

    found = figures(round_of(answered(100_001, 100_000 - accepted)), counters)

    assert found.acceptance_at_position == pytest.approx((0.5843,), abs=1e-4)
    assert found.draft_coverage == pytest.approx(drafted / (100_000 - accepted))


def test_case_6_nothing_drafted_is_unknown_not_zero() -> None:
    """0/0 in two tools (vllm#24322)."""
    counters = Counters(accepted_at_position=(0, 0, 0), generation_tokens=11)

    found = figures(round_of(answered(11, 10)), counters)

    assert found.acceptance_length is None
    assert found.acceptance_at_position is None
    assert found.draft_coverage is None
    assert found.tokens_per_decode_step == 1.0


def test_case_8_a_low_rate_at_a_large_k_is_a_good_length() -> None:
    """36 % at k=7 is an acceptance length of 3.5 (vllm#39359)."""
    counters = Counters(drafts=100, draft_tokens=700, accepted_tokens=252)

    found = figures(round_of(answered(353, 100)), counters)

    assert found.acceptance_length == pytest.approx(3.52)


@pytest.mark.parametrize(
    "samples",
    [[], [RequestSample("p", "chat", 0.0, error="500: no")] * 200, [answered(1, 0)]],
    ids=["none sent", "all failed", "no token counted"],
)
def test_case_10_no_completions_is_never_a_figure(samples: list[RequestSample]) -> None:
    """817 requests per second 'completed', 200 of 200 failed (vllm#32927)."""
    uncounted = [
        RequestSample("p", "chat", 0.0, 1.0, 1.0) if s.error is None else s for s in samples
    ]

    with pytest.raises(RoundError) as caught:
        figures(round_of(*uncounted, duration_s=0.2), Counters())

    assert caught.value.failure.kind is FailureKind.REQUESTS_FAILED
    assert f"none of {len(samples)} requests" in caught.value.failure.message


def test_failed_requests_are_left_out() -> None:
    failed = RequestSample("p", "chat", 0.0, 9.0, 9.0, 1, 500, error="dropped")

    found = figures(round_of(answered(11, 10), failed), Counters())

    assert (found.requests, found.output_tokens) == (1, 11)


def test_one_token_answers_have_no_tpot_and_no_decode_step() -> None:
    found = figures(round_of(answered(1, 0), answered(1, 0)), Counters())

    assert found.tpot_ms_p50 is None
    assert found.tpot_ms_p95 is None
    assert found.tokens_per_decode_step is None
    assert found.ttft_ms_p50 == pytest.approx(TTFT_MS)


def test_more_accepted_than_came_out() -> None:
    """Tokens accepted past an answer's end are counted; where no step is left over, null."""
    counters = Counters(drafts=2, draft_tokens=14, accepted_tokens=10)

    found = figures(round_of(answered(11, 2)), counters)

    assert found.tokens_per_decode_step is None
    assert found.draft_coverage is None
    assert found.acceptance_length == pytest.approx(6.0)


def test_coverage_stays_a_share() -> None:
    counters = Counters(drafts=9, draft_tokens=9, accepted_tokens=3)

    assert figures(round_of(answered(11, 7)), counters).draft_coverage == 1.0


def test_case_21_different_output_lengths_leave_rates_alone() -> None:
    """1000 against 947 tokens in two runs of the same traffic (vllm#8439)."""
    long = figures(round_of(answered(1000, 999), duration_s=20.08), Counters())
    short = figures(round_of(answered(947, 946), duration_s=20.08 * 947 / 1000), Counters())

    assert long.tpot_ms_p50 == pytest.approx(short.tpot_ms_p50)
    assert long.output_throughput_tok_s == pytest.approx(short.output_throughput_tok_s)
