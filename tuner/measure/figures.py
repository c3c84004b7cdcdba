"""A round's figures: latencies from its requests, acceptance from the server's counters."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tuner.errors import Failure, FailureKind, RoundError
from tuner.records import Counters, Figures, Round


def figures(round_: Round, counters: Counters) -> Figures:
    """What a round comes to; failed requests are left out.

    Counts are pooled over the round, never averaged as percentages. Nothing drafted, or no decode
    step, gives None. Raises RoundError when no request was answered.
    """
    answered = [s for s in round_.samples if s.error is None and s.completion_tokens]
    if not answered or round_.duration_s <= 0:
        message = f"none of {len(round_.samples)} requests was answered"
        raise RoundError(Failure(FailureKind.REQUESTS_FAILED, message))
    output_tokens = sum(s.completion_tokens or 0 for s in answered)
    tpot_ms_p50, tpot_ms_p95 = _p50_p95(s.tpot_ms for s in answered)
    ttft_ms_p50, ttft_ms_p95 = _p50_p95(s.ttft_ms for s in answered)
    e2e_ms_p50, e2e_ms_p95 = _p50_p95(s.e2e_ms for s in answered)
    length, at_position = acceptance(counters)
    per_step, coverage = decoding(output_tokens, len(answered), counters)
    return Figures(
        requests=len(answered),
        duration_s=round_.duration_s,
        output_tokens=output_tokens,
        output_throughput_tok_s=output_tokens / round_.duration_s,
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
    )


def acceptance(counters: Counters) -> tuple[float | None, tuple[float, ...] | None]:
    """Acceptance length, and acceptance at each position; None where nothing was drafted."""
    if counters.drafts == 0:
        return None, None
    at_position = tuple(n / counters.drafts for n in counters.accepted_at_position)
    return 1 + counters.accepted_tokens / counters.drafts, at_position


def decoding(
    output_tokens: int, requests: int, counters: Counters
) -> tuple[float | None, float | None]:
    """Tokens per decode step, and draft coverage; None where there is nothing to divide by.

    A decode step is a request's share of an engine step after its prefill: the prefill gives a
    request's first token, and each decode step gives one token and those accepted. vLLM counts
    accepted tokens before it cuts an answer at its length, so what rests on them is a little too
    high (2-5 % at 64 output tokens).
    """
    tokens = output_tokens - requests
    steps = tokens - counters.accepted_tokens
    if steps <= 0:
        return None, None
    coverage = min(1.0, counters.drafts / steps) if counters.drafts else None
    return tokens / steps, coverage


def _p50_p95(values: Iterable[float | None]) -> tuple[float | None, float | None]:
    """Percentiles with linear interpolation; None where there are no values."""
    known = [value for value in values if value is not None]
    if not known:
        return None, None
    p50, p95 = np.percentile(known, [50, 95])
    return float(p50), float(p95)
