"""Whether a finalist's answers are the target's own text: scored by the baseline engine."""

from __future__ import annotations

from collections.abc import Sequence

from studies.bench import Bench
from studies.events import Scoring
from studies.ledger import Pair
from studies.run import Run
from tuner.measure.sameness import judge
from tuner.measure.scoring import Answer, score_answers
from tuner.records import Measurement, Sameness, Setting


def same_text(run: Run, bench: Bench, setting: Setting, pairs: Sequence[Pair]) -> Sameness:
    """Both arms' answers of these pairs, teacher-forced through the baseline engine.

    Raises BaselineError where it fails at that.
    """
    ours = _answers(run, [measured for pair in pairs for measured in pair.baselines])
    theirs = _answers(run, [pair.candidate for pair in pairs])
    temperature = run.spec.workload.sampling.temperature
    if not (ours and theirs):
        return judge([], [], temperature=temperature)
    run.observe(Scoring(setting, pairs[0].candidate.load))
    with bench.baseline_server() as server:
        baseline = score_answers(server.base_url, server.model, ours)
        candidate = score_answers(server.base_url, server.model, theirs)
    return judge(baseline, candidate, temperature=temperature)


def _answers(run: Run, measured: Sequence[Measurement]) -> list[Answer]:
    """The whole answers of these rounds that can be scored."""
    return [
        (each.id, number, sample)
        for each in measured
        for number, sample in enumerate(run.store.load_samples(each.samples_path))
        if sample.counted and sample.prompt_token_ids and sample.token_ids
    ]
