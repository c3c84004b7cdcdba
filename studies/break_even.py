"""Up to which load an answer's setting pays, from the loads at which it was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import fmean

from studies.evidence import mean_in_flight
from studies.ledger import Outcome
from studies.run import Run
from tuner.answers import BreakEven, Recommendation
from tuner.predict.break_even import AtLoad, crossing
from tuner.records import OFF, Comparison, Purpose, Setting
from tuner.spec import Load


def break_even(
    run: Run,
    answer: Recommendation,
    comparisons: Mapping[Load, Comparison],
    outcomes: Mapping[Setting, Outcome],
) -> BreakEven | None:
    """Of the recommended setting, or where off is the answer of the best candidate.

    A load's speed-up is the confirmed one where this setting was confirmed there, else the explored
    one. None where it pays at every measured load, or at none.
    """
    config = answer.speculative_config
    if config is None and answer.considered:
        config = answer.considered[0].speculative_config
    if config is None:
        return None
    setting = Setting.of(config)
    found = crossing(list(_measured(run, setting, comparisons, outcomes)))
    if found is None:
        return None
    return BreakEven(
        speculative_config=config,
        on_at=found.on_at,
        off_at=found.off_at,
        concurrency=found.in_flight,
        requests_per_s=found.requests_per_s,
    )


def _measured(
    run: Run,
    setting: Setting,
    comparisons: Mapping[Load, Comparison],
    outcomes: Mapping[Setting, Outcome],
) -> Iterator[AtLoad]:
    outcome = outcomes.get(setting)
    explored = outcome.log_ratios if outcome else {}
    for load in run.spec.loads:
        confirmed = comparisons.get(load)
        ratio = explored.get(load)
        if confirmed is not None and confirmed.setting == setting:
            ratio = confirmed.log_ratio
        if ratio is not None:
            yield AtLoad(load.key, *_traffic(run, load), ratio)


def _traffic(run: Run, load: Load) -> tuple[float, float]:
    """Requests under way on average, and how many a second, with the baseline at this load."""
    rounds = run.store.measurements(
        context=run.ledger.context, setting=OFF, load=load, purpose=Purpose.BASELINE
    )
    samples = [run.store.load_samples(measured.samples_path) for measured in rounds]
    in_flight = fmean(load.concurrency or mean_in_flight(each) for each in samples)
    seconds = fmean(
        (sample.e2e_ms or 0) / 1000
        for each in samples
        for sample in each
        if sample.counted and sample.e2e_ms is not None
    )
    return in_flight, in_flight / seconds
