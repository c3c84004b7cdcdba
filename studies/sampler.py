"""Which setting to explore next: one of each method first, then TPE's choice among the rest."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from tuner.records import Setting

DRAWS = 64
"""How often TPE is asked before the nearest unexplored setting is taken for its last proposal."""

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


def opening(settings: Sequence[Setting]) -> list[Setting]:
    """The middle k of the first candidate of each method, in the study's order."""
    by_method: dict[str, list[Setting]] = {}
    for setting in settings:
        if not setting.is_off:
            by_method.setdefault(setting.method, []).append(setting)
    chosen = []
    for group in by_method.values():
        first = (group[0].speculative_config or {}).get("model")
        same = [s for s in group if (s.speculative_config or {}).get("model") == first]
        chosen.append(sorted(same, key=lambda s: s.k)[len(same) // 2])
    return chosen


class UnexploredSampler(BaseSampler):
    """Proposes only settings nobody has explored; Optuna's TPE decides which of them.

    In a space of some dozen settings TPE proposes the same ones again and again. It is drawn from
    until it names an unexplored one; failing that, the unexplored one nearest to what it wants.
    """

    def __init__(
        self, settings: Sequence[Setting], unexplored: Sequence[Setting], seed: int
    ) -> None:
        names = distributions(settings)
        self._space = names
        self._opening = [s for s in opening(settings) if s in set(unexplored)]
        self._unexplored = [full_parameters(s, names) for s in unexplored]
        self._tpe = TPESampler(n_startup_trials=4, seed=seed)

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        del study, trial
        return self._space

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        if self._opening:
            return dict(full_parameters(self._opening[0], search_space))
        wanted: dict[str, Any] = {}
        for _ in range(DRAWS):
            wanted = self._tpe.sample_relative(study, trial, search_space)
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
        return self._tpe.sample_independent(study, trial, param_name, param_distribution)


def _distance(row: dict[str, str | int], wanted: dict[str, Any]) -> tuple[int, int]:
    """Differing categories first, then the distance in k."""
    categories = sum(row[name] != wanted.get(name) for name in row if name != "k")
    return categories, abs(int(row["k"]) - int(wanted.get("k", 0)))
