import math
from dataclasses import replace

from studies import loop
from studies.confirm import finalist, runner_up
from studies.events import Confirmed
from studies.ledger import Outcome
from tuner.errors import Failure, FailureKind
from tuner.measure.sequential import Decision
from tuner.records import OFF, Setting
from tuner.spec import Load

ALONE = Load(concurrency=1)


def suffix(k: int) -> Setting:
    return Setting.of({"method": "suffix", "num_speculative_tokens": k})


def explored(speeds: dict[int, float], off: float) -> dict[Setting, Outcome]:
    known = {suffix(k): Outcome(suffix(k), {ALONE: math.log(v / off)}) for k, v in speeds.items()}
    return {OFF: Outcome(OFF, {ALONE: 0.0}), **known}


def test_a_plateau_goes_to_the_smaller_k() -> None:
    """A published sweep: tok/s off 24.6, then a plateau from k=2 to k=4
    (kyuz0/amd-strix-halo-vllm-toolboxes#53)."""
    speeds = {1: 28.2, 2: 30.9, 3: 29.9, 4: 31.2, 5: 27.5, 6: 26.8}
    assert finalist(explored(speeds, 24.6), ALONE) == suffix(2)


def test_a_clear_winner_wins_whatever_its_k() -> None:
    assert finalist(explored({1: 28.0, 6: 40.0}, 24.6), ALONE) == suffix(6)


def test_failures_and_off_are_no_finalists() -> None:
    failed = Outcome(suffix(3), {}, Failure(FailureKind.OUT_OF_MEMORY, "no room"))
    only_failures = {OFF: Outcome(OFF, {ALONE: 0.0}), suffix(3): failed}
    assert finalist(only_failures, ALONE) is None
    assert finalist(explored({2: 10.0}, 24.6) | only_failures, ALONE) == suffix(2)


def faster(speedup: float) -> Decision:
    ratio = math.log(speedup)
    return Decision(ratio, ratio - 0.1, ratio + 0.1, 0.95, "decided")


NOT_SHOWN = Decision(0.3, -0.1, 0.7, 0.95, "limit")


class TestRunnerUp:
    """Explored: k=2 1.5 times off's speed, k=6 1.4, k=1 1.1."""

    known = explored({1: 11.0, 2: 15.0, 6: 14.0}, 10.0)

    def test_the_finalist_that_came_out_well_below_what_came_next(self) -> None:
        assert runner_up(self.known, ALONE, suffix(2), faster(1.3)) == suffix(6)

    def test_none_where_it_came_out_near_it_or_above(self) -> None:
        assert runner_up(self.known, ALONE, suffix(2), faster(1.35)) is None
        assert runner_up(self.known, ALONE, suffix(2), faster(1.6)) is None

    def test_one_that_was_not_shown_to_be_faster_counts_as_off_whatever_its_mean(self) -> None:
        assert runner_up(self.known, ALONE, suffix(2), NOT_SHOWN) == suffix(6)
        assert runner_up(explored({1: 11.0, 2: 15.0}, 10.0), ALONE, suffix(2), NOT_SHOWN)

    def test_none_that_is_itself_not_clearly_faster_than_off(self) -> None:
        slow = explored({1: 10.4, 2: 10.45}, 10.0)
        assert runner_up(slow, ALONE, suffix(2), NOT_SHOWN) is None

    def test_none_where_nothing_else_ran(self) -> None:
        assert runner_up(explored({2: 15.0}, 10.0), ALONE, suffix(2), NOT_SHOWN) is None


def test_a_finalist_that_was_only_lucky_gives_way(fake_study, opened, settings, monkeypatch):
    """ngram, which the fake makes no faster, is made to look three times as fast."""

    def lucky(_now, outcomes, _loads):
        return {
            setting: replace(outcome, log_ratios=dict.fromkeys(outcome.log_ratios, math.log(3)))
            if setting.method == "ngram"
            else outcome
            for setting, outcome in outcomes.items()
        }

    monkeypatch.setattr(loop, "smoothed", lucky)
    events = []
    [answer] = loop.optimize(fake_study(search="random"), opened, settings, events.append)
    confirmed = [e.comparison for e in events if isinstance(e, Confirmed)]
    assert [c.setting.method for c in confirmed] == ["ngram", "suffix"]
    assert confirmed[0].log_ratio < confirmed[1].log_ratio
    assert answer.speculative_config is not None
    assert answer.speculative_config["method"] == "suffix"
    assert answer.confirmed
    assert [c.setting for c in opened.comparisons("fake")] == [c.setting for c in confirmed]
