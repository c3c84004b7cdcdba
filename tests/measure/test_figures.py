from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.factories import measurement
from tests.measure.answers import TTFT_MS, answered, cut_off, speculated
from tuner.errors import FailureKind, RoundError
from tuner.measure.figures import figures, recompute
from tuner.records import Counters, RequestSample, Round
from tuner.spec import Load
from tuner.store.samples import read_samples, write_samples

DRAFTED = st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=20), min_size=1, max_size=8)
TIMES = st.floats(0, 1e4)
UNTOLD: dict[str, Any] = {"chunk_tokens": ()}
"""Where the server returned no token ids."""


def round_of(*samples: RequestSample, concurrency: int = 2) -> Round:
    return Round(Load(concurrency=concurrency), samples)


def spoken(accepted: Sequence[Sequence[int]], k: int) -> tuple[Round, Counters]:
    """A round whose requests' verify steps accepted so many tokens each, and its counters."""
    samples = [answered([1, *(1 + n for n in steps)]) for steps in accepted]
    flat = [n for steps in accepted for n in steps]
    counters = Counters(
        drafts=len(flat),
        draft_tokens=k * len(flat),
        accepted_tokens=sum(flat),
        accepted_at_position=tuple(sum(n > position for n in flat) for position in range(k)),
        generation_tokens=sum(s.completion_tokens or 0 for s in samples),
    )
    return round_of(*samples), counters


class TestLatency:
    def test_percentiles_are_of_the_counted_requests(self) -> None:
        samples = [answered([1] * 11, step_ms=ms) for ms in (10.0, 20.0, 40.0)]
        padding = [answered([1] * 11, step_ms=500.0, counted=False)]

        found = figures(round_of(*samples, *padding), Counters())

        assert found.requests == 3
        assert found.tpot_ms_p50 == pytest.approx(20.0)
        assert found.tpot_ms_p95 == pytest.approx(38.0)
        assert found.ttft_ms_p50 == pytest.approx(TTFT_MS)
        assert found.ttft_ms_p95 == pytest.approx(TTFT_MS)
        assert found.e2e_ms_p50 == pytest.approx(300.0)
        assert found.e2e_ms_p95 == pytest.approx(480.0)
        assert found.mean_output_tokens == 11

    def test_a_chunk_of_several_tokens_is_not_one_token(self) -> None:
        """Ten tokens after the first, in five steps of 20 ms: 10 ms each, whatever a chunk is."""
        found = figures(round_of(answered([1, 3, 1, 4, 1, 1])), Counters())

        assert found.tpot_ms_p50 == pytest.approx(10.0)

    def test_one_token_answers_have_no_tpot_and_no_decode_step(self) -> None:
        found = figures(round_of(answered([1]), answered([1])), Counters(generation_tokens=2))

        assert found.tpot_ms_p50 is None
        assert found.tpot_ms_p95 is None
        assert found.tokens_per_decode_step is None
        assert found.ttft_ms_p50 == pytest.approx(TTFT_MS)

    @pytest.mark.parametrize(
        "samples",
        [[], [RequestSample("p", "chat", 0.0, error="500: no")] * 200],
        ids=["none sent", "all failed"],
    )
    def test_case_10_no_completions_is_never_a_figure(self, samples: list[RequestSample]) -> None:
        """817 requests per second 'completed', 200 of 200 failed (vllm#32927)."""
        with pytest.raises(RoundError) as caught:
            figures(round_of(*samples), Counters())

        assert caught.value.failure.kind is FailureKind.REQUESTS_FAILED
        assert caught.value.failure.message == f"none of {len(samples)} requests was answered"

    def test_an_answer_without_a_known_token_is_none(self) -> None:
        with pytest.raises(RoundError, match="none of 1 requests"):
            figures(round_of(answered([1], completion_tokens=None)), Counters())

    def test_failed_requests_are_left_out(self) -> None:
        failed = RequestSample("p", "chat", 0.0, 9.0, 9.0, 1, 500, error="dropped")

        found = figures(round_of(answered([1] * 11), failed), Counters())

        assert (found.requests, found.output_tokens) == (1, 11)

    def test_case_21_different_output_lengths_leave_rates_alone(self) -> None:
        """1000 against 947 tokens in two runs of the same traffic (vllm#8439)."""
        long = figures(round_of(answered([1] * 1000, ttft_ms=20.0)), Counters())
        short = figures(round_of(answered([1] * 947, ttft_ms=20.0)), Counters())

        assert long.tpot_ms_p50 == pytest.approx(short.tpot_ms_p50)
        assert long.output_throughput_tok_s == pytest.approx(short.output_throughput_tok_s)


