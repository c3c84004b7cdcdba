"""Answers of the baseline, recorded once for the screen to replay."""

from __future__ import annotations

import math

from studies.bench import Bench
from studies.run import Run
from tuner.measure.drafting import is_finished
from tuner.predict.replay import Recorded
from tuner.records import OFF, Measurement, Purpose
from tuner.spec import Load

CONCURRENCY = 16
"""Of the recording: what is said does not depend on it, and 16 at a time are soon said."""


def record_answers(run: Run, bench: Bench) -> None:
    """One round of the baseline, of ``budget.screen_tokens`` output tokens, no prompt twice.

    Nothing where it is there already. Raises BaselineError.
    """
    if recordings(run):
        return
    tokens = run.spec.budget.screen_tokens
    wanted = math.ceil(tokens / run.spec.workload.output_tokens)
    requests = min(max(wanted, 1), len(run.prompts))
    bench.record_answers(Load(concurrency=min(CONCURRENCY, requests)), requests)


def recordings(run: Run) -> list[Measurement]:
    """The rounds whose answers are replayed."""
    return run.store.measurements(context=run.ledger.context, setting=OFF, purpose=Purpose.SCREEN)


def recorded(run: Run) -> list[Recorded]:
    """Their answers, whole ones with token ids, in the order they were sent."""
    return [
        Recorded(
            kind=sample.kind,
            prompt_token_ids=sample.prompt_token_ids,
            token_ids=sample.token_ids,
            measurement=measurement.id,
            started_s=sample.started_s,
        )
        for measurement in recordings(run)
        for sample in run.store.load_samples(measurement.samples_path)
        if is_finished(sample) and sample.prompt_token_ids and len(sample.token_ids) > 1
    ]


def baseline_runner(run: Run) -> str | None:
    """The model runner that the baseline's log named (V1 or V2): proposers differ between them."""
    runners = [
        start.facts.runner
        for measurement in recordings(run)
        for start in run.store.engine_starts(measurement.study)
        if start.id == measurement.engine_start
    ]
    return runners[0] if runners else None
