"""When an engine whose k was set live may stand for a plain one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests import factories
from tests.measure.answers import STEP_MS, answered, counted, speculated
from tuner.errors import RoundError
from tuner.measure.agreement import MOST_PAIRS, TOLERANCE, Agreement, agreement, step_ms
from tuner.measure.measure import Measured
from tuner.measure.sequential import FIRST_PAIRS
from tuner.records import Estimate, RequestSample, Round
from tuner.spec import Load

K = 2
STEPS = ((2, 1, 0, 2), (0, 0, 1), (2, 2), (1, 0, 2, 1))


def measured(samples: Sequence[RequestSample]) -> Measured:
    round_ = Round(Load(concurrency=1), tuple(samples))
    return Measured(round_, counted(samples, K), factories.figures(), ())


def round_at(step_ms: float, steps: Sequence[Sequence[int]] = STEPS) -> Measured:
    return measured([speculated(each, step_ms=step_ms) for each in steps])


def of(*live_step_ms: float, live: Sequence[Sequence[int]] = STEPS) -> Agreement:
    """A live engine with these step times, against a plain one that always takes 20 ms."""
    return agreement(K, [(round_at(ms, live), round_at(STEP_MS)) for ms in live_step_ms])


def test_the_step_time_does_not_depend_on_what_was_accepted() -> None:
    for steps in (STEPS, ((0, 0, 0),), ((2, 2), (2, 0))):
        assert step_ms(round_at(30.0, steps)) == pytest.approx(30.0)


def test_without_the_servers_account_it_is_tpot_by_tokens_per_decode_step() -> None:
    untold = replace(
        measured([answered([1, 2, 2])]),
        figures=factories.figures(tpot_ms_p50=10.0, tokens_per_decode_step=1.5),
    )
    assert step_ms(untold) == pytest.approx(15.0)


def test_a_round_that_decoded_nothing_has_no_step_time() -> None:
    nothing = replace(measured([answered([1])]), figures=factories.figures(tpot_ms_p50=None))
    with pytest.raises(RoundError, match="can't be told from this round"):
        step_ms(nothing)


def test_equal_engines_agree_at_the_first_look() -> None:
    found = of(*[STEP_MS] * FIRST_PAIRS)
    assert found.is_settled
    assert found.agrees
    assert found.log_ratio.value == pytest.approx(0)
    assert found.step_times[0] == pytest.approx((STEP_MS, STEP_MS))


def test_before_the_first_look_nothing_is_settled() -> None:
    found = of(*[STEP_MS] * (FIRST_PAIRS - 1))
    assert not found.is_settled
    assert not found.agrees


@pytest.mark.parametrize("factor", [1 + TOLERANCE / 2, 1 - TOLERANCE / 2])
def test_a_clear_but_small_difference_is_none(factor: float) -> None:
    assert of(*[STEP_MS * factor] * FIRST_PAIRS).agrees


@pytest.mark.parametrize("factor", [1.1, 0.9])
def test_clearly_other_step_times_do_not_agree(factor: float) -> None:
    found = of(*[STEP_MS * factor] * FIRST_PAIRS)
    assert found.same_step_time is False
    assert found.is_settled
    assert not found.agrees


def test_noise_asks_for_more_pairs_and_never_agrees_by_itself() -> None:
    noisy = [STEP_MS * (1.2 if number % 2 else 0.8) for number in range(MOST_PAIRS)]
    assert not of(*noisy[:-1]).is_settled
    found = of(*noisy)
    assert found.is_settled
    assert found.same_step_time is None
    assert not found.agrees


def test_other_acceptance_does_not_agree_however_equal_the_steps() -> None:
    found = of(*[STEP_MS] * FIRST_PAIRS, live=((2, 2, 2, 2), (2, 2, 2), (2, 2), (2, 2, 2, 1)))
    assert found.same_step_time
    assert not found.same_acceptance
    assert not found.agrees


def test_what_drafted_nothing_is_not_known_to_agree() -> None:
    nothing = Agreement(1, ((20.0, 20.0),) * 5, Estimate(0.0, -0.01, 0.01), None, None)
    assert nothing.same_step_time
    assert not nothing.agrees
