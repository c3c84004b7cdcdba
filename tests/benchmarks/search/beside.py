"""Several candidates beside the same rounds of the baseline: their pairs share its half."""

from __future__ import annotations

from collections.abc import Sequence

from studies.arm import Arm
from studies.bench import Bench
from tuner.load.plan import RoundPlan


def measure_beside(bench: Bench, plan: RoundPlan, candidates: Sequence[Arm], pair: int) -> None:
    """One pair of each candidate, the baseline's round in the middle of theirs.

    Every other pair is measured in reverse, so that a drift favours nobody. Raises EngineError.
    """
    middle = len(candidates) // 2
    baseline = bench.baseline()
    arms = [*candidates[:middle], baseline, *candidates[middle:]]
    if pair % 2:
        arms.reverse()
    taken = [arm.measure(plan, pair) for arm in arms]
    at = len(candidates) - middle if pair % 2 else middle
    for place, candidate in enumerate(arms):
        if place != at:
            first = 0 if at < place else 1
            bench.store_pair((baseline, taken[at]), (candidate, taken[place]), pair, first)
