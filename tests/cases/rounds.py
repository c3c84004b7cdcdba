"""Rounds, and what a user is told of them, by the product's own ways and without any engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain, repeat
from typing import Any

from aiohttp import web

from tests.factories import context, engine_start, measurement, study_spec
from tests.load.scripted import ScriptedServer, chat_answer, send, serving
from tests.measure.answers import speculated
from tuner.answers import Recommendation
from tuner.arms import Arm
from tuner.load.plan import Arrival, RoundPlan
from tuner.load.prompts import Prompt
from tuner.measure.caveats import caveats
from tuner.measure.comparability import require_comparable
from tuner.measure.figures import figures
from tuner.measure.measure import Measured, measure_round
from tuner.measure.sequential import decide
from tuner.measure.statistics import log_ratio
from tuner.recommend import Challenger, Findings, recommend
from tuner.records import OFF, Comparison, Counters, Purpose, RequestSample, Round, Setting
from tuner.spec import Load, Workload

LOAD = Load(concurrency=1)
SUFFIX = Setting.of({"method": "suffix", "num_speculative_tokens": 1})
NGRAM = Setting.of({"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4})
DRAFT = Setting.of({"method": "draft_model", "model": "/models/draft", "num_speculative_tokens": 7})


async def eleven_tokens(request: web.Request) -> web.StreamResponse:
    return await send(request, *chat_answer(*"abcdefghijk", completion_tokens=11))


def round_over(
    *readings: str,
    handler: Callable[[web.Request], Any] = eleven_tokens,
    requests: int = 3,
    concurrency: int = 1,
) -> Measured:
    """A round of a scripted server; ``readings`` is what /metrics says before it and after it."""
    following = chain(readings, repeat(readings[-1]))
    prompt = Prompt("p", "chat", ({"role": "user", "content": "Hello"},), None)
    plan = RoundPlan(Load(concurrency=concurrency), (Arrival(prompt),) * requests)
    with serving(handler, lambda: next(following)) as base_url:
        return measure_round(ScriptedServer(base_url), plan, Workload())


def measured(
    *samples: RequestSample, load: Load = LOAD, speculates: bool = False, **counted: Any
) -> Measured:
    """A round of these answers; ``counted`` are the server's counters over it."""
    round_ = Round(load, samples)
    tokens = sum(sample.completion_tokens or 0 for sample in samples)
    counters = Counters(**({"generation_tokens": tokens} | counted))
    figures_ = figures(round_, counters)
    known = caveats(round_, counters, figures_, Workload(), speculates=speculates)
    return Measured(round_, counters, figures_, known)


def speculating(
    steps: Sequence[int], k: int, *, ttft_ms: float, step_ms: float, **counted: Any
) -> Measured:
    """A round of one answer, whose verify steps accepted so many of k tokens each."""
    return measured(
        speculated(steps, ttft_ms=ttft_ms, step_ms=step_ms),
        speculates=True,
        drafts=len(steps),
        draft_tokens=k * len(steps),
        accepted_tokens=sum(steps),
        accepted_at_position=tuple(sum(n > place for n in steps) for place in range(k)),
        **counted,
    )


def answer(
    baseline: Sequence[Measured],
    candidate: Sequence[Measured],
    setting: Setting,
    **spec: Any,
) -> Recommendation:
    """What a user is told after these pairs. Raises IncomparableError."""
    load = baseline[0].round.load
    study = study_spec(**spec)
    off, on = _arm(OFF, baseline), _arm(setting, candidate)
    pairs = list(zip(off.measurements, on.measurements, strict=True))
    for ours, theirs in pairs:
        require_comparable(ours, theirs)
    decision = decide(
        [log_ratio(ours.figures, theirs.figures, study.objective) for ours, theirs in pairs],
        study.precision,
    )
    comparison = Comparison(
        setting=setting,
        load=load,
        purpose=Purpose.CONFIRM,
        log_ratio=decision.log_ratio,
        low=decision.low,
        high=decision.high,
        confidence=decision.confidence,
        pairs=tuple((ours.id, theirs.id) for ours, theirs in pairs),
        stopped_because=decision.stopped_because or "",
    )
    found = Findings(load, off, Challenger(on, comparison))
    return recommend(study, "target", context(), found, [])


def _arm(setting: Setting, rounds: Sequence[Measured]) -> Arm:
    start = engine_start(setting=setting)
    rows = [
        replace(
            measurement(setting=setting, engine_start=start.id, purpose=Purpose.CONFIRM),
            load=one.round.load,
            figures=one.figures,
            counters=one.counters,
            warnings=one.warnings,
        )
        for one in rounds
    ]
    return Arm(setting, rows, [one.round.samples for one in rounds], [start])
