"""One side of a confirmation: what its rounds come to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from statistics import median

from tuner import answers
from tuner.measure.breakdown import breakdown
from tuner.measure.drafting import drafting
from tuner.measure.sequential import interval_at
from tuner.records import Counters, EngineStart, Estimate, Measurement, RequestSample, Setting


@dataclass(frozen=True)
class Arm:
    """Its rounds with their samples, one for each pair first, and the starts they ran on."""

    setting: Setting
    measurements: Sequence[Measurement]
    samples: Sequence[Sequence[RequestSample]]
    starts: Sequence[EngineStart]

    @property
    def counters(self) -> Counters:
        """Summed over rounds; percentages are never averaged."""
        return pooled([m.counters for m in self.measurements])


def measured(arm: Arm) -> answers.Measured:
    """Latencies: the median of the rounds' own figures. Throughput: all tokens over all time."""
    figures = [m.figures for m in arm.measurements]

    def middle(name: str) -> float | None:
        values = [value for each in figures if (value := getattr(each, name)) is not None]
        return median(values) if values else None

    counters = arm.counters
    hits, queries = counters.prefix_cache_hits, counters.prefix_cache_queries
    waited, queued = counters.queue_time_s, counters.queued_requests
    tokens = sum(each.output_tokens for each in figures)
    return answers.Measured(
        tpot_ms_p50=middle("tpot_ms_p50"),
        ttft_ms_p50=middle("ttft_ms_p50"),
        ttft_ms_p95=middle("ttft_ms_p95"),
        e2e_ms_p50=middle("e2e_ms_p50"),
        e2e_ms_p95=middle("e2e_ms_p95"),
        output_throughput_tok_s=tokens / math.fsum(each.duration_s for each in figures),
        rounds=len(figures),
        requests=sum(each.requests for each in figures),
        mean_output_tokens=middle("mean_output_tokens"),
        prefix_cache_hit_share=hits / queries if queries else None,
        preemptions=counters.preemptions,
        queue_ms_mean=waited / queued * 1000 if queued else None,
        looping_share=middle("looping_share"),
    )


def drafted(arm: Arm) -> answers.Drafting | None:
    """How the arm's drafts were met; None where nothing was drafted."""
    counters = [m.counters for m in arm.measurements]
    found = drafting(list(zip(counters, arm.samples, strict=True)))
    if found is None:
        return None
    conditional = found.conditional_at_position
    return answers.Drafting(
        acceptance_length=answers.Interval.model_validate(found.acceptance_length),
        acceptance_at_position=tuple(answers.Interval.model_validate(e) for e in found.at_position),
        conditional_acceptance_at_position=tuple(_interval(estimate) for estimate in conditional),
        tokens_per_decode_step=_interval(found.tokens_per_decode_step),
        draft_coverage=_interval(found.draft_coverage),
    )


def sliced(baseline: Arm, candidate: Arm) -> list[answers.Slice]:
    """The candidate against the baseline by kind of prompt and by prompt length.

    The baseline's first rounds are those beside the candidate's, in the same order.
    """
    pairs = list(zip(baseline.samples, candidate.samples, strict=False))
    return [
        answers.Slice(
            by=part.by,
            name=part.name,
            requests=part.requests,
            tpot_ms_p50=part.candidate_tpot_ms_p50,
            baseline_tpot_ms_p50=part.baseline_tpot_ms_p50,
            tpot_speedup=part.log_ratio and _speedup(part.log_ratio),
            acceptance_length=_interval(part.acceptance_length),
            tokens_per_decode_step=_interval(part.tokens_per_decode_step),
        )
        for part in breakdown(pairs, interval_at)
    ]


def pooled(counters: Sequence[Counters]) -> Counters:
    """The sum of all of them, position by position."""
    depth = max((len(c.accepted_at_position) for c in counters), default=0)
    sums = {
        field.name: sum(getattr(c, field.name) for c in counters)
        for field in fields(Counters)
        if field.name != "accepted_at_position"
    }
    at_position = tuple(
        sum(c.accepted_at_position[i] for c in counters if i < len(c.accepted_at_position))
        for i in range(depth)
    )
    return Counters(**sums, accepted_at_position=at_position)


def _interval(estimate: Estimate | None) -> answers.Interval | None:
    return None if estimate is None else answers.Interval.model_validate(estimate)


def _speedup(log_ratio: Estimate) -> answers.Interval:
    low, high = (None if b is None else math.exp(b) for b in (log_ratio.low, log_ratio.high))
    return answers.Interval(value=math.exp(log_ratio.value), low=low, high=high)