class TestThroughput:
    def test_an_unpadded_round_is_all_its_tokens_over_its_time(self) -> None:
        samples = answered([1] * 11), answered([1] * 41, started_s=0.1)

        found = figures(round_of(*samples), Counters())

        assert found.duration_s == pytest.approx(0.1 + 0.1 + 40 * 0.02)
        assert found.output_tokens == 52
        assert found.output_throughput_tok_s == pytest.approx(52 / found.duration_s)

    @given(
        st.lists(
            st.tuples(
                TIMES,
                TIMES,
                st.floats(0, 100),
                st.lists(st.integers(1, 9), min_size=1),
                st.booleans(),
            ),
            min_size=1,
            max_size=6,
        )
    )
    def test_every_token_of_an_unpadded_round_is_inside_it(
        self, answers: list[tuple[float, float, float, list[int], bool]]
    ) -> None:
        """Whether or not the server said how many tokens a chunk carried."""
        samples = [
            answered(
                tokens,
                started_s=started_s,
                ttft_ms=ttft_ms + 1e-3,
                step_ms=step_ms,
                **({} if told else UNTOLD),
            )
            for started_s, ttft_ms, step_ms, tokens, told in answers
        ]

        found = figures(round_of(*samples), Counters())

        assert found.output_tokens == sum(s.completion_tokens or 0 for s in samples)

    def test_padding_counts_where_it_arrived_in_the_window(self) -> None:
        """The window is 1.0 to 1.5 s. Chunks of three tokens arrive every 100 ms from 0.85 s."""
        counted = answered([1] * 21, started_s=1.0)
        before_and_after = cut_off([3] * 20, started_s=0.75, step_ms=100.0)

        found = figures(round_of(counted, before_and_after), Counters())

        assert found.duration_s == pytest.approx(0.5)
        assert found.output_tokens == 21 + 5 * 3

    def test_without_token_ids_an_answers_tokens_are_spread_over_its_chunks(self) -> None:
        """The padding's six chunks hold 18 tokens; two of them arrive in the window of 0.5 s."""
        counted = answered([1] * 21, started_s=1.0, chunk_tokens=())
        padding = answered([3] * 6, started_s=0.45, step_ms=200.0, counted=False, chunk_tokens=())

        found = figures(round_of(counted, padding), Counters())

        assert found.output_tokens == 21 + 2 * 3

    def test_what_was_cut_off_without_token_ids_is_taken_to_be_like_the_others(self) -> None:
        counted = answered([4] * 26, started_s=1.0, chunk_tokens=())
        padding = cut_off([1] * 8, started_s=1.0, step_ms=50.0, chunk_tokens=())

        found = figures(round_of(counted, padding), Counters())

        assert found.output_tokens == 26 * 4 + 8 * 4

    def test_usage_is_right_where_ids_are_missing(self) -> None:
        found = figures(round_of(answered([1, 1, 1], completion_tokens=6)), Counters())

        assert found.output_tokens == 6


