"""Answers as the client keeps them, for tests that compute on them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from tuner.measure.caveats import arrived_tokens
from tuner.records import Counters, RequestSample

STEP_MS = 20.0
TTFT_MS = 100.0


def answered(
    chunks: Sequence[int],
    *,
    started_s: float = 0.0,
    ttft_ms: float = TTFT_MS,
    step_ms: float = STEP_MS,
    **others: Any,
) -> RequestSample:
    """An answer to the end: so many tokens in the prefill's chunk, then in each decode step's."""
    times = tuple(accumulate([ttft_ms, *[step_ms] * (len(chunks) - 1)]))
    values: dict[str, Any] = {
        "prompt_id": "p",
        "kind": "chat",
        "started_s": started_s,
        "ttft_ms": times[0],
        "e2e_ms": times[-1],
        "prompt_tokens": 9,
        "completion_tokens": sum(chunks),
        "finish_reason": "length",
        "chunk_ms": times,
        "chunk_tokens": tuple(chunks),
    }
    return RequestSample(**(values | others))


def cut_off(chunks: Sequence[int], *, started_s: float = 0.0, **others: Any) -> RequestSample:
    """Padding whose connection was closed when so much had arrived."""
    known = {"e2e_ms": None, "completion_tokens": None, "finish_reason": None, "counted": False}
    return answered(chunks, started_s=started_s, **(known | others))


def speculated(
    steps: Sequence[int | None], *, cut: int = 0, bundled: int = 0, **others: Any
) -> RequestSample:
    """An answer whose decode steps accepted so many tokens; None is a step without a draft.

    ``cut`` tokens of the last step lay past the answer's end. The last ``bundled`` steps came in
    one chunk with the step before them.
    """
    chunks = [1, *(1 + (n or 0) for n in steps)]
    chunks[-1] -= cut
    if bundled:
        chunks[-1 - bundled :] = [sum(chunks[-1 - bundled :])]
    accepted = tuple(n for n in steps if n is not None)
    account = {
        "accepted_per_step": accepted,
        "drafted_per_step": tuple(max(accepted, default=0) for _ in accepted),
    }
    return answered(chunks, **(account | others))


def counted(samples: Sequence[RequestSample], k: int) -> Counters:
    """What the server counts over these answers, whose drafts had k tokens; before it cuts."""
    accepted = [n for s in samples for n in s.accepted_per_step or ()]
    return Counters(
        drafts=len(accepted),
        draft_tokens=k * len(accepted),
        accepted_tokens=sum(accepted),
        accepted_at_position=tuple(sum(n > at for n in accepted) for at in range(k)),
        generation_tokens=arrived_tokens(samples),
    )
