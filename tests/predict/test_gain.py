import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.predict.test_forecast import ALONE, FOUR, VERIFY, draft, screen, seen
from tuner.predict.forecast import Forecast
from tuner.predict.gain import best_known, expected_improvement, rank
from tuner.predict.step_time import LogNormal

LOADS = (ALONE, FOUR)


def test_expected_improvement_of_a_sure_thing_is_its_lead() -> None:
    assert expected_improvement(LogNormal(0.3, 0.0), 0.1) == pytest.approx(0.2)
    assert expected_improvement(LogNormal(0.0, 0.0), 0.1) == 0.0
    assert expected_improvement(LogNormal(0.1, 0.05), 0.1) == pytest.approx(
        0.05 / math.sqrt(2 * math.pi)
    )


@given(st.floats(-2, 2), st.floats(0.001, 1), st.floats(-2, 2))
def test_it_is_never_negative_and_at_least_the_lead(mean, sd, best) -> None:
    found = expected_improvement(LogNormal(mean, sd), best)
    assert found >= -1e-12
    assert found >= mean - best - 1e-9


def test_the_best_screened_draft_comes_first_and_k_by_what_it_costs() -> None:
    screens = {
        s: screen(s, t, cost=0.2)
        for s, t in {
            draft(1, "good"): 1.8,
            draft(4, "good"): 3.4,
            draft(1, "bad"): 1.2,
            draft(4, "bad"): 1.25,
        }.items()
    }
    forecast = Forecast(screens, VERIFY, [])
    ranked = [gain.setting for gain in rank(forecast, [], list(screens), LOADS)]
    assert ranked[0].proposer == draft(1, "good").proposer
    assert ranked[-1] == draft(4, "bad")


def test_a_load_where_nothing_can_win_adds_nothing() -> None:
    setting = draft(4)
    forecast = Forecast({setting: screen(setting, 1.1)}, VERIFY, [])
    [gain] = rank(forecast, [], [setting], LOADS)
    assert gain.by_load[FOUR] < gain.by_load[ALONE]
    assert gain.total == pytest.approx(sum(gain.by_load.values()))


def test_off_is_among_what_has_to_be_beaten() -> None:
    slow = draft(4)
    forecast = Forecast({slow: screen(slow, 1.2)}, VERIFY, [seen(slow, 1.2, 2.4)])
    assert best_known(forecast, [slow], ALONE) == 0.0
    fast = Forecast({slow: screen(slow, 3.0)}, VERIFY, [seen(slow, 3.0, 2.0)])
    assert best_known(fast, [slow], ALONE) == pytest.approx(math.log(1.5), abs=0.03)
