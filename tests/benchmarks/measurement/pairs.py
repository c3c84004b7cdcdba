"""How many pairs, and the interval that is valid for that many."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from scipy.special import stdtrit

FIRST, MOST = 8, 24
CONFIDENCE = 0.9
WANTED = math.log(1.02)
"""Half-width of a ratio's interval that the number of pairs is chosen for."""

RULE = (
    f"Stein: the spread of the first {FIRST} pairs decides how many are measured for a half-width "
    f"of {math.expm1(WANTED):.0%} of the widest of the load's ratios, {MOST} at most; the "
    f"interval's width rests on the spread of the first {FIRST} alone"
)


def needed(log_ratios: Sequence[float]) -> int:
    """Pairs in all for the wanted half-width, by the first ones' spread.

    C. Stein, "A two-sample test for a linear hypothesis whose power is independent of the
    variance", Annals of Mathematical Statistics 16(3), 1945, 243-258.
    """
    if len(log_ratios) < FIRST:
        return FIRST
    wanted = math.ceil((_half_width(log_ratios, 1) / WANTED) ** 2)
    return min(max(wanted, FIRST), MOST)


def interval(log_ratios: Sequence[float]) -> tuple[float, float, float]:
    """Ratio, low and high: the mean over all pairs, the spread of the first."""
    mean, half = fmean(log_ratios), _half_width(log_ratios, len(log_ratios))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def _half_width(log_ratios: Sequence[float], pairs: int) -> float:
    quantile = float(stdtrit(FIRST - 1, (1 + CONFIDENCE) / 2))
    return quantile * stdev(log_ratios[:FIRST]) / math.sqrt(pairs)
