import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.predict.baseline_steps import LoadCost
from tuner.predict.step_time import DISCREPANCY, Drafter, Point, StepTimes
from tuner.spec import Load

ALONE, FOUR = Load(concurrency=1), Load(concurrency=4)
VERIFY = {ALONE: LoadCost(0.1), FOUR: LoadCost(0.25)}
BIG, SMALL, NONE = Drafter("big", 0.3), Drafter("small", 0.1), Drafter("ngram", 0.0)


def ratio(drafter: Drafter, k: float, verify: float = 0.12, draft: float = 1.3) -> float:
    return 1.04 + k * (verify + (drafter.cost or 0) * draft)


def point(drafter: Drafter, k: float, value: float | None = None, load: Load = ALONE) -> Point:
    return Point(drafter, k, load, ratio(drafter, k) if value is None else value, 0.02)


def test_before_anything_is_measured_the_priors_speak_and_are_unsure() -> None:
    guess = StepTimes(VERIFY, []).ratio(BIG, 4, ALONE)
    assert guess.value == pytest.approx(1 + 0.05 + 4 * (0.1 + 0.3))
    assert guess.sd > 0.15


def test_two_points_fix_a_drafts_line() -> None:
    model = StepTimes(VERIFY, [point(BIG, 1), point(BIG, 6)])
    for k in (1, 2, 3, 4, 6):
        found = model.ratio(BIG, k, ALONE)
        assert found.value == pytest.approx(ratio(BIG, k), rel=0.02)
        assert found.sd < 0.05


def test_what_one_draft_cost_says_what_another_will() -> None:
    guess = StepTimes(VERIFY, []).ratio(SMALL, 4, ALONE)
    taught = StepTimes(VERIFY, [point(BIG, 1), point(BIG, 6), point(NONE, 4)])
    found = taught.ratio(SMALL, 4, ALONE)
    truth = ratio(SMALL, 4)
    assert abs(math.log(found.value / truth)) < abs(math.log(guess.value / truth))
    assert found.sd < guess.sd


def test_a_measured_point_off_its_line_stays_where_it_was_measured() -> None:
    """Graph sizes add steps: the point is real, its neighbours are not moved as far."""
    off = point(BIG, 3, 1.08 * ratio(BIG, 3))
    sure = Point(off.drafter, off.drafted, off.load, off.ratio, 0.002)
    others = [Point(BIG, k, ALONE, ratio(BIG, k), 0.002) for k in (1, 2, 4, 6)]
    model = StepTimes(VERIFY, [sure, *others])
    assert model.ratio(BIG, 3, ALONE).value == pytest.approx(off.ratio, rel=0.01)
    assert model.ratio(BIG, 5, ALONE).value == pytest.approx(ratio(BIG, 5), rel=0.03)


def test_the_interval_grows_with_how_wrong_the_line_was() -> None:
    def model(bend: float) -> StepTimes:
        bent = [ratio(BIG, k) * (1 + bend * (-1) ** k) for k in (1, 2, 3, 4, 6)]
        points = zip((1, 2, 3, 4, 6), bent, strict=True)
        return StepTimes(VERIFY, [Point(BIG, k, ALONE, value, 0.005) for k, value in points])

    assert model(0.0).discrepancy < DISCREPANCY < model(0.08).discrepancy
    assert model(0.0).ratio(BIG, 5, ALONE).sd < model(0.08).ratio(BIG, 5, ALONE).sd


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([BIG, SMALL, NONE, Drafter("unknown", None)]),
            st.integers(1, 16),
            st.sampled_from([ALONE, FOUR]),
            st.floats(0.5, 20),
            st.floats(0.001, 0.5),
        ),
        max_size=8,
    )
)
def test_whatever_was_measured_predictions_are_numbers(measured) -> None:
    model = StepTimes(VERIFY, [Point(*each) for each in measured])
    for drafter in (BIG, NONE, Drafter("new", None)):
        found = model.ratio(drafter, 3, FOUR)
        assert math.isfinite(found.mean)
        assert 0 < found.sd < math.inf
