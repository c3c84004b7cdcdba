"""From the confirm stage's rows to recommendations: one per load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from studies.break_even import break_even
from studies.ledger import Outcome
from studies.run import Run
from tuner.answers import Recommendation
from tuner.arms import Arm
from tuner.errors import NothingMeasuredError
from tuner.recommend import Challenger, Findings, recommend
from tuner.records import OFF, Comparison, Measurement, Purpose, Setting
from tuner.spec import Load

DISTURBED = "disturbed"
"""Kind of the events that tell what else was at work on the machine."""


def answers(
    run: Run,
    target: str,
    comparisons: Sequence[Comparison],
    outcomes: Mapping[Setting, Outcome],
) -> list[Recommendation]:
    """One recommendation per load, in the study's order; ``target`` as the study names it."""
    by_load = {comparison.load: comparison for comparison in comparisons}
    notes = [
        f"{setting.label} could not be measured: {outcome.failure}"
        for setting, outcome in outcomes.items()
        if outcome.failure is not None
    ]
    notes += [
        f"when measuring began ({at:%Y-%m-%d %H:%M} UTC) {body['text']}"
        for at, kind, body in run.store.events(run.spec.name)
        if kind == DISTURBED
    ]
    found = [
        recommend(run.spec, target, run.context, _findings(run, load, by_load.get(load)), notes)
        for load in run.spec.loads
    ]
    return [
        answer.model_copy(update={"break_even": break_even(run, answer, by_load, outcomes)})
        for answer in found
    ]


def _findings(run: Run, load: Load, comparison: Comparison | None) -> Findings:
    rounds = run.store.measurements(context=run.ledger.context, load=load, purpose=Purpose.CONFIRM)
    if comparison is None:
        alone = [m for m in rounds if m.setting.is_off and m.beside is None]
        if not alone:
            raise NothingMeasuredError(f"nothing was measured at {load}")
        return Findings(load, arm_of(run, OFF, alone))
    by_id = {m.id: m for m in rounds}
    candidates = [by_id[candidate] for _, candidate in comparison.pairs]
    baselines = [by_id[baseline] for baseline, _ in comparison.pairs]
    baselines += [by_id[m.again] for m in candidates if m.again]
    challenger = Challenger(arm_of(run, comparison.setting, candidates), comparison)
    return Findings(load, arm_of(run, OFF, baselines), challenger)


def arm_of(run: Run, setting: Setting, measurements: Sequence[Measurement]) -> Arm:
    """An arm with its starts, which another study of the same context may have made."""
    studies = dict.fromkeys(m.study for m in measurements)
    starts = {start.id: start for name in studies for start in run.store.engine_starts(name)}
    used = dict.fromkeys(m.engine_start for m in measurements)
    samples = [run.store.load_samples(m.samples_path) for m in measurements]
    return Arm(setting, measurements, samples, [starts[start] for start in used])
