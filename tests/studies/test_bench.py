"""Both arms are warm when they are measured; pairs that can't be compared are measured again."""

from contextlib import ExitStack

import pytest

from studies import bench
from studies.arm import started
from studies.events import EngineReady, RoundStarting, Warned
from studies.loop import optimize
from tuner.errors import Failure, FailureKind, IncomparableError, RoundError
from tuner.measure.statistics import log_ratio
from tuner.records import OFF, Purpose


def refusing(times: int):
    """Refuses the first comparisons as the real check does where a client was late."""
    left = iter(range(times))

    def check(*_: object) -> None:
        if next(left, None) is not None:
            raise IncomparableError("the client sent a request late")

    return check


def test_a_pair_that_cannot_be_compared_is_dropped_and_measured_again(
    fake_study, opened, settings, monkeypatch
):
    monkeypatch.setattr(bench, "require_comparable", refusing(2))
    events = []
    spec = fake_study(candidates=[{"method": "suffix", "k": 4}])
    [answer] = optimize(spec, opened, settings, events.append)
    assert answer.confirmed
    dropped = [e for e in events if isinstance(e, Warned) and "dropped" in e.text]
    assert len(dropped) == 2


def test_a_pair_that_does_not_tell_the_objective_is_measured_again(
    fake_study, opened, settings, monkeypatch
):
    """All tokens of a short answer in one read: its TPOT is 0 and has no ratio."""
    left = iter(range(1))

    def told(*arms: object) -> float:
        if next(left, None) is not None:
            raise RoundError(Failure(FailureKind.REQUESTS_FAILED, "tpot_p50 can't be told"))
        return log_ratio(*arms)

    monkeypatch.setattr(bench, "log_ratio", told)
    events = []
    spec = fake_study(candidates=[{"method": "suffix", "k": 4}])
    [answer] = optimize(spec, opened, settings, events.append)
    assert answer.confirmed
    [dropped] = [e.text for e in events if isinstance(e, Warned) and "dropped" in e.text]
    assert "tpot_p50 can't be told" in dropped


def test_where_pairs_go_on_being_incomparable_the_study_ends_with_the_reason(
    fake_study, opened, settings, monkeypatch
):
    events = []
    monkeypatch.setattr(bench, "require_comparable", refusing(100))
    with pytest.raises(IncomparableError, match="late"):
        optimize(fake_study(), opened, settings, events.append)


def test_the_baseline_which_was_idle_is_warmed_up_again_beside_each_candidate(
    fake_study, opened, settings
):
    events = []
    optimize(fake_study(search="random"), opened, settings, events.append)
    beside = []
    for event in events:
        if isinstance(event, EngineReady) and event.setting != OFF:
            beside.append(0)
        elif isinstance(event, RoundStarting) and event.setting == OFF and beside:
            beside[-1] += event.what == "warm-up"
    assert len(beside) >= 3, "two are explored, one is confirmed"
    assert set(beside) == {1}


def test_candidates_share_the_rounds_of_the_baseline_which_stand_in_their_middle(make_run, events):
    run = make_run(candidates=[{"method": "suffix", "k": [2, 4, 6]}])
    load = run.spec.loads[0]
    settings = [setting for setting in run.ledger.settings if not setting.is_off]
    with bench.Bench(run, Purpose.EXPLORE) as up_beside, ExitStack() as up:
        arms = [up.enter_context(started(run, setting, Purpose.EXPLORE)) for setting in settings]
        for pair in range(2):
            up_beside.measure_beside(arms, load, pair)
    first, second, third = settings
    rounds = [e.setting for e in events if isinstance(e, RoundStarting) and e.what != "warm-up"]
    assert rounds == [first, OFF, second, third, third, second, OFF, first]
    pairs = [run.ledger.pairs(setting, load, Purpose.EXPLORE) for setting in settings]
    assert [len(of_setting) for of_setting in pairs] == [2, 2, 2]
    for of_round in zip(*pairs, strict=True):
        assert len({pair.baseline.figures.tpot_ms_p50 for pair in of_round}) == 1
        assert len({pair.candidate.figures.tpot_ms_p50 for pair in of_round}) == 3
    assert [pair.baseline.order for pair in (of_setting[0] for of_setting in pairs)] == [1, 0, 0]
