from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.measure.answers import answered, counted, cut_off, speculated
from tuner.measure.drafting import (
    Drafting,
    decode_steps,
    drafting,
    ratio,
    request_drafting,
)
from tuner.records import Counters, Estimate, RequestSample

SHARE = (0.0, 1.0)
STEPS = st.lists(st.none() | st.integers(0, 5), min_size=1, max_size=20)


def untold(samples: Sequence[RequestSample]) -> list[RequestSample]:
    """The same answers by a server that gives no account of each."""
    return [replace(s, accepted_per_step=None, drafted_per_step=None) for s in samples]


def of(samples: Sequence[RequestSample]) -> Drafting:
    found = drafting([(counted(samples, k=5), samples)])
    assert found is not None
    return found


class TestDecodeSteps:
    """vLLM's account of an answer has its verify steps alone, and the last one whole."""

    @given(STEPS, st.data())
    def test_one_chunk_a_step_tells_them_exactly(
        self, steps: list[int | None], data: st.DataObject
    ) -> None:
        cut = data.draw(st.integers(0, steps[-1] or 0))
        sample = speculated(steps, cut=cut)

        assert decode_steps(sample, sample.accepted_per_step or ()) == len(steps)

    @given(st.lists(st.integers(0, 5), min_size=1, max_size=20), st.data())
    def test_a_method_that_always_drafts_needs_no_chunks(
        self, steps: list[int], data: st.DataObject
    ) -> None:
        cut = data.draw(st.integers(0, steps[-1]))
        bundled = data.draw(st.integers(0, len(steps)))
        sample = speculated(steps, cut=cut, bundled=bundled)

        assert decode_steps(sample, sample.accepted_per_step or ()) == len(steps)

    @given(STEPS, st.data())
    def test_an_answer_that_was_not_cut_needs_no_chunks(
        self, steps: list[int | None], data: st.DataObject
    ) -> None:
        bundled = data.draw(st.integers(0, len(steps)))
        sample = speculated(steps, bundled=bundled)

        assert decode_steps(sample, sample.accepted_per_step or ()) == len(steps)

    def test_a_finishing_chunk_without_a_token_is_no_step(self) -> None:
        sample = replace(
            speculated([None, 2, None]),
            chunk_ms=(100.0, 120.0, 140.0, 160.0, 161.0),
            chunk_tokens=(1, 1, 3, 1, 0),
        )

        assert decode_steps(sample, (2,)) == 3

    def test_chunks_in_pieces_are_not_more_steps(self) -> None:
        """Four tokens after the prefill's leave room for four steps at most, not for seven."""
        sample = speculated([None, 4], cut=2, chunk_tokens=(), chunk_ms=tuple(range(8)))

        assert decode_steps(sample, (4,)) == 4


class TestByRequest:
    @given(st.lists(STEPS, min_size=1, max_size=6))
    def test_it_gives_back_what_happened(self, answers: list[list[int | None]]) -> None:
        found = request_drafting([speculated(steps) for steps in answers])

        steps = [n for answer in answers for n in answer]
        drafts = [n for n in steps if n is not None]
        if not drafts:
            assert found is None
            return
        assert found is not None
        assert (found.by, found.clusters) == ("request", len(answers))
        assert found.acceptance_length.value == pytest.approx(1 + sum(drafts) / len(drafts))
        assert [e.value for e in found.at_position] == pytest.approx(
            [sum(n > at for n in drafts) / len(drafts) for at in range(max(drafts))]
        )
        assert found.tokens_per_decode_step is not None
        assert found.tokens_per_decode_step.value == pytest.approx(1 + sum(drafts) / len(steps))
        assert found.draft_coverage is not None
        assert found.draft_coverage.value == pytest.approx(len(drafts) / len(steps))

    @given(st.lists(STEPS, min_size=2, max_size=6))
    def test_conditional_acceptance_multiplies_up(self, answers: list[list[int | None]]) -> None:
        found = request_drafting([speculated(steps) for steps in answers])

        if found is not None:
            product = 1.0
            for conditional, at in zip(
                found.conditional_at_position, found.at_position, strict=True
            ):
                assert conditional is not None
                product *= conditional.value
                assert product == pytest.approx(at.value)

    def test_tokens_cut_at_the_end_are_not_delivered_per_step(self) -> None:
        found = of([speculated([3, 3], cut=2), speculated([3, 3], cut=3)])

        assert found.acceptance_length.value == 4.0
        assert found.tokens_per_decode_step is not None
        assert found.tokens_per_decode_step.value == (6 + 5) / 4

    def test_padding_that_was_cut_off_has_no_account_and_is_left_out(self) -> None:
        sample = speculated([1, 1])

        found = drafting([(counted([sample], k=5), [sample, cut_off([1, 2])])])

        assert found is not None
        assert found.by == "request"

    def test_answers_of_one_token_need_no_account(self) -> None:
        found = of([speculated([1, 1]), answered([1])])

        assert (found.by, found.clusters) == ("request", 1)

    def test_any_choice_of_requests(self) -> None:
        """Acceptance by kind."""
        samples = [speculated([2, 2], kind="code"), speculated([0, 0], kind="chat")]

        found = {
            kind: request_drafting([s for s in samples if s.kind == kind])
            for kind in ("code", "chat")
        }

        lengths = {kind: d.acceptance_length.value for kind, d in found.items() if d is not None}
        assert lengths == {"code": 3.0, "chat": 1.0}

    def test_without_an_account_of_each_there_is_none(self) -> None:
        told = speculated([1, 1])

        assert request_drafting(untold([told])) is None
        assert request_drafting([told, *untold([told])]) is None
        assert request_drafting([]) is None


