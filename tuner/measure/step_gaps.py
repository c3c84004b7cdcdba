"""How long decode steps take, told from those that other requests' prefills stand in."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from tuner.records import RequestSample


@dataclass(frozen=True)
class StepGaps:
    """Mean time from one chunk of an answer to its next, in ms: over all of them, and over those
    in which no other request waited for its first token, the decode-only steps.

    ``decode_only_ms`` is None where there was always one waiting.
    """

    all_ms: float
    decode_only_ms: float | None

    @property
    def prefill_share(self) -> float:
        """Of the time between tokens, what other requests' prefills take; 0 where not told."""
        if self.decode_only_ms is None:
            return 0.0
        return max(0.0, 1 - self.decode_only_ms / self.all_ms)


def step_gaps(samples: Sequence[RequestSample]) -> StepGaps | None:
    """Of the counted requests of a round; None where no answer has two chunks."""
    waits = _merged(_wait(sample) for sample in samples)
    ends = [end for _, end in waits]

    def is_clear(start: float, end: float) -> bool:
        place = bisect_right(ends, start)
        return place == len(waits) or waits[place][0] >= end

    every = [gap for sample in samples if sample.counted for gap in _gaps(sample)]
    if not every:
        return None
    clear = [end - start for start, end in every if is_clear(start, end)]
    return StepGaps(fmean(end - start for start, end in every), fmean(clear) if clear else None)


Span = tuple[float, float]
"""From, to, in ms from the round's start."""


def _wait(sample: RequestSample) -> Span:
    """From when it was sent to its first token."""
    sent = sample.started_s * 1000
    return sent, sent + (math.inf if sample.ttft_ms is None else sample.ttft_ms)


def _gaps(sample: RequestSample) -> Iterable[Span]:
    sent = sample.started_s * 1000
    return pairwise(sent + arrived for arrived in sample.chunk_ms)


def _merged(spans: Iterable[Span]) -> list[Span]:
    """Those that overlap as one, in their order."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return merged