class TestDrafting:
    def test_without_speculation_a_step_is_a_token(self) -> None:
        counters = Counters(generation_tokens=17)

        found = figures(round_of(answered([1] * 11), answered([1] * 6)), counters)

        assert found.tokens_per_decode_step == 1.0
        assert found.draft_coverage is None

    @given(DRAFTED)
    def test_counters_give_back_what_happened(self, accepted: list[list[int]]) -> None:
        found = figures(*spoken(accepted, k=5))

        steps = [1 + n for request in accepted for n in request]
        assert found.tokens_per_decode_step == pytest.approx(sum(steps) / len(steps))
        assert found.acceptance_length == pytest.approx(sum(steps) / len(steps))
        assert found.draft_coverage == 1.0
        assert found.acceptance_at_position is not None
        assert 1 + sum(found.acceptance_at_position) == pytest.approx(found.acceptance_length)
        in_order = sorted(found.acceptance_at_position, reverse=True)
        assert list(found.acceptance_at_position) == in_order

    @given(DRAFTED)
    def test_the_servers_account_of_each_answer_comes_first(
        self, accepted: list[list[int]]
    ) -> None:
        """Counters that hold twice as much, of requests that nobody sees, change nothing."""
        _, counters = spoken([*accepted, *accepted, [5, 5]], k=5)

        found = figures(round_of(*(speculated(steps) for steps in accepted)), counters)

        steps = [1 + n for request in accepted for n in request]
        assert found.tokens_per_decode_step == pytest.approx(sum(steps) / len(steps))
        assert found.draft_coverage == 1.0

    def test_a_method_that_drafts_sometimes(self) -> None:
        """20 decode steps, 5 of them with a draft, 10 tokens accepted."""
        counters = Counters(drafts=5, draft_tokens=15, accepted_tokens=10, generation_tokens=31)

        found = figures(round_of(answered([1] * 11 + [2] * 10)), counters)

        assert found.draft_coverage == pytest.approx(0.25)
        assert found.tokens_per_decode_step == pytest.approx(1.5)
        assert found.acceptance_length == pytest.approx(3.0)

    def test_what_padding_decoded_is_in_the_counters_and_in_the_steps(self) -> None:
        """Every draft of k=1 accepted: two tokens a step, in the padding as well."""
        counted, padding = answered([1, *[2] * 10]), cut_off([1, *[2] * 5])
        counters = Counters(
            drafts=15, draft_tokens=15, accepted_tokens=15, generation_tokens=21 + 11
        )

        found = figures(round_of(counted, padding), counters)

        assert found.tokens_per_decode_step == 2.0
        assert found.draft_coverage == 1.0

    def test_case_2_counters_are_pooled(self) -> None:
        """Windows of 150/387, 725/1488 and 5306/8703 accepted (vllm#19254): 58.5 % of all drafted
        tokens, where the mean of the three percentages would say 49.5 %.
        """
        accepted, drafted = 150 + 725 + 5306, 387 + 1488 + 8703
        counters = Counters(
            drafts=drafted,
            draft_tokens=drafted,
            accepted_tokens=accepted,
            accepted_at_position=(accepted,),
            generation_tokens=100_001,
        )

        found = figures(round_of(answered([100_001])), counters)

        assert found.acceptance_at_position == pytest.approx((0.5843,), abs=1e-4)
        assert found.draft_coverage == pytest.approx(drafted / (100_000 - accepted))

    def test_case_6_nothing_drafted_is_unknown_not_zero(self) -> None:
        """0/0 in two tools (vllm#24322)."""
        counters = Counters(accepted_at_position=(0, 0, 0), generation_tokens=11)

        found = figures(round_of(answered([1] * 11)), counters)

        assert found.acceptance_length is None
        assert found.acceptance_at_position is None
        assert found.draft_coverage is None
        assert found.tokens_per_decode_step == 1.0

    def test_case_8_a_low_rate_at_a_large_k_is_a_good_length(self) -> None:
        """36 % at k=7 is an acceptance length of 3.5 (vllm#39359)."""
        counters = Counters(drafts=100, draft_tokens=700, accepted_tokens=252)

        found = figures(round_of(answered([1, *[4] * 88])), counters)

        assert found.acceptance_length == pytest.approx(3.52)

    def test_more_accepted_than_came_out(self) -> None:
        """Tokens accepted past an answer's end are counted; where no step is left over, null."""
        counters = Counters(drafts=2, draft_tokens=14, accepted_tokens=10, generation_tokens=11)

        found = figures(round_of(answered([1, 5, 5])), counters)

        assert found.tokens_per_decode_step is None
        assert found.draft_coverage is None
        assert found.acceptance_length == pytest.approx(6.0)

    def test_coverage_stays_a_share(self) -> None:
        counters = Counters(drafts=9, draft_tokens=9, accepted_tokens=3, generation_tokens=11)

        assert figures(round_of(answered([1] * 11)), counters).draft_coverage == 1.0


