"""Confirming: the finalist of each load and the baseline, started afresh and measured in pairs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from studies.bench import Bench, Wanted
from studies.events import Confirmed, Failed
from studies.explore import record_failure
from studies.ledger import Outcome
from studies.paired import compare, wanted_pairs
from studies.run import Run
from studies.same_text import same_text
from studies.search import CLOSE
from tuner.measure.sequential import Decision
from tuner.records import OFF, Comparison, Purpose, Setting
from tuner.spec import Load

TIE = math.log(1.015)
"""Explored settings this close at a load are a tie: the smaller k goes on to be confirmed.
Plateaus in published runs are about this flat (30.9 tok/s at k=2, 31.2 at k=4, off 24.6; TPOT 4.09
ms at k=3, 4.05 at k=4). More would lose more than noise does in simulated studies."""


def confirm(run: Run, bench: Bench, outcomes: Mapping[Setting, Outcome]) -> list[Comparison]:
    """One comparison for each load that has a setting which runs.

    A schedule that explored best at a load is confirmed there beside the best fixed k, and stands
    only where it beats that too by more than a tie.
    """
    fixed = {setting: o for setting, o in outcomes.items() if not setting.is_schedule}
    comparisons = _confirmed(run, bench, fixed, run.spec.loads)
    led = [load for load in comparisons if _led_by_a_schedule(outcomes, load)]
    for load, found in _confirmed(run, bench, outcomes, led).items():
        if found.log_ratio > comparisons[load].log_ratio + TIE:
            comparisons[load] = found
    if alone := _unmeasured(run, comparisons):
        bench.measure_baseline(alone, Purpose.CONFIRM)
    return list(comparisons.values())


def _led_by_a_schedule(outcomes: Mapping[Setting, Outcome], load: Load) -> bool:
    best = finalist(outcomes, load)
    return best is not None and best.is_schedule


def _confirmed(
    run: Run, bench: Bench, outcomes: Mapping[Setting, Outcome], loads: Sequence[Load]
) -> dict[Load, Comparison]:
    """The finalist of each of these loads against the baseline; the runner-up where it is better.

    Where a finalist comes out well below what came next, that is measured too, once.
    """
    comparisons: dict[Load, list[Comparison]] = {}
    while chosen := _next(run, outcomes, loads, comparisons):
        setting, led = chosen
        if not _measure(run, bench, setting, led):
            continue
        for load in led:
            found = _comparison(run, bench, setting, load)
            comparisons.setdefault(load, []).append(found)
            run.store.save_comparisons(run.spec.name, [found])
            run.observe(Confirmed(found))
    return {load: max(found, key=standing) for load, found in comparisons.items()}


def standing(found: Comparison | Decision) -> tuple[bool, float]:
    """What is shown to be faster than off stands before what is not."""
    return found.low > 0, found.log_ratio


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


def runner_up(
    outcomes: Mapping[Setting, Outcome], load: Load, first: Setting, found: Comparison | Decision
) -> Setting | None:
    """What came next at a load, where that is well above what confirming ``found`` of the first.

    Of a first that was not shown to be faster than off, off is what is known. The best of several
    measurements with noise is often the luckiest.
    """
    is_faster, log_ratio = standing(found)
    shown = log_ratio if is_faster else 0.0
    left = {setting: o for setting, o in outcomes.items() if setting != first}
    best = finalist(left, load)
    if best is None or left[best].log_ratios[load] <= shown + CLOSE:
        return None
    return best


def _next(
    run: Run,
    outcomes: Mapping[Setting, Outcome],
    loads: Sequence[Load],
    done: Mapping[Load, Sequence[Comparison]],
) -> tuple[Setting, list[Load]] | None:
    """The next setting to start, and every load it is the finalist or the runner-up of."""
    failed = run.ledger.failures()
    able = {setting: o for setting, o in outcomes.items() if setting not in failed}
    wanted: dict[Setting, list[Load]] = {}
    for load in loads:
        if setting := _wanted_at(able, load, done.get(load, ())):
            wanted.setdefault(setting, []).append(load)
    return next(iter(wanted.items()), None)


def _wanted_at(
    able: Mapping[Setting, Outcome], load: Load, done: Sequence[Comparison]
) -> Setting | None:
    match done:
        case []:
            return finalist(able, load)
        case [first]:
            return runner_up(able, load, first.setting, first)
        case _:
            return None


def _measure(run: Run, bench: Bench, setting: Setting, loads: list[Load]) -> bool:
    """Measures until every load is settled; False, the failure recorded, when it failed."""
    failure = bench.measure_pairs(setting, partial(_missing, run, setting, loads))
    if failure is None:
        return True
    record_failure(run, setting, failure)
    run.observe(Failed(setting, failure, final=setting in run.ledger.failures()))
    return False


def _missing(run: Run, setting: Setting, loads: list[Load]) -> list[Wanted]:
    return [
        (load, pair)
        for load in loads
        for pair in wanted_pairs(run, run.ledger.pairs(setting, load, Purpose.CONFIRM))
    ]


def _comparison(run: Run, bench: Bench, setting: Setting, load: Load) -> Comparison:
    have = run.ledger.pairs(setting, load, Purpose.CONFIRM)
    found, seen = compare(run, have)
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
