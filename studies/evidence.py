"""What a study has measured, as the forecast takes it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from studies.ledger import Ledger, Outcome, Pair
from tuner.measure.step_gaps import step_gaps
from tuner.predict.baseline_steps import LoadCost, verify_cost
from tuner.predict.forecast import Forecast, Seen
from tuner.records import OFF, Measurement, Purpose, RequestSample, Screen, Setting
from tuner.spec import Load

PAIR_SD, PAIR_SD_PAIRS = 0.05, 4
"""Deviation of one pair's step ratio before any were seen, and how many pairs that counts for."""


def forecast(ledger: Ledger, screens: Mapping[Setting, Screen], device: str) -> Forecast:
    """From everything that the store knows of the study by now."""
    return Forecast(screens, load_costs(ledger, device), seen(ledger))


def seen(ledger: Ledger) -> list[Seen]:
    """Every explored setting at every load where it has pairs."""
    found = [
        (setting, load, pairs)
        for setting in ledger.settings
        if not setting.is_off
        for load in ledger.spec.loads
        if (pairs := ledger.explored_pairs(setting, load))
    ]
    sd = pair_sd([_log_step_ratios(ledger, pairs) for _, _, pairs in found])
    return [_seen(ledger, *each, sd) for each in found]


def load_costs(ledger: Ledger, device: str) -> dict[Load, LoadCost]:
    """What the baseline's own rounds say of every load, fitted on decode-only steps.

    In an open loop fewer prompts arrive while a faster answer goes on: prefills hold up both alike,
    and their share is 0.
    """
    steps: dict[float, list[float]] = {}
    in_flight: dict[Load, list[float]] = {}
    prefill: dict[Load, list[float]] = {}
    for measurement in _baseline_rounds(ledger):
        samples = ledger.store.load_samples(measurement.samples_path)
        gaps = step_gaps(samples)
        if gaps is None:
            continue
        concurrency = measurement.load.concurrency or mean_in_flight(samples)
        in_flight.setdefault(measurement.load, []).append(concurrency)
        steps.setdefault(concurrency, []).append(gaps.decode_only_ms or gaps.all_ms)
        if measurement.load.concurrency is not None:
            prefill.setdefault(measurement.load, []).append(gaps.prefill_share)
    times = {concurrency: fmean(found) for concurrency, found in steps.items()}
    return {
        load: LoadCost(
            verify_cost(fmean(in_flight.get(load) or [load.concurrency or 1]), times, device),
            fmean(prefill.get(load) or [0.0]),
        )
        for load in ledger.spec.loads
    }


def mean_in_flight(samples: Sequence[RequestSample]) -> float:
    """Requests under way at a time, on average over a round; never less than 1.

    Little's law: their times in the server over the round's duration.
    """
    answered = [s for s in samples if s.e2e_ms is not None]
    if not answered:
        return 1.0
    duration_s = max(s.started_s + (s.e2e_ms or 0) / 1000 for s in answered)
    return max(1.0, math.fsum(s.e2e_ms or 0 for s in answered) / 1000 / duration_s)


def _baseline_rounds(ledger: Ledger) -> Iterator[Measurement]:
    for purpose in (Purpose.BASELINE, Purpose.SCREEN):
        yield from ledger.store.measurements(context=ledger.context, setting=OFF, purpose=purpose)


def _log_step_ratios(ledger: Ledger, pairs: Sequence[Pair]) -> list[float]:
    objective = ledger.spec.objective
    return [math.log(_tokens_per_step(p)) - p.log_ratio(objective) for p in pairs]


def _tokens_per_step(pair: Pair) -> float:
    """1 where the engine gave no account of its steps: then the ratio is the speed-up itself."""
    return pair.candidate.figures.tokens_per_decode_step or 1.0


def pair_sd(log_step_ratios: Sequence[Sequence[float]]) -> float:
    """Of one pair, pooled over what has more than one, drawn to PAIR_SD while that is little."""
    measured = [each for each in log_step_ratios if each]
    squares = sum(math.fsum((value - fmean(each)) ** 2 for value in each) for each in measured)
    degrees = sum(len(each) - 1 for each in measured)
    return math.sqrt((PAIR_SD_PAIRS * PAIR_SD**2 + squares) / (PAIR_SD_PAIRS + degrees))


def _seen(
    ledger: Ledger, setting: Setting, load: Load, pairs: Sequence[Pair], sd_of_a_pair: float
) -> Seen:
    figures = [pair.candidate.figures for pair in pairs]
    tokens = fmean(_tokens_per_step(pair) for pair in pairs)
    coverages = [f.draft_coverage for f in figures if f.draft_coverage is not None]
    return Seen(
        setting=setting,
        load=load,
        step_ratio=math.exp(fmean(_log_step_ratios(ledger, pairs))),
        sd=sd_of_a_pair / math.sqrt(len(pairs)),
        tokens_per_decode_step=tokens,
        draft_coverage=fmean(coverages) if coverages else None,
        steps=sum(f.output_tokens for f in figures) / tokens,
    )


def smoothed(
    now: Forecast, outcomes: Mapping[Setting, Outcome], loads: Sequence[Load]
) -> dict[Setting, Outcome]:
    """The outcomes, each halfway between what was measured and what the forecast makes of it.

    A measurement has the noise of its few pairs, which the forecast shares among neighbours; the
    forecast's shape is off by as much. Over recorded pairs (``tests/benchmarks/search``) what is
    chosen by their mean is near the best more often than what is chosen by either.
    """
    return {
        setting: outcome
        if outcome.failure is not None or setting.is_off
        else replace(
            outcome,
            log_ratios={
                load: (outcome.log_ratios[load] + now.speedup(setting, load).mean) / 2
                for load in loads
            },
        )
        for setting, outcome in outcomes.items()
    }
