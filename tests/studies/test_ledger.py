import math
from dataclasses import replace

import pytest

from studies.ledger import Pair
from tests.factories import figures, pair


def with_tpot(measurement, tpot: float):
    return replace(measurement, figures=figures(tpot_ms_p50=tpot))


def test_where_starts_alternate_a_linear_drift_cancels_and_is_told() -> None:
    """A B A on a machine that gets slower by 10 % from round to round, the candidate twice as
    fast."""
    baseline, candidate = pair()
    before = with_tpot(baseline, 100.0)
    after = with_tpot(replace(baseline, id="again"), 100.0 * 1.1**2)
    measured = Pair(before, with_tpot(candidate, 50.0 * 1.1), after)
    assert measured.log_ratio("tpot_p50") == pytest.approx(math.log(2))
    assert measured.drift("tpot_p50") == pytest.approx(2 * math.log(1.1))
    assert measured.baselines == (before, after)


def test_side_by_side_nothing_drifts_between_two_rounds_of_one_baseline() -> None:
    measured = Pair(*pair())
    assert measured.drift("tpot_p50") == 0.0
    assert len(measured.baselines) == 1
