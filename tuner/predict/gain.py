"""Which engine start is worth the most: expected improvement over all loads at once."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from scipy.stats import norm

from tuner.predict.forecast import Forecast
from tuner.predict.step_time import LogNormal
from tuner.records import OFF, Setting
from tuner.spec import Load

WORTH_A_START = 0.015
"""Expected improvement, as a share, at the load where it is largest; below, exploring stops.

As much as explored settings may differ and be taken for a tie: the few pairs of a start could not
tell less, and each that is started for less is one more to mistake for the best."""


@dataclass(frozen=True)
class Gain:
    """What one more start is expected to add to the best known speed-up, in logs, by load."""

    setting: Setting
    by_load: Mapping[Load, float]

    @property
    def total(self) -> float:
        return math.fsum(self.by_load.values())

    @property
    def most(self) -> float:
        return max(self.by_load.values())


def rank(
    forecast: Forecast,
    explored: Collection[Setting],
    unexplored: Collection[Setting],
    loads: Sequence[Load],
) -> list[Gain]:
    """Unexplored settings, the most promising first; ties to the smaller k.

    ``explored`` are those that ran. Off is always among what has to be beaten.
    """
    best = {load: best_known(forecast, explored, load) for load in loads}
    gains = [
        Gain(
            setting,
            {
                load: expected_improvement(forecast.speedup(setting, load), best[load])
                for load in loads
            },
        )
        for setting in unexplored
    ]
    return sorted(gains, key=lambda gain: (-gain.total, gain.setting.k))


def best_known(forecast: Forecast, explored: Collection[Setting], load: Load) -> float:
    """The largest expected log speed-up among what ran, off's 0 included."""
    ran = [setting for setting in explored if setting != OFF]
    return max([0.0, *(forecast.speedup(setting, load).mean for setting in ran)])


def expected_improvement(found: LogNormal, best: float) -> float:
    """Mean of what lies above ``best``, of a normal logarithm.

    D. R. Jones, M. Schonlau, W. J. Welch, "Efficient global optimization of expensive black-box
    functions", Journal of Global Optimization 13, 1998, equation 15.
    """
    if found.sd <= 0:
        return max(0.0, found.mean - best)
    z = (found.mean - best) / found.sd
    return float(found.sd * (z * norm.cdf(z) + norm.pdf(z)))
