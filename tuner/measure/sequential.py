"""When a comparison may stop, and its interval, which stays valid under that rule.

A comparison is looked at after every pair from FIRST_PAIRS to MOST_PAIRS. The chance to be wrong,
1 - CONFIDENCE, is shared out evenly over these looks, and each look's interval is Student's at its
share. By the union bound, with exact t quantiles and nothing asymptotic, the intervals of all looks
together hold the truth with at least CONFIDENCE, hence so does the one at which the comparison
stops, whatever made it stop. The one interval that decides is the one that is stated.

Looks overlap, so the bound is conservative: with Gaussian noise all twelve intervals hold the truth
in 98.0 % (a million simulated comparisons). Two equal arms are called different, in one direction
or the other, in 2.0 % where no precision stops them before, and in 0.5 % at a precision of 8 % and
a noise of 5 % a pair. Heavier tails make it rarer, and so does a linear drift, which the A B B A
order turns into spread. What A B B A cannot see is a disturbance that returns every four rounds.

A true effect d (a log ratio) is found in 80 % where one pair's log ratio has a standard deviation
of at most 0.244 sqrt(MOST_PAIRS) d, that is 0.98 d at 16 pairs, and the precision asked for is no
more than the effect: with a coarser one the comparison may end by showing how small the effect is.

C. Jennison and B. W. Turnbull, "Interim analyses: the repeated confidence interval approach",
Journal of the Royal Statistical Society B 51(3), 1989, 305-361 (stating the interval at any look);
"Exact calculations for sequential t, chi-squared and F tests", Biometrika 78(1), 1991, 133-141.
E. Slud and L. J. Wei, "Two-sample repeated significance tests based on the modified Wilcoxon
statistic", Journal of the American Statistical Association 77, 1982, 862-868 (sharing out the error
over a fixed number of looks).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from scipy.special import stdtrit

from tuner.records import Estimate

FIRST_PAIRS = 5
"""Pairs before the first look."""

MOST_PAIRS = 16
"""Where a comparison stops at the latest."""

CONFIDENCE = 0.95
"""Of every interval here, over all the looks together."""

StoppedBecause = Literal["decided", "precise", "limit"]


@dataclass(frozen=True)
class Decision:
    """A mean log ratio with its interval, and why to stop there; None: measure another pair.

    ``low`` and ``high`` are infinite before FIRST_PAIRS.
    """

    log_ratio: float
    low: float
    high: float
    confidence: float
    stopped_because: StoppedBecause | None


def decide(log_ratios: Sequence[float], precision: float, *, drift: float = 0.0) -> Decision:
    """What the pairs measured so far say: at least one, those after MOST_PAIRS are not looked at.

    ``precision`` is a share: 0.08 stops where the whole interval lies within log(1.08) of no
    difference, so that whatever difference there is is smaller than that. ``drift`` is half
    the mean absolute log ratio of the two baseline rounds around each candidate's, where starts
    alternate; the interval is wider by it on both sides.
    """
    used = log_ratios[:MOST_PAIRS]
    mean, half = _mean_and_half_width(used)
    half += drift
    stopped: StoppedBecause | None = None
    if abs(mean) > half:
        stopped = "decided"
    elif abs(mean) + half <= math.log1p(precision):
        stopped = "precise"
    elif len(used) == MOST_PAIRS:
        stopped = "limit"
    return Decision(mean, mean - half, mean + half, CONFIDENCE, stopped)


def interval_at(log_ratios: Sequence[float]) -> Estimate:
    """The mean of a part of the workload over the pairs with which its comparison stopped.

    Valid for any one part, not for all of them at once. The interval is None before FIRST_PAIRS.
    """
    mean, half = _mean_and_half_width(log_ratios[:MOST_PAIRS])
    if math.isinf(half):
        return Estimate(mean)
    return Estimate(mean, mean - half, mean + half)


def _mean_and_half_width(log_ratios: Sequence[float]) -> tuple[float, float]:
    pairs = len(log_ratios)
    mean = math.fsum(log_ratios) / pairs
    if pairs < FIRST_PAIRS:
        return mean, math.inf
    variance = math.fsum((ratio - mean) ** 2 for ratio in log_ratios) / (pairs - 1)
    return mean, _quantile(pairs) * math.sqrt(variance / pairs)


@cache
def _quantile(pairs: int) -> float:
    looks = MOST_PAIRS - FIRST_PAIRS + 1
    return float(stdtrit(pairs - 1, 1 - (1 - CONFIDENCE) / looks / 2))
