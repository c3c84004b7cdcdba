from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.factories import figures
from tuner.errors import FailureKind, RoundError
from tuner.measure.statistics import log_ratio, objective_value
from tuner.records import Figures
from tuner.spec import Objective

OBJECTIVES: tuple[Objective, ...] = (
    "tpot_p50",
    "e2e_p95",
    "output_throughput",
    "cost_per_million_output_tokens",
)
POSITIVE = st.floats(min_value=1e-3, max_value=1e6)


def measured(ms: float = 10.0, tok_s: float = 100.0) -> Figures:
    """A round in which every latency is ``ms``."""
    return figures(tpot_ms_p50=ms, e2e_ms_p95=ms, output_throughput_tok_s=tok_s)


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
