"""Optuna samplers over a finite space of which every setting is explored once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from tuner.records import Setting

DRAWS = 64
"""How often it is asked before the unexplored setting nearest to its last proposal is taken."""

ABSENT = "-"
"""Value of a parameter that a setting does not have."""


def parameters(setting: Setting) -> dict[str, str | int]:
    """A setting as Optuna parameters: ``candidate``, ``k``, and each further key as text."""
    config = setting.speculative_config or {"method": "off"}
    own = {"method", "model", "num_speculative_tokens"}
    candidate = " ".join(str(config[key]) for key in ("method", "model") if key in config)
    others = {name: str(value) for name, value in config.items() if name not in own}
    return {"candidate": candidate, "k": setting.k, **others}


def distributions(settings: Sequence[Setting]) -> dict[str, BaseDistribution]:
    """One distribution per parameter, wide enough for every setting of the space."""
    rows = [parameters(setting) for setting in settings]
    names = dict.fromkeys(name for row in rows for name in row if name != "k")
    space: dict[str, BaseDistribution] = {"k": IntDistribution(0, max(s.k for s in settings))}
    for name in names:
        choices = tuple(dict.fromkeys(str(row.get(name, ABSENT)) for row in rows))
        space[name] = CategoricalDistribution(choices)
    return space


def full_parameters(setting: Setting, names: Collection[str]) -> dict[str, str | int]:
    """``parameters`` with every name of the space in it."""
    own = parameters(setting)
    return {name: own.get(name, ABSENT) for name in names}


class _SettingsSampler(BaseSampler):
    """Proposes whole settings: all parameters at once."""

    def __init__(self, settings: Sequence[Setting]) -> None:
        self._space = distributions(settings)

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        del study, trial
        return self._space


class RankedSampler(_SettingsSampler):
    """Proposes the first of the settings it is given: they are ranked before it is asked."""

    def __init__(self, settings: Sequence[Setting], ranked: Sequence[Setting]) -> None:
        super().__init__(settings)
        self._wanted = full_parameters(ranked[0], self._space)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        del study, trial, search_space
        return dict(self._wanted)

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        del study, trial, param_distribution
        return self._wanted[param_name]


class UnexploredSampler(_SettingsSampler):
    """Proposes only settings nobody has explored; one of Optuna's samplers decides which of them.

    In a space of some dozen settings TPE proposes the same ones again and again. It is drawn from
    until it names an unexplored one; failing that, the unexplored one nearest to what it wants.
    """

    def __init__(
        self, settings: Sequence[Setting], unexplored: Sequence[Setting], inner: BaseSampler
    ) -> None:
        super().__init__(settings)
        self._unexplored = [full_parameters(s, self._space) for s in unexplored]
        self._inner = inner

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        wanted: dict[str, Any] = {}
        for _ in range(DRAWS):
            together = self._inner.sample_relative(study, trial, search_space)
            wanted = {
                name: together[name]
                if name in together
                else self._inner.sample_independent(study, trial, name, distribution)
                for name, distribution in search_space.items()
            }
            if wanted in self._unexplored:
                return wanted
        nearest = min(self._unexplored, key=lambda row: _distance(row, wanted))
        return dict(nearest)

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        return self._inner.sample_independent(study, trial, param_name, param_distribution)


def _distance(row: dict[str, str | int], wanted: dict[str, Any]) -> tuple[int, int]:
    """Differing categories first, then the distance in k."""
    categories = sum(row[name] != wanted.get(name) for name in row if name != "k")
    return categories, abs(int(row["k"]) - int(wanted.get("k", 0)))