class TestByRound:
    def test_the_counters_of_each_round(self) -> None:
        rounds = [
            [speculated([2, 0, 1]), speculated([1])],
            [speculated([0, 0, 3, 1])],
        ]

        found = drafting([(counted(samples, k=5), untold(samples)) for samples in rounds])

        assert found is not None
        assert (found.by, found.clusters) == ("round", 2)
        assert found.acceptance_length.value == 1 + 8 / 8
        assert [e.value for e in found.at_position] == [5 / 8, 2 / 8, 1 / 8, 0, 0]
        assert found.tokens_per_decode_step is not None
        assert found.tokens_per_decode_step.value == 2.0
        assert found.draft_coverage is not None
        assert found.draft_coverage.value == 1.0

    def test_case_2_rounds_are_pooled(self) -> None:
        """Windows of 150/387, 725/1488 and 5306/8703 accepted (vllm#19254): 58.5 % of all drafted
        tokens, where the mean of the three percentages would say 49.5 %.
        """
        windows = [(150, 387), (725, 1488), (5306, 8703)]
        counters = [
            Counters(
                drafts=drafts,
                draft_tokens=drafts,
                accepted_tokens=accepted,
                accepted_at_position=(accepted,),
                generation_tokens=20_000,
            )
            for accepted, drafts in windows
        ]

        found = drafting([(c, [answered([20_000])]) for c in counters])

        assert found is not None
        assert found.at_position[0].value == pytest.approx(6181 / 10578)

    def test_nothing_reached_a_position_so_what_follows_is_unknown(self) -> None:
        samples = untold([speculated([1, 0])])

        found = drafting([(counted([speculated([1, 0])], k=5), samples)])

        assert found is not None
        assert [e and e.value for e in found.conditional_at_position] == [
            0.5,
            0.0,
            None,
            None,
            None,
        ]

    def test_case_6_nothing_drafted_is_none(self) -> None:
        """0/0 in two tools (vllm#24322)."""
        counters = Counters(accepted_at_position=(0, 0), generation_tokens=11)

        assert drafting([(counters, [answered([1] * 11)])]) is None
        assert drafting([]) is None


class TestIntervals:
    def test_worked_by_hand(self) -> None:
        """Ratio 6/8; residuals 0.75, 0, -0.75 of 1, 4 and 3: t(0.975, 2) = 4.302653."""
        found = ratio([1.5, 3, 1.5], [1, 4, 3], (0.0, math.inf))

        half = 4.302653 * math.sqrt(3 / 2 * 2 * 0.75**2) / 8
        assert found == Estimate(
            pytest.approx(0.75), pytest.approx(max(0, 0.75 - half)), pytest.approx(0.75 + half)
        )

    def test_a_single_cluster_has_no_interval(self) -> None:
        assert ratio([3], [4], SHARE) == Estimate(0.75)
        assert ratio([3, 0], [4, 0], SHARE) == Estimate(0.75)

    def test_nothing_below_the_line_is_unknown(self) -> None:
        assert ratio([0, 0], [0, 0], SHARE) is None
        assert ratio([], [], SHARE) is None

    def test_a_share_stays_one(self) -> None:
        found = ratio([0, 2, 2], [2, 2, 2], SHARE)

        assert found is not None
        assert (found.low, found.high) == (0.0, 1.0)

    @given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), min_size=2, max_size=20))
    def test_the_value_lies_in_its_interval(self, clusters: list[tuple[int, int]]) -> None:
        found = ratio([y for y, _ in clusters], [x for _, x in clusters], (0.0, math.inf))

        assert found is not None
        assert found.low is not None
        assert found.high is not None
        assert found.low <= found.value <= found.high

    def test_it_covers_where_answers_differ(self) -> None:
        """Each answer has an acceptance of its own, so its steps are no independent draws: an
        interval over steps would cover 59 % here.
        """
        rng = np.random.default_rng(5)
        hits = naive = 0
        experiments = 1000
        for _ in range(experiments):
            drafts = rng.integers(10, 60, size=24)
            accepted = rng.binomial(drafts, rng.beta(4, 4, size=24))
            found = ratio(accepted.tolist(), drafts.tolist(), SHARE)
            assert found is not None
            assert found.low is not None
            assert found.high is not None
            hits += found.low <= 0.5 <= found.high
            half = 1.96 * math.sqrt(found.value * (1 - found.value) / int(drafts.sum()))
            naive += abs(found.value - 0.5) <= half

        assert hits / experiments >= 0.93
        assert naive / experiments < 0.7
