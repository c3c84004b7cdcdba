"""How many pairs, and the interval of a ratio over them that one disturbed pair does not spoil."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, combinations_with_replacement
from statistics import median

PAIRS = 8
CONFIDENCE = 0.9

RULE = (
    f"at least {PAIRS} pairs; the ratio is their Hodges-Lehmann estimate (the median of all means "
    "of two), its interval that of Wilcoxon's signed-rank test, exact for any symmetric noise"
)


def interval(log_ratios: Sequence[float]) -> tuple[float, float, float]:
    """Ratio, low and high.

    J. L. Hodges and E. L. Lehmann, "Estimates of location based on rank tests", Annals of
    Mathematical Statistics 34(2), 1963, 598-611.
    """
    means = sorted((a + b) / 2 for a, b in combinations_with_replacement(log_ratios, 2))
    outside = _left_out(len(log_ratios))
    return math.exp(median(means)), math.exp(means[outside]), math.exp(means[-1 - outside])


def _left_out(pairs: int) -> int:
    """How many of the sorted means lie outside on each side: the test's critical rank sum."""
    ways = [1]
    for rank in range(1, pairs + 1):
        longer = ways + [0] * rank
        ways = [n + (longer[at - rank] if at >= rank else 0) for at, n in enumerate(longer)]
    cumulative = [n / 2**pairs for n in accumulate(ways)]
    return max(0, bisect_right(cumulative, (1 - CONFIDENCE) / 2) - 1)
