"""Confirming: the finalist of each load and the baseline, started afresh and measured in pairs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

from studies.bench import Bench, Wanted
from studies.events import Confirmed, Failed
from studies.explore import record_failure
from studies.ledger import Outcome, Pair, missing_pairs
from studies.run import Run
from tuner.measure.statistics import pairs_needed, stein_interval
from tuner.records import OFF, Comparison, Purpose, Setting
from tuner.spec import Load

CONFIDENCE = 0.95

FIRST_PAIRS = 5
"""Pairs of Stein's first stage: their variance alone says how many are needed in all."""

MOST_PAIRS = 8
"""Where a comparison stops at the latest, its interval then wider than asked."""

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
            comparisons[load] = _comparison(run, setting, load)
            run.observe(Confirmed(comparisons[load]))
    if alone := _unmeasured(run, comparisons):
        bench.measure_baseline(alone, Purpose.CONFIRM)
    run.store.save_comparisons(run.spec.name, list(comparisons.values()))
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
    """Measures both of Stein's stages; False, and the failure recorded, when the setting failed."""
    failure = bench.measure_pairs(setting, partial(_missing, run, setting, loads))
    if failure is None:
        return True
    record_failure(run, setting, failure)
    run.observe(Failed(setting, failure, final=setting in run.ledger.failures()))
    return False


def _missing(run: Run, setting: Setting, loads: list[Load]) -> list[Wanted]:
    """First each load's first pairs; once they are all there, as many more as they call for."""
    wanted = []
    for load in loads:
        have = run.ledger.pairs(setting, load, Purpose.CONFIRM)
        count = FIRST_PAIRS if len(have) < FIRST_PAIRS else _total(run, have)
        wanted += [(load, pair) for pair in missing_pairs(have, count)]
    return wanted


def _total(run: Run, have: list[Pair]) -> int:
    first = [pair.log_ratio(run.spec.objective) for pair in have[:FIRST_PAIRS]]
    return min(pairs_needed(first, run.spec.precision, CONFIDENCE), MOST_PAIRS)


def _comparison(run: Run, setting: Setting, load: Load) -> Comparison:
    have = run.ledger.pairs(setting, load, Purpose.CONFIRM)
    used = have[: _total(run, have)]
    mean, low, high = stein_interval(
        [pair.log_ratio(run.spec.objective) for pair in used], FIRST_PAIRS, CONFIDENCE
    )
    precise = (high - low) / 2 <= math.log1p(run.spec.precision)
    return Comparison(
        setting=setting,
        load=load,
        purpose=Purpose.CONFIRM,
        log_ratio=mean,
        low=low,
        high=high,
        confidence=CONFIDENCE,
        pairs=tuple(pair.ids for pair in used),
        stopped_because="precision" if precise else "limit",
    )


def _unmeasured(run: Run, done: Mapping[Load, Comparison]) -> list[Load]:
    """Loads where nothing ran beside the baseline, whose own figures are the answer there."""
    rounds = run.store.measurements(
        context=run.ledger.context, setting=OFF, purpose=Purpose.CONFIRM
    )
    measured = {m.load for m in rounds if m.beside is None}
    return [load for load in run.spec.loads if load not in done and load not in measured]
