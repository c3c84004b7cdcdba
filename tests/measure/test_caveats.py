"""What a round's reader is warned of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.measure.answers import answered, counted, cut_off, speculated
from tuner.measure.caveats import arrived_tokens, caveats, reconcile
from tuner.measure.figures import figures
from tuner.records import Counters, RequestSample, Round
from tuner.spec import Load, Workload

SAMPLES = (answered([1] * 11), answered([1] * 22))
STEPS = st.lists(st.integers(0, 3), min_size=1, max_size=9)


def said(
    samples: Sequence[RequestSample] = SAMPLES,
    *,
    load: Load | None = None,
    workload: Workload | None = None,
    speculates: bool = False,
    **counted: Any,
) -> tuple[str, ...]:
    """The caveats of a round over which the server counted what these answers hold, and this."""
    round_ = Round(load or Load(concurrency=2), tuple(samples))
    counters = Counters(**({"generation_tokens": arrived_tokens(samples)} | counted))
    return caveats(
        round_,
        counters,
        figures(round_, counters),
        workload or Workload(),
        speculates=speculates,
    )


class TestDrafts:
    def test_off_drafts_nothing_and_needs_no_caveat(self) -> None:
        assert said() == ()

    def test_case_6_speculation_that_drafted_nothing(self) -> None:
        """0/0 in two tools (vllm#24322)."""
        assert said(speculates=True) == ("no drafts: acceptance is unknown",)

    def test_case_15_a_draft_of_which_nothing_is_accepted(self) -> None:
        """0 of 692 accepted, acceptance length exactly 1.00 (vllm#35548)."""
        (sentence,) = said(speculates=True, drafts=346, draft_tokens=692)

        assert sentence.startswith("none of 692 draft tokens was accepted: the draft looks broken")


class TestServer:
    def test_preemptions(self) -> None:
        assert said(preemptions=2) == ("2 preemptions: the KV cache is too small for this load",)

    def test_case_18_prefix_cache_hits(self) -> None:
        """Fixed prompts and a prefix cache: 2.3 times "better" on the second run (vllm#54227)."""
        hits = {"prefix_cache_queries": 100, "prefix_cache_hits": 45}

        assert said(**hits) == ("45% of prompt tokens came from the prefix cache",)
        assert said(**(hits | {"prefix_cache_hits": 16})) == ()

    def test_shared_prefixes_are_meant_to_be_found(self) -> None:
        hits = {"prefix_cache_queries": 100, "prefix_cache_hits": 45}

        assert said(workload=Workload(shared_prefixes=True), **hits) == ()

    def test_text_that_goes_round_in_circles(self) -> None:
        samples = [answered([1] * 20, token_ids=(*range(11), 5, 6, 7, 5, 6, 7, 5, 6, 7))]

        assert said(samples) == (
            "30% of the output only repeats itself, which flatters ngram and suffix",
        )
        (asked_for,) = said(samples, workload=Workload(ignore_eos=True))
        assert asked_for.endswith(": let answers end by themselves (ignore_eos)")


class TestTraffic:
    def test_of_others(self) -> None:
        (sentence,) = said(generation_tokens=50)

        assert sentence.startswith("the server generated 50 tokens, this round's requests got 33: ")

    def test_usage_that_says_too_much(self) -> None:
        (sentence,) = said(generation_tokens=30)

        assert sentence.startswith("the server generated 30 tokens, this round's requests got 33: ")

    def test_a_request_that_was_cut_off_may_have_got_a_little_more(self) -> None:
        """A step, and what 0.1 s give at 20 ms a token."""
        samples = [*SAMPLES, cut_off([1] * 5)]

        assert said(samples, generation_tokens=38) == ()
        assert said(samples, generation_tokens=38 + 6) == ()
        assert len(said(samples, generation_tokens=38 + 7)) == 1

    def test_without_token_ids_each_chunk_had_one_at_least(self) -> None:
        assert arrived_tokens([answered([2, 3]), cut_off([2, 3])]) == 10
        assert arrived_tokens([cut_off([2, 3], chunk_tokens=())]) == 2
        assert arrived_tokens([RequestSample("p", "chat", 0.0, error="500: no")]) == 0


class TestOpenLoop:
    RATE = Load(request_rate=10.0)

    def arrivals(self, ttfts_ms: Sequence[float], lag_s: float = 0.0) -> list[RequestSample]:
        """One request every 100 ms; the last is sent late."""
        samples = [
            answered([1] * 9, started_s=n / 10, due_s=n / 10, ttft_ms=ttft_ms)
            for n, ttft_ms in enumerate(ttfts_ms)
        ]
        return [*samples[:-1], replace(samples[-1], started_s=samples[-1].started_s + lag_s)]

    def test_a_server_that_keeps_up(self) -> None:
        assert said(self.arrivals([50, 90, 40, 60, 120, 50, 80, 110, 60])) == ()
        assert said(self.arrivals([50, 90, 40, 60, 120, 50, 80, 110, 60]), load=self.RATE) == ()

    def test_a_queue_that_grows(self) -> None:
        samples = self.arrivals([50, 60, 70, 90, 120, 150, 180, 210, 240])

        (sentence,) = said(samples, load=self.RATE)

        assert sentence == (
            "the queue grew: the median TTFT went from 60 ms in the round's first third "
            "to 210 ms in its last; the server can't keep up with this rate"
        )

    def test_a_closed_loop_has_no_queue_of_its_own(self) -> None:
        assert said(self.arrivals([50, 60, 70, 90, 120, 150, 180, 210, 240])) == ()

    def test_a_few_requests_say_nothing_of_a_queue(self) -> None:
        assert said(self.arrivals([50, 60, 70, 240, 240]), load=self.RATE) == ()

    def test_a_client_that_is_late(self) -> None:
        assert said(self.arrivals([50] * 3, lag_s=0.3), load=self.RATE) == (
            "the client sent a request 300 ms late: this machine is too busy to keep up the rate",
        )

    def test_late_by_less_than_a_gap_changes_no_arrivals(self) -> None:
        assert said(self.arrivals([50] * 3, lag_s=0.09), load=self.RATE) == ()


class TestReconcile:
    @given(st.lists(STEPS, min_size=1, max_size=5), st.data())
    def test_what_a_server_counts_agrees_with_what_it_told(
        self, answers: list[list[int]], data: st.DataObject
    ) -> None:
        samples = [speculated(s, cut=data.draw(st.integers(0, s[-1]))) for s in answers]

        assert reconcile(counted(samples, k=3), samples) == []

    def test_padding_that_was_cut_off_is_in_the_counters_alone(self) -> None:
        samples = [speculated([1, 2, 3]), cut_off([1, 4, 4])]
        counters = replace(counted(samples, k=3), drafts=3 + 4, accepted_tokens=6 + 10)

        assert reconcile(counters, samples) == []

    def test_a_last_step_may_be_counted_beyond_what_was_told_of_it(self) -> None:
        samples = [speculated([1, 2, 3])]

        assert reconcile(replace(counted(samples, k=3), accepted_tokens=6 + 3), samples) == []

    @pytest.mark.parametrize(
        "off", [{"drafts": 2}, {"drafts": 4}, {"accepted_tokens": 5}, {"accepted_tokens": 10}]
    )
    def test_counters_that_disagree(self, off: dict[str, int]) -> None:
        samples = [speculated([1, 2, 3])]

        (sentence,) = reconcile(replace(counted(samples, k=3), **off), samples)

        assert sentence.startswith(f"the server counted {next(iter(off.values()))} ")

    def test_other_token_ids_than_usage_says(self) -> None:
        sound, short = (answered([1, 1], token_ids=ids) for ids in [(5, 6), (5,)])

        assert reconcile(Counters(), [sound, short, answered([1, 1])]) == [
            "1 of 2 answers carried another number of token ids than usage says"
        ]

    def test_steps_that_arrive_together(self) -> None:
        bundled = speculated([1] * 10, bundled=5)

        (sentence,) = reconcile(counted([bundled], k=3), [bundled])

        assert sentence.startswith("10 decode steps arrived in 5 chunks: ")

    def test_steps_that_arrive_in_pieces(self) -> None:
        """Without speculation a step is a token, and here each came in two chunks."""
        sample = answered([1] * 21, completion_tokens=11, chunk_tokens=())

        (sentence,) = reconcile(Counters(), [sample])

        assert sentence.startswith("10 decode steps arrived in 20 chunks: ")

    def test_a_finishing_chunk_of_its_own_is_no_piece(self) -> None:
        told = answered([1] * 11, chunk_tokens=(*[1] * 11, 0), chunk_ms=tuple(range(12)))
        untold = answered([1] * 12, completion_tokens=11, chunk_tokens=())

        assert reconcile(Counters(), [told, untold]) == []

    def test_speculation_without_an_account_of_each_answer_says_nothing_of_steps(self) -> None:
        sample = answered([1, 3, 2])

        assert reconcile(Counters(drafts=2, draft_tokens=6, accepted_tokens=3), [sample]) == []
