"""A round's figures: latencies and throughput from its requests, drafting from the server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from tuner.errors import Failure, FailureKind, RoundError
from tuner.measure.drafting import request_tallies, round_tally
from tuner.measure.looping import looping_share
from tuner.records import Counters, Figures, Measurement, RequestSample, Round


def figures(round_: Round, counters: Counters) -> Figures:
    """What a round comes to; failed requests are left out.

    Latencies are of the counted requests, throughput of every token that arrived in the round's
    window, acceptance of all that the server counted over the round. Counts are pooled, never
    averaged as percentages. Nothing drafted, or no decode step, gives None. Raises RoundError when
    no counted request was answered.
    """
    answered = [s for s in round_.counted if s.error is None and s.completion_tokens]
    start_s, end_s = round_.window_s
    duration_s = end_s - start_s
    if not answered or duration_s <= 0:
        message = f"none of {len(round_.counted)} requests was answered"
        raise RoundError(Failure(FailureKind.REQUESTS_FAILED, message))
    output_tokens = _tokens_between(round_.samples, start_s, end_s)
    tpot_ms_p50, tpot_ms_p95 = _p50_p95(s.tpot_ms for s in answered)
    ttft_ms_p50, ttft_ms_p95 = _p50_p95(s.ttft_ms for s in answered)
    e2e_ms_p50, e2e_ms_p95 = _p50_p95(s.e2e_ms for s in answered)
    length, at_position = acceptance(counters)
    per_step, coverage = decoding(round_.samples, counters)
    return Figures(
        requests=len(answered),
        duration_s=duration_s,
        output_tokens=output_tokens,
        output_throughput_tok_s=output_tokens / duration_s,
        tpot_ms_p50=tpot_ms_p50,
        tpot_ms_p95=tpot_ms_p95,
        ttft_ms_p50=ttft_ms_p50,
        ttft_ms_p95=ttft_ms_p95,
        e2e_ms_p50=e2e_ms_p50,
        e2e_ms_p95=e2e_ms_p95,
        acceptance_length=length,
        acceptance_at_position=at_position,
        tokens_per_decode_step=per_step,
        draft_coverage=coverage,
        prefix_cache_hit_share=_share(counters.prefix_cache_hits, counters.prefix_cache_queries),
        preemptions=counters.preemptions,
        queue_ms_mean=_share(counters.queue_time_s * 1000, counters.queued_requests),
        looping_share=looping_share(answered),
        mean_output_tokens=sum(s.completion_tokens or 0 for s in answered) / len(answered),
        max_send_lag_ms=_max_send_lag_ms(round_.samples),
    )


def recompute(measurement: Measurement, samples: Sequence[RequestSample]) -> Figures:
    """A stored measurement's figures once more, from its samples and its counters.

    Equal to ``measurement.figures`` to the last digit. Raises RoundError as figures.
    """
    return figures(Round(measurement.load, tuple(samples)), measurement.counters)


def acceptance(counters: Counters) -> tuple[float | None, tuple[float, ...] | None]:
    """Acceptance length, and acceptance at each position; None where nothing was drafted."""
    if counters.drafts == 0:
        return None, None
    at_position = tuple(n / counters.drafts for n in counters.accepted_at_position)
    return 1 + counters.accepted_tokens / counters.drafts, at_position


def decoding(
    samples: Sequence[RequestSample], counters: Counters
) -> tuple[float | None, float | None]:
    """Tokens per decode step, and draft coverage; None where there is nothing to divide by.

    A decode step is a request's share of an engine step after its prefill. From the server's
    account of each answer where it gave one, else from its counters.
    """
    tallies = request_tallies(samples) or [round_tally(counters, samples)]
    steps = sum(tally.steps for tally in tallies)
    drafts = sum(tally.drafts for tally in tallies)
    if steps <= 0:
        return None, None
    return sum(tally.tokens for tally in tallies) / steps, min(1.0, drafts / steps) or None


def _tokens_between(samples: Sequence[RequestSample], start_s: float, end_s: float) -> int:
    """Tokens that arrived from ``start_s`` to ``end_s`` of the round, both included.

    Where the server did not say how many tokens a chunk carried, an answer's tokens are spread
    evenly over its chunks, and those of one that was cut off are taken to be as many per chunk as
    in the others.
    """
    known = [s for s in samples if s.completion_tokens and s.chunk_ms]
    chunks = sum(len(s.chunk_ms) for s in known)
    usual = sum(s.completion_tokens or 0 for s in known) / chunks if chunks else 1.0
    arrived = (
        tokens
        for sample in samples
        for at_s, tokens in _arrivals(sample, usual)
        if start_s <= at_s <= end_s
    )
    return round(sum(arrived))


def _arrivals(sample: RequestSample, usual: float) -> Iterator[tuple[float, float]]:
    """When each chunk arrived, in seconds of the round, and how many tokens it carried."""
    total = sample.completion_tokens
    tokens: Sequence[float] = sample.chunk_tokens
    if not tokens or (total is not None and sum(tokens) != total):
        each = usual if total is None else total / max(1, len(sample.chunk_ms))
        tokens = [each] * len(sample.chunk_ms)
    for at_ms, carried in zip(sample.chunk_ms, tokens, strict=True):
        yield sample.started_s + at_ms / 1000, carried


def _max_send_lag_ms(samples: Iterable[RequestSample]) -> float | None:
    """None in a closed loop, where a request is due when the one before it is answered."""
    lags = [(s.started_s - s.due_s) * 1000 for s in samples if s.due_s is not None]
    return max(0.0, *lags) if lags else None


def _share(part: float, whole: int) -> float | None:
    return part / whole if whole else None


def _p50_p95(values: Iterable[float | None]) -> tuple[float | None, float | None]:
    """Percentiles with linear interpolation; None where there are no values."""
    known = [value for value in values if value is not None]
    if not known:
        return None, None
    p50, p95 = np.percentile(known, [50, 95])
    return float(p50), float(p95)
