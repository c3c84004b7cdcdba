"""A published table: acceptance lengths and TPOT by k, of which two k are given and four are not.

TPOT in ms, plain 7.07; k = 2 to 7. It has one draft, one load, and no say in our priors.
"""

import math

import pytest

from studies.confirm import finalist
from studies.ledger import Outcome
from tuner.predict.baseline_steps import LoadCost
from tuner.predict.forecast import Forecast, Seen
from tuner.records import OFF, Estimate, Screen, Setting
from tuner.spec import Load

LENGTHS = {2: 2.36, 3: 2.79, 4: 3.08, 5: 3.32, 6: 3.46, 7: 3.54}
TPOT_MS = {2: 4.32, 3: 4.09, 4: 4.05, 5: 4.13, 6: 4.20, 7: 4.29}
PLAIN_MS = 7.07
LOAD = Load(concurrency=1)


def setting(k: int) -> Setting:
    return Setting.of({"method": "eagle3", "model": "head", "num_speculative_tokens": k})


@pytest.fixture
def forecast() -> Forecast:
    screens = {
        setting(k): Screen(setting(k), "context", Estimate(length, length * 0.99, length * 1.01))
        for k, length in LENGTHS.items()
    }
    seen = [
        Seen(setting(k), LOAD, LENGTHS[k] * TPOT_MS[k] / PLAIN_MS, 0.005, LENGTHS[k], 1.0, 1e5)
        for k in (2, 7)
    ]
    return Forecast(screens, {LOAD: LoadCost(0.01)}, seen)


@pytest.mark.parametrize("k", [3, 4, 5, 6])
def test_two_points_predict_the_other_four_within_4_percent(forecast, k) -> None:
    predicted_ms = PLAIN_MS / forecast.speedup(setting(k), LOAD).value
    assert predicted_ms == pytest.approx(TPOT_MS[k], rel=0.04)


def test_3_to_5_is_a_plateau_and_its_smallest_is_chosen(forecast) -> None:
    speedups = {k: forecast.speedup(setting(k), LOAD).mean for k in LENGTHS}
    best = max(speedups.values())
    assert [k for k, value in speedups.items() if value >= best - math.log(1.03)] == [3, 4, 5]
    outcomes = {setting(k): Outcome(setting(k), {LOAD: value}) for k, value in speedups.items()}
    assert finalist({OFF: Outcome(OFF, {LOAD: 0.0}), **outcomes}, LOAD) == setting(3)
