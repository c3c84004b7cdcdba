"""Pairs by the sequential rule: how many are still wanted, and what those measured say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

from studies.ledger import Pair, missing_pairs
from studies.run import Run
from tuner.measure.sequential import FIRST_PAIRS, MOST_PAIRS, Decision, decide
from tuner.records import Comparison

IN_TURN_PAIRS = 3
"""Pairs measured at once where starts alternate, so that two starts give more than one pair."""

MayStop = Callable[[Decision], bool]
"""Whether this is known well enough. The interval holds at any look, whatever rule stops there."""


def is_settled(decision: Decision) -> bool:
    """The rule of confirming: decided, precise enough, or at the limit."""
    return decision.stopped_because is not None


def wanted_pairs(
    run: Run, have: Sequence[Pair], *, first: int = 0, may_stop: MayStop = is_settled
) -> list[int]:
    """Numbers, from ``first`` on, of the pairs to measure next; none once the comparison may stop.

    First FIRST_PAIRS, then more of them, MOST_PAIRS at most.
    """
    count = FIRST_PAIRS
    if len(have) >= FIRST_PAIRS:
        decision, _ = _looked_at(run, have, may_stop)
        more = 1 if run.side_by_side else IN_TURN_PAIRS
        count = 0 if may_stop(decision) else min(len(have) + more, MOST_PAIRS)
    return missing_pairs(have, count, first)


def compare(
    run: Run, have: Sequence[Pair], may_stop: MayStop = is_settled
) -> tuple[Comparison, Sequence[Pair]]:
    """The comparison at the first look that may stop, else at the last, and the pairs it saw.

    ``have`` is at least one pair, all of one setting, load and purpose.
    """
    decision, seen = _looked_at(run, have, may_stop)
    candidate = have[0].candidate
    comparison = Comparison(
        setting=candidate.setting,
        load=candidate.load,
        purpose=candidate.purpose,
        log_ratio=decision.log_ratio,
        low=decision.low,
        high=decision.high,
        confidence=decision.confidence,
        pairs=tuple(pair.ids for pair in seen),
        stopped_because=decision.stopped_because or "",
    )
    return comparison, seen


def _looked_at(
    run: Run, have: Sequence[Pair], may_stop: MayStop
) -> tuple[Decision, Sequence[Pair]]:
    for count in range(min(FIRST_PAIRS, len(have)), len(have) + 1):
        seen = have[:count]
        decision = _decision(run, seen)
        if may_stop(decision):
            break
    return decision, seen


def _decision(run: Run, pairs: Sequence[Pair]) -> Decision:
    objective = run.spec.objective
    return decide(
        [pair.log_ratio(objective) for pair in pairs],
        run.spec.precision,
        drift=fmean(pair.drift(objective) for pair in pairs) / 2,
    )
