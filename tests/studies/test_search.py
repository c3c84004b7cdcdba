import math

import pytest

from studies.ledger import Outcome
from studies.search import contends, each_method, promising, screen_best, unexplored
from tests.predict.test_forecast import ALONE, FOUR, VERIFY, draft, ngram, screen, seen
from tuner.errors import Failure, FailureKind
from tuner.predict.forecast import Forecast
from tuner.records import OFF, Screen, Setting

LOADS = (ALONE, FOUR)
TOKENS = {
    **{draft(k, "good"): t for k, t in ((1, 1.8), (2, 2.5), (4, 3.4))},
    **{draft(k, "bad"): t for k, t in ((1, 1.2), (2, 1.25), (4, 1.26))},
    **{ngram(k): 1.15 for k in (2, 8)},
}
SCREENS: dict[Setting, Screen] = {
    s: screen(s, t, cost=0.0 if s.method == "ngram" else 0.2) for s, t in TOKENS.items()
}
SPACE = (OFF, *SCREENS)
NOTHING_RAN = {OFF: Outcome(OFF, dict.fromkeys(LOADS, 0.0))}


def ran(*settings: Setting, ratio: float = 1.6) -> tuple[Forecast, dict[Setting, Outcome]]:
    """What is known after these were measured, each step as long as ``ratio`` plain ones."""
    points = [seen(s, TOKENS[s], ratio, load) for s in settings for load in LOADS]
    outcomes = {s: Outcome(s, dict.fromkeys(LOADS, math.log(TOKENS[s] / ratio))) for s in settings}
    return Forecast(SCREENS, VERIFY, points), NOTHING_RAN | outcomes


def test_the_first_start_is_of_the_draft_that_the_screen_likes() -> None:
    wanted = promising(Forecast(SCREENS, VERIFY, []), NOTHING_RAN, SPACE, LOADS)
    assert wanted[0].proposer == draft(1, "good").proposer


def test_exploring_stops_where_nothing_could_still_win() -> None:
    forecast, outcomes = ran(draft(1, "good"), draft(2, "good"), draft(4, "good"), ngram(2))
    left = promising(forecast, outcomes, SPACE, LOADS)
    assert draft(4, "bad") not in left


def test_one_setting_is_started_even_where_all_are_predicted_to_lose() -> None:
    poor = {s: screen(s, 1.05, cost=0.9) for s in SCREENS if "bad" in s.config}
    forecast = Forecast(poor, VERIFY, [])
    assert promising(forecast, NOTHING_RAN, (OFF, *poor), LOADS)
    worst = next(iter(poor))
    points = [seen(worst, 1.05, 2.5, load) for load in LOADS]
    outcomes = NOTHING_RAN | {worst: Outcome(worst, dict.fromkeys(LOADS, -0.9))}
    assert promising(Forecast(poor, VERIFY, points), outcomes, (OFF, *poor), LOADS) == []


@pytest.mark.parametrize(
    ("kind", "siblings_left"),
    [(FailureKind.MISSING_MODEL, 0), (FailureKind.OUT_OF_MEMORY, 0), (FailureKind.DIED, 2)],
)
def test_a_broken_draft_is_dropped_whole(kind, siblings_left) -> None:
    failed = Outcome(draft(1, "good"), {}, Failure(kind, "why"))
    left = unexplored(NOTHING_RAN | {failed.setting: failed}, SPACE)
    assert sum(s.proposer == failed.setting.proposer for s in left) == siblings_left


def test_each_method_has_its_best_predicted_setting_once() -> None:
    forecast, outcomes = Forecast(SCREENS, VERIFY, []), NOTHING_RAN
    wanted = each_method(forecast, outcomes, SPACE, LOADS)
    assert sorted(s.method for s in wanted) == ["draft_model", "ngram"]
    assert wanted[0].proposer == draft(1, "good").proposer
    forecast, outcomes = ran(wanted[0])
    assert [s.method for s in each_method(forecast, outcomes, SPACE, LOADS)] == ["ngram"]


def test_the_screens_best_three_and_no_more() -> None:
    first = Forecast(SCREENS, VERIFY, [])
    best = screen_best(first, NOTHING_RAN, SPACE, LOADS)
    assert len(best) == 3
    _, outcomes = ran(*best)
    assert screen_best(first, outcomes, SPACE, LOADS) == []


@pytest.mark.parametrize(
    ("speedup", "others", "may_be_best"),
    [
        (1.50, [1.55, 1.2], True),
        (1.40, [1.55, 1.2], False),
        (0.97, [], True),
        (0.90, [], False),
        (0.97, [0.5], True),
    ],
)
def test_a_setting_near_the_best_so_far_contends_and_off_is_among_them(
    speedup, others, may_be_best
) -> None:
    assert contends(math.log(speedup), [math.log(other) for other in others]) is may_be_best
