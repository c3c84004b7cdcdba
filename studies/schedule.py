"""Schedules: k by the number of requests, derived from what fixed k came to at each concurrency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from studies.evidence import forecast
from studies.ledger import Outcome
from studies.live_k import METHODS
from studies.run import Run
from tuner.records import Screen, Setting
from tuner.spec import Load
from tuner.vllm import SCHEDULE

ANY_NUMBER = 4096
"""The last range's end: more requests than an engine takes at once."""


def with_schedule(
    run: Run, screens: Mapping[Setting, Screen], outcomes: Mapping[Setting, Outcome]
) -> Run:
    """The run with a schedule among its settings, where one could pay; else the run as it is.

    A schedule is worth a start only under traffic that swings, and where a proposer's best k
    differs between concurrencies: at a steady concurrency it is nothing but a fixed k.
    """
    if not any(load.comes_in_bursts for load in run.spec.loads):
        return run
    best = _best_by_load(run, screens, outcomes)
    if len(set(best.values())) < 2:  # noqa: PLR2004
        return run
    settings = (*run.ledger.settings, schedule(best))
    return replace(run, ledger=replace(run.ledger, settings=tuple(dict.fromkeys(settings))))


def schedule(best: Mapping[Load, Setting]) -> Setting:
    """The best setting of each concurrency, of one proposer, as one: each holds up to its own.

    The last holds beyond too. Not before two concurrencies.
    """
    ordered = sorted(best, key=lambda load: load.place)
    ends = [*(load.concurrency for load in ordered[:-1]), ANY_NUMBER]
    firsts = [1, *(int(end or 0) + 1 for end in ends[:-1])]
    ranges = [
        [first, end, best[load].k] for first, end, load in zip(firsts, ends, ordered, strict=True)
    ]
    largest = max(best.values(), key=lambda setting: setting.k)
    return Setting.of({**(largest.speculative_config or {}), SCHEDULE: ranges})


def _best_by_load(
    run: Run, screens: Mapping[Setting, Screen], outcomes: Mapping[Setting, Outcome]
) -> dict[Load, Setting]:
    """The best k at each concurrency of the proposer that does best over all of them."""
    now = forecast(run.ledger, screens, run.context.host.device)
    loads = [load for load in run.spec.loads if load.concurrency is not None]
    ran = [s for s, outcome in outcomes.items() if outcome.failure is None and _honours_one(s)]
    proposers: dict[str, list[Setting]] = {}
    for setting in ran:
        proposers.setdefault(setting.proposer, []).append(setting)

    def best(of: Sequence[Setting]) -> dict[Load, Setting]:
        return {load: max(of, key=lambda s: now.speedup(s, load).mean) for load in loads}

    def gain(found: Mapping[Load, Setting]) -> float:
        return fmean(now.speedup(setting, load).mean for load, setting in found.items())

    found = [best(of) for of in proposers.values()]
    return max(found, key=gain) if found and loads else {}


def _honours_one(setting: Setting) -> bool:
    """Runner V1's schedulers look k up for these methods only; none is made of a schedule."""
    return setting.method in METHODS and not setting.is_schedule