class TestServer:
    def test_what_a_setting_may_cause_beside(self) -> None:
        counters = Counters(
            generation_tokens=11,
            prefix_cache_queries=100,
            prefix_cache_hits=45,
            preemptions=2,
            queued_requests=4,
            queue_time_s=0.5,
        )

        found = figures(round_of(answered([1] * 11)), counters)

        assert found.prefix_cache_hit_share == 0.45
        assert found.preemptions == 2
        assert found.queue_ms_mean == 125.0

    def test_what_nobody_counted_is_unknown(self) -> None:
        found = figures(round_of(answered([1] * 11)), Counters())

        assert found.prefix_cache_hit_share is None
        assert found.queue_ms_mean is None
        assert found.looping_share is None
        assert found.max_send_lag_ms is None

    def test_looping_is_of_counted_answers(self) -> None:
        loop = answered([1] * 9, token_ids=(1, 2, 3) * 3)
        padding = answered([1] * 9, token_ids=(1,) * 9, counted=False)

        found = figures(round_of(loop, padding), Counters())

        assert found.looping_share == pytest.approx(6 / 9)

    def test_how_late_the_client_was(self) -> None:
        samples = [
            answered([1, 1], started_s=started_s, due_s=due_s, counted=counted)
            for started_s, due_s, counted in [
                (0.0, 0.0, False),
                (1.51, 1.5, True),
                (2.0, 2.0, True),
            ]
        ]

        found = figures(Round(Load(request_rate=1.0), tuple(samples)), Counters())

        assert found.max_send_lag_ms == pytest.approx(10.0)


COUNTS = st.integers(0, 10**6)
ANSWERS = st.builds(
    lambda steps, told, fields: speculated(
        steps,
        **(fields if told else fields | UNTOLD | {"accepted_per_step": None}),
    ),
    st.lists(st.none() | st.integers(0, 5), min_size=1, max_size=9),
    st.booleans(),
    st.fixed_dictionaries(
        {
            "started_s": TIMES,
            "ttft_ms": st.floats(1e-3, 1e5),
            "step_ms": st.floats(0, 1e3),
            "counted": st.booleans(),
            "token_ids": st.lists(st.integers(0, 3), max_size=9).map(tuple),
            "text": st.text(max_size=5),
            "due_s": st.none() | TIMES,
        }
    ),
)


@given(
    samples=st.lists(ANSWERS, min_size=1, max_size=5),
    counters=st.builds(
        Counters,
        drafts=COUNTS,
        accepted_tokens=COUNTS,
        accepted_at_position=st.lists(COUNTS, max_size=3).map(tuple),
        generation_tokens=COUNTS,
        prefix_cache_hits=COUNTS,
        prefix_cache_queries=COUNTS,
        queued_requests=COUNTS,
        queue_time_s=st.floats(0, 1e6),
    ),
)
def test_figures_follow_from_what_is_stored(
    samples: list[RequestSample], counters: Counters, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """To the last digit, after a way through the samples' file and JSON."""
    round_ = round_of(*(replace(s, counted=True) if n == 0 else s for n, s in enumerate(samples)))
    found = figures(round_, counters)
    folder: Path = tmp_path_factory.getbasetemp()
    path, _ = write_samples(folder, "m", round_.samples)
    stored = json.loads(json.dumps(asdict(counters)))
    stored["accepted_at_position"] = tuple(stored["accepted_at_position"])

    again = recompute(
        measurement(figures=found, counters=Counters(**stored)), read_samples(folder, path)
    )

    assert again == found
