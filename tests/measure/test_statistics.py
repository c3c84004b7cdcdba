from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import FailureKind, RoundError
from tuner.measure.figures import figures
from tuner.measure.statistics import (
    log_ratio,
    objective_value,
    pairs_needed,
    stein_interval,
)
from tuner.records import Counters, Figures, RequestSample, Round
from tuner.spec import Load, Objective

OBJECTIVES: tuple[Objective, ...] = (
    "tpot_p50",
    "e2e_p95",
    "output_throughput",
    "cost_per_million_output_tokens",
)
POSITIVE = st.floats(min_value=1e-3, max_value=1e6)
EXPERIMENTS = 4000


def measured(ms: float = 10.0, tok_s: float = 100.0) -> Figures:
    """A round in which every latency is ``ms``."""
    sample = RequestSample("p", "chat", 0.0, ms, 2 * ms, 5, 2, "length")
    found = figures(Round(Load(concurrency=1), (sample,), 1.0), Counters())
    return replace(found, tpot_ms_p50=ms, e2e_ms_p95=ms, output_throughput_tok_s=tok_s)


class TestLogRatio:
    @pytest.mark.parametrize("objective", OBJECTIVES)
    @given(POSITIVE, POSITIVE)
    def test_swapping_the_arms_turns_the_sign(
        self, objective: Objective, one: float, other: float
    ) -> None:
        a, b = measured(one, one), measured(other, other)

        assert log_ratio(a, b, objective) == pytest.approx(-log_ratio(b, a, objective), abs=1e-12)

    @pytest.mark.parametrize("objective", OBJECTIVES)
    def test_positive_is_better(self, objective: Objective) -> None:
        slow, fast = measured(ms=20, tok_s=100), measured(ms=10, tok_s=200)

        assert log_ratio(slow, fast, objective) == pytest.approx(math.log(2))

    @given(POSITIVE, POSITIVE)
    def test_cost_is_compared_as_throughput(self, one: float, other: float) -> None:
        arms = measured(tok_s=one), measured(tok_s=other)

        assert log_ratio(*arms, "cost_per_million_output_tokens") == log_ratio(
            *arms, "output_throughput"
        )

    def test_case_1_high_acceptance_is_no_speed_up(self) -> None:
        """Acceptance 96.6 %, acceptance length 1.97, and yet 342 -> 128 tok/s (vllm#39680)."""
        off = replace(measured(tok_s=342.0), acceptance_length=None)
        on = replace(measured(tok_s=128.0), acceptance_length=1.966)

        assert math.exp(log_ratio(off, on, "output_throughput")) == pytest.approx(128 / 342)

    @pytest.mark.parametrize("tpot", [None, 0.0])
    def test_a_round_without_the_figure(self, tpot: float | None) -> None:
        with pytest.raises(RoundError, match="tpot_p50") as caught:
            objective_value(replace(measured(), tpot_ms_p50=tpot), "tpot_p50")

        assert caught.value.failure.kind is FailureKind.REQUESTS_FAILED


class TestStein:
    def test_all_pairs_first_is_the_textbook_interval(self) -> None:
        """Mean 3, deviation sqrt(2.5), t(0.975, 4) = 2.776445."""
        found = stein_interval([1, 2, 3, 4, 5], 5)

        assert found == pytest.approx((3, 1.036757, 4.963243), abs=1e-6)

    def test_what_the_rule_says(self) -> None:
        """Deviation 0.1, t(0.975, 2) = 4.302653: (4.302653 * 0.1 / log 1.1)^2 = 20.38."""
        assert pairs_needed([0.0, 0.1, 0.2], precision=0.1) == 21

    def test_never_fewer_than_there_are(self) -> None:
        assert pairs_needed([0.5, 0.5, 0.5], precision=0.01) == 3
        assert stein_interval([0.5, 0.5, 0.5], 3) == (0.5, 0.5, 0.5)

    @given(st.lists(st.floats(-0.5, 0.5), min_size=2, max_size=6), st.floats(0.01, 0.4), st.data())
    def test_the_promised_half_width_is_kept(
        self, first: list[float], precision: float, data: st.DataObject
    ) -> None:
        more = min(pairs_needed(first, precision), 50_000) - len(first)
        later = [data.draw(st.floats(-0.5, 0.5))] * more

        mean, low, high = stein_interval([*first, *later], len(first))

        if more + len(first) < 50_000:
            assert high - mean <= math.log1p(precision) + 1e-9
        assert mean - low == pytest.approx(high - mean, abs=1e-9)

    def test_later_pairs_do_not_change_the_width(self) -> None:
        _, low, high = stein_interval([0.1, 0.2, 0.3, 0.2, 0.2], 3)
        _, other_low, other_high = stein_interval([0.1, 0.2, 0.3, 9.0, -9.0], 3)

        assert high - low == pytest.approx(other_high - other_low)

    @pytest.mark.parametrize(("sigma", "at_most"), [(0.05, 10**6), (0.15, 12)])
    def test_covers_at_least_at_its_nominal_rate(self, sigma: float, at_most: int) -> None:
        """Also where a limit cuts the rule short: the number of pairs still hangs on s alone."""
        rng = np.random.default_rng(2)
        truth, hits = 0.2, 0
        for _ in range(EXPERIMENTS):
            first = rng.normal(truth, sigma, size=4).tolist()
            needed = min(pairs_needed(first, precision=0.05), at_most)
            pairs = [*first, *rng.normal(truth, sigma, size=needed - len(first)).tolist()]
            _, low, high = stein_interval(pairs, len(first))
            hits += low <= truth <= high

        assert hits / EXPERIMENTS >= 0.95 - 0.012

    def test_stopping_when_it_looks_good_would_not_cover(self) -> None:
        """Why the rule looks at the spread once: t intervals tried after each pair miss more."""
        rng = np.random.default_rng(3)
        hits = 0
        for row in rng.normal(0.0, 0.05, size=(EXPERIMENTS // 10, 12)).tolist():
            looks = (stein_interval(row[:n], n) for n in range(3, 13))
            hits += all(low <= 0 <= high for _, low, high in looks)

        assert hits / (EXPERIMENTS // 10) < 0.9
