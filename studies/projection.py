"""Optuna's view of a study: a projection of our store, which can be deleted and made again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Self

import optuna
from optuna.distributions import BaseDistribution
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from studies.ledger import Outcome
from studies.sampler import distributions, full_parameters
from studies.search import sampler
from tuner.errors import Failure
from tuner.records import Setting
from tuner.spec import digest

SETTING = "setting"
LABEL = "label"
FAILURE = "failure"
RUNS = "runs"
"""Name of the constraint that a failed setting breaks, and of the attribute that shows it."""
INFEASIBLE = 1.0
"""Any value above 0 breaks a constraint."""


def make_optuna_tables(url: str) -> None:
    """Creates or checks Optuna's schema. Several processes must not do this at once."""
    with _storage(url):
        pass


@contextmanager
def _storage(url: str) -> Iterator[RDBStorage]:
    storage = RDBStorage(url, engine_kwargs={"pool_pre_ping": True})
    try:
        yield storage
    finally:
        storage.remove_session()
        storage.engine.dispose()


class Projection:
    """Tells Optuna what the store knows and asks it what to explore next.

    An Optuna study is named ``<study>:<hash of its settings>``: a categorical's choices cannot
    change in a living one, so another space is another study, filled from the store.
    """

    def __init__(self, study: optuna.Study, settings: tuple[Setting, ...]) -> None:
        self._study = study
        self._settings = settings
        self._space: dict[str, BaseDistribution] = distributions(settings)
        self._asked: Trial

    @classmethod
    @contextmanager
    def open(
        cls,
        url: str,
        name: str,
        settings: tuple[Setting, ...],
        outcomes: Mapping[Setting, Outcome],
    ) -> Iterator[Self]:
        """Brings Optuna in line with the store: tells what is finished, fails what is not."""
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        space = digest([setting.key for setting in settings])[:8]
        with _storage(url) as storage:
            study = optuna.create_study(
                storage=storage,
                study_name=f"{name}:{space}",
                direction="maximize",
                load_if_exists=True,
            )
            projection = cls(study, settings)
            projection._reconcile(outcomes)
            yield projection

    def _reconcile(self, outcomes: Mapping[Setting, Outcome]) -> None:
        for trial in self._study.get_trials(deepcopy=False):
            if not trial.state.is_finished():
                self._study.tell(trial.number, state=TrialState.FAIL)
        self.catch_up(outcomes)

    def catch_up(self, outcomes: Mapping[Setting, Outcome]) -> None:
        """Tells what is finished and was not asked for: one engine may measure several settings."""
        told = {
            trial.user_attrs.get(SETTING)
            for trial in self._study.get_trials(deepcopy=False)
            if trial.state.is_finished() and trial.state is not TrialState.FAIL
        }
        for setting, outcome in outcomes.items():
            if setting.key not in told:
                self._study.add_trial(self._past(outcome))

    def _past(self, outcome: Outcome) -> FrozenTrial:
        failed = outcome.failure is not None
        trial = create_trial(
            state=TrialState.PRUNED if failed else TrialState.COMPLETE,
            value=None if failed else outcome.score,
            params=dict(full_parameters(outcome.setting, self._space)),
            distributions=self._space,
        )
        _annotate(trial, outcome)
        return trial

    def ask(self, wanted: Sequence[Setting], search: str) -> Setting:
        """The next setting to explore; its trial runs until ``tell`` or ``tell_retry``.

        One of ``wanted``, as the ``search`` (StudySpec.search) chooses.
        """
        self._study.sampler = sampler(search, self._settings, wanted, seed=len(self._study.trials))
        self._asked = self._study.ask(self._space)
        params = self._asked.params
        setting = next(s for s in wanted if full_parameters(s, self._space) == params)
        self._asked.set_user_attr(SETTING, setting.key)
        self._asked.set_user_attr(LABEL, setting.label)
        return setting

    def tell(self, outcome: Outcome) -> None:
        """The asked setting is finished: its mean log speed-up, or pruned with a constraint."""
        _annotate(self._asked, outcome)
        if outcome.failure is None:
            self._study.tell(self._asked, outcome.score)
        else:
            self._study.tell(self._asked, state=TrialState.PRUNED)

    def tell_retry(self, failure: Failure) -> None:
        """The machine's fault, perhaps: the trial fails and the setting stays unexplored."""
        self._asked.set_user_attr(FAILURE, str(failure))
        self._study.tell(self._asked, state=TrialState.FAIL)


def _annotate(trial: Trial | FrozenTrial, outcome: Outcome) -> None:
    """A failure teaches samplers as a broken constraint, shown as a user attribute too."""
    trial.set_user_attr(SETTING, outcome.setting.key)
    trial.set_user_attr(LABEL, outcome.setting.label)
    for load, ratio in outcome.log_ratios.items():
        trial.set_user_attr(f"log speed-up at {load}", ratio)
    if outcome.failure is not None:
        trial.set_user_attr(FAILURE, str(outcome.failure))
        trial.set_user_attr(RUNS, INFEASIBLE)
        trial.set_constraint(RUNS, INFEASIBLE)
