"""What to start next: the settings worth a start, the most promising first; none ends it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from optuna.samplers import BaseSampler, RandomSampler, TPESampler

from studies.ledger import Outcome
from studies.sampler import RankedSampler, UnexploredSampler
from tuner.errors import FailureKind
from tuner.predict.forecast import Forecast
from tuner.predict.gain import WORTH_A_START, rank
from tuner.records import Setting
from tuner.spec import Load

SCREEN_BEST = 3
"""Starts of the search that trusts the first forecast."""

CLOSE = math.log(1.05)
"""About what the noise of two pairs makes of two equal settings."""

BREAKS_THE_DRAFT = frozenset(
    {
        FailureKind.BAD_FLAG,
        FailureKind.MISSING_MODEL,
        FailureKind.GATED_MODEL,
        FailureKind.MISSING_PACKAGE,
        FailureKind.OUT_OF_MEMORY,
        FailureKind.KV_CACHE_TOO_SMALL,
        FailureKind.REQUEST_REJECTED,
    }
)
"""Failures that another k of the same draft would meet again."""


def promising(
    forecast: Forecast,
    outcomes: Mapping[Setting, Outcome],
    settings: Sequence[Setting],
    loads: Sequence[Load],
) -> list[Setting]:
    """By expected improvement over all loads; none once no start is expected to gain enough.

    One setting is always started: off wins by measurements, not by predictions alone.
    """
    ran = explored(outcomes)
    gains = rank(forecast, ran, unexplored(outcomes, settings), loads)
    worth = [gain for gain in gains if gain.most >= WORTH_A_START]
    return [gain.setting for gain in worth or ([] if ran else gains[:1])]


def each_method(
    forecast: Forecast,
    outcomes: Mapping[Setting, Outcome],
    settings: Sequence[Setting],
    loads: Sequence[Load],
) -> list[Setting]:
    """The best predicted setting of each method of which none ran yet."""
    ran = explored(outcomes)
    left = unexplored(outcomes, settings)
    methods = {setting.method for setting in ran}
    ranked = [gain.setting for gain in rank(forecast, (), left, loads)]
    first = {setting.method: setting for setting in reversed(ranked)}
    return [s for s in ranked if s.method not in methods and first[s.method] == s]


def screen_best(
    first: Forecast,
    outcomes: Mapping[Setting, Outcome],
    settings: Sequence[Setting],
    loads: Sequence[Load],
) -> list[Setting]:
    """What is left of the three that the forecast ranked first before anything was started."""
    candidates = [setting for setting in settings if not setting.is_off]
    best = [gain.setting for gain in rank(first, (), candidates, loads)[:SCREEN_BEST]]
    return [setting for setting in best if setting not in outcomes]


def contends(log_ratio: float, others: Iterable[float]) -> bool:
    """Whether a setting may be the best at a load, by the log speed-ups of what else ran there.

    Off's 0 is among what it has to come close to.
    """
    return log_ratio > max([0.0, *others]) - CLOSE


def unexplored(outcomes: Mapping[Setting, Outcome], settings: Sequence[Setting]) -> list[Setting]:
    """Neither measured nor failed, and of no draft that is broken."""
    broken = {
        setting.proposer
        for setting, outcome in outcomes.items()
        if outcome.failure is not None and outcome.failure.kind in BREAKS_THE_DRAFT
    }
    return [s for s in settings if s not in outcomes and s.proposer not in broken]


def explored(outcomes: Mapping[Setting, Outcome]) -> list[Setting]:
    """What ran, off aside."""
    return [
        setting
        for setting, outcome in outcomes.items()
        if outcome.failure is None and not setting.is_off
    ]


def sampler(
    search: str,
    settings: Sequence[Setting],
    wanted: Sequence[Setting],
    seed: int,
) -> BaseSampler:
    """Optuna's view of a search: of ``wanted`` it proposes the first, or what its sampler names."""
    if search == "tpe":
        return UnexploredSampler(settings, wanted, TPESampler(n_startup_trials=4, seed=seed))
    if search == "random":
        return UnexploredSampler(settings, wanted, RandomSampler(seed=seed))
    return RankedSampler(settings, wanted)
