"""Optuna's own view of a database, read without leaving connections open."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import optuna
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial


@dataclass(frozen=True)
class Loaded:
    trials: list[FrozenTrial]
    best_trial: FrozenTrial


@contextmanager
def storage(url: str) -> Iterator[RDBStorage]:
    opened = RDBStorage(url)
    try:
        yield opened
    finally:
        opened.remove_session()
        opened.engine.dispose()


def names(url: str) -> list[str]:
    with storage(url) as opened:
        return optuna.get_all_study_names(opened)


def loaded(url: str, name: str | None = None) -> Loaded:
    """A study's trials; the only study where no name is given."""
    with storage(url) as opened:
        [name] = [name] if name else optuna.get_all_study_names(opened)
        study = optuna.load_study(study_name=name, storage=opened)
        return Loaded(study.trials, study.best_trial)
