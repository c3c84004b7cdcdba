"""Confirming: the finalist of each load and the baseline, started afresh and measured in pairs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean

from studies.bench import Bench, Wanted
from studies.events import Confirmed, Failed
from studies.explore import record_failure
from studies.ledger import Outcome, Pair, missing_pairs
from studies.run import Run
from studies.same_text import same_text
from tuner.measure.sequential import FIRST_PAIRS, MOST_PAIRS, Decision, decide
from tuner.records import OFF, Comparison, Purpose, Setting
from tuner.spec import Load

IN_TURN_PAIRS = 3
"""Pairs measured at once where starts alternate, so that two starts give more than one pair."""

TIE = math.log(1.03)
"""Explored settings this close at a load are a tie: the smaller k goes on to be confirmed.
Plateaus in published runs are about this flat (30.9 tok/s at k=2, 31.2 at k=4, off 24.6)."""


def confirm(run: Run, bench: Bench, outcomes: Mapping[Setting, Outcome]) -> list[Comparison]:
    """One comparison for each load that has a setting which runs."""
    comparisons: dict[Load, Comparison] = {}
    while chosen := _next_finalist(run, outcomes, comparisons):
        setting, loads = chosen
        if not _measure(run, bench, setting, loads):
            continue
        for load in loads:
            comparisons[load] = _comparison(run, bench, setting, load)
            run.store.save_comparisons(run.spec.name, [comparisons[load]])
            run.observe(Confirmed(comparisons[load]))
    if alone := _unmeasured(run, comparisons):
        bench.measure_baseline(alone, Purpose.CONFIRM)
    return list(comparisons.values())


def finalist(outcomes: Mapping[Setting, Outcome], load: Load) -> Setting | None:
    """The best explored setting at a load, ties to the smaller k; None when nothing ran."""
    ratios = {
        setting: outcome.log_ratios[load]
        for setting, outcome in outcomes.items()
        if outcome.failure is None and not setting.is_off
    }
    if not ratios:
        return None
    best = max(ratios.values())
    tied = [setting for setting, ratio in ratios.items() if ratio >= best - TIE]
    return min(tied, key=lambda setting: (setting.k, -ratios[setting]))


def _next_finalist(
    run: Run, outcomes: Mapping[Setting, Outcome], done: Mapping[Load, Comparison]
) -> tuple[Setting, list[Load]] | None:
    """The next setting to start, and every load it is the finalist of."""
    failed = run.ledger.failures()
    able = {setting: o for setting, o in outcomes.items() if setting not in failed}
    wanted: dict[Setting, list[Load]] = {}
    for load in run.spec.loads:
        if load not in done and (setting := finalist(able, load)):
            wanted.setdefault(setting, []).append(load)
    return next(iter(wanted.items()), None)


def _measure(run: Run, bench: Bench, setting: Setting, loads: list[Load]) -> bool:
    """Measures until every load is settled; False, the failure recorded, when it failed."""
    failure = bench.measure_pairs(setting, partial(_missing, run, setting, loads))
    if failure is None:
        return True
    record_failure(run, setting, failure)
    run.observe(Failed(setting, failure, final=setting in run.ledger.failures()))
    return False


def _missing(run: Run, setting: Setting, loads: list[Load]) -> list[Wanted]:
    """First each load's first pairs; then more of them until its comparison may stop."""
    more = 1 if run.side_by_side else IN_TURN_PAIRS
    wanted = []
    for load in loads:
        have = run.ledger.pairs(setting, load, Purpose.CONFIRM)
        count = FIRST_PAIRS
        if len(have) >= FIRST_PAIRS:
            settled = _settled(run, have)[0].stopped_because is not None
            count = 0 if settled else min(len(have) + more, MOST_PAIRS)
        wanted += [(load, pair) for pair in missing_pairs(have, count)]
    return wanted


def _settled(run: Run, have: Sequence[Pair]) -> tuple[Decision, Sequence[Pair]]:
    """The decision at the first look that may stop, else at the last, and the pairs it saw."""
    for count in range(min(FIRST_PAIRS, len(have)), len(have) + 1):
        seen = have[:count]
        decision = _decision(run, seen)
        if decision.stopped_because:
            break
    return decision, seen


def _decision(run: Run, pairs: Sequence[Pair]) -> Decision:
    objective = run.spec.objective
    return decide(
        [pair.log_ratio(objective) for pair in pairs],
        run.spec.precision,
        drift=fmean(pair.drift(objective) for pair in pairs) / 2,
    )


def _comparison(run: Run, bench: Bench, setting: Setting, load: Load) -> Comparison:
    decision, seen = _settled(run, run.ledger.pairs(setting, load, Purpose.CONFIRM))
    found = Comparison(
        setting=setting,
        load=load,
        purpose=Purpose.CONFIRM,
        log_ratio=decision.log_ratio,
        low=decision.low,
        high=decision.high,
        confidence=decision.confidence,
        pairs=tuple(pair.ids for pair in seen),
        stopped_because=decision.stopped_because or "",
    )
    for known in run.store.comparisons(run.spec.name, Purpose.CONFIRM):
        if known.sameness and replace(known, sameness=None) == found:
            return known  # its text was read in an earlier sitting
    return replace(found, sameness=same_text(run, bench, setting, seen))


def _unmeasured(run: Run, done: Mapping[Load, Comparison]) -> list[Load]:
    """Loads where nothing ran beside the baseline, whose own figures are the answer there."""
    rounds = run.store.measurements(
        context=run.ledger.context, setting=OFF, purpose=Purpose.CONFIRM
    )
    measured = {m.load for m in rounds if m.beside is None}
    return [load for load in run.spec.loads if load not in done and load not in measured]
