from pathlib import Path

import pytest
from optuna.trial import TrialState

from studies.ledger import Outcome
from studies.projection import FAILURE, RUNS, SETTING, Projection
from tests.studies.optuna_studies import loaded, names
from tuner.errors import Failure, FailureKind
from tuner.records import OFF, Setting
from tuner.spec import Load

LOAD = Load(concurrency=1)
SETTINGS = (
    OFF,
    *(Setting.of({"method": "suffix", "num_speculative_tokens": k}) for k in (2, 4, 8)),
)
BASE = {OFF: Outcome(OFF, {LOAD: 0.0})}
OOM = Failure(FailureKind.OUT_OF_MEMORY, "no room", 1)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'optuna.db'}"


def test_off_is_a_trial_of_value_zero(url: str) -> None:
    with Projection.open(url, "s", SETTINGS, BASE):
        pass
    [trial] = loaded(url).trials
    assert (trial.value, trial.params["candidate"]) == (0.0, "off")


def test_what_is_told_is_the_mean_log_speedup(url: str) -> None:
    with Projection.open(url, "s", SETTINGS, BASE) as projection:
        setting = projection.ask(SETTINGS[1:], "predicted")
        projection.tell(Outcome(setting, {LOAD: 0.2, Load(concurrency=4): -0.1}))
    study = loaded(url)
    assert study.best_trial.value == pytest.approx(0.05)
    assert study.best_trial.user_attrs[SETTING] == setting.key


def test_a_failure_that_would_repeat_is_pruned_with_a_constraint_it_breaks(url: str) -> None:
    with Projection.open(url, "s", SETTINGS, BASE) as projection:
        setting = projection.ask(SETTINGS[1:], "predicted")
        projection.tell(Outcome(setting, {}, OOM))
    trial = loaded(url).trials[-1]
    assert trial.state is TrialState.PRUNED
    assert "out of memory" in trial.user_attrs[FAILURE]
    assert trial.user_attrs[RUNS] > 0
    assert trial.constraints[RUNS] > 0


def test_a_failure_of_the_machine_fails_the_trial_and_teaches_nothing(url: str) -> None:
    with Projection.open(url, "s", SETTINGS, BASE) as projection:
        projection.ask(SETTINGS[1:], "predicted")
        projection.tell_retry(Failure(FailureKind.PORT_TAKEN, "taken"))
    assert loaded(url).trials[-1].state is TrialState.FAIL


def test_a_trial_left_running_is_failed_when_the_study_is_taken_up_again(url: str) -> None:
    """A killed worker's trial must not stay RUNNING for ever (optuna#3215)."""
    with Projection.open(url, "s", SETTINGS, BASE) as projection:
        projection.ask(SETTINGS[1:], "predicted")
    assert loaded(url).trials[-1].state is TrialState.RUNNING
    with Projection.open(url, "s", SETTINGS, BASE):
        pass
    assert [t.state for t in loaded(url).trials] == [TrialState.COMPLETE, TrialState.FAIL]


def test_what_the_store_knows_and_optuna_does_not_is_told_once(url: str) -> None:
    known = BASE | {
        SETTINGS[1]: Outcome(SETTINGS[1], {LOAD: 0.3}),
        SETTINGS[2]: Outcome(SETTINGS[2], {}, OOM),
    }
    for _ in range(2):
        with Projection.open(url, "s", SETTINGS, known):
            pass
    study = loaded(url)
    assert [t.state for t in study.trials] == [
        TrialState.COMPLETE,
        TrialState.COMPLETE,
        TrialState.PRUNED,
    ]
    assert study.best_trial.value == pytest.approx(0.3)


def test_another_space_is_another_optuna_study_filled_with_the_old_trials(url: str) -> None:
    known = BASE | {SETTINGS[1]: Outcome(SETTINGS[1], {LOAD: 0.3})}
    wider = (*SETTINGS, Setting.of({"method": "ngram", "num_speculative_tokens": 2}))
    for space in (SETTINGS, wider):
        with Projection.open(url, "s", space, known):
            pass
    assert len(names(url)) == 2
    for name in names(url):
        assert [t.value for t in loaded(url, name).trials] == [0.0, 0.3]
