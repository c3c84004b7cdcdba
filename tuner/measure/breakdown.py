"""A comparison by kind of prompt and by prompt length: one speed-up does not fit all."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Literal

from tuner.measure.drafting import is_finished, request_drafting
from tuner.records import Estimate, RequestSample

BUCKETS = (64, 256, 1024, 4096)
"""Upper ends, in prompt tokens; the last bucket is open."""

Pair = tuple[Sequence[RequestSample], Sequence[RequestSample]]
"""The samples of a pair's two rounds: baseline, candidate."""

Interval = Callable[[Sequence[float]], Estimate]
"""Makes an estimate of one log ratio a pair."""

By = Literal["kind", "prompt_tokens"]
Answers = tuple[RequestSample, RequestSample]
"""The same prompt's answers by baseline and candidate."""

_Place = tuple[By, int, str]
"""Of a slice among the others: by what it is, its rank there, its name."""


@dataclass(frozen=True)
class Slice:
    """A part of a comparison's traffic: a kind, or a bucket of prompt lengths (``<=256``).

    ``requests`` are answers of each arm, over all pairs. ``log_ratio`` is the mean over pairs of
    the mean log ratio of the TPOTs of a prompt, baseline over candidate: positive where the
    candidate is faster. What is None can't be told; the last two, the candidate's, are None too
    where nothing was drafted or the server gave no account of each answer.
    """

    by: By
    name: str
    requests: int
    baseline_tpot_ms_p50: float | None
    candidate_tpot_ms_p50: float | None
    log_ratio: Estimate | None
    acceptance_length: Estimate | None
    tokens_per_decode_step: Estimate | None


def breakdown(pairs: Sequence[Pair], interval: Interval) -> tuple[Slice, ...]:
    """Slices by kind, in the alphabet's order, then by prompt length, short to long.

    Only counted requests that both arms of a pair answered are in it. ``interval`` should be the
    comparison's own, so that it holds under the rule that stopped the comparison.
    """
    parts: dict[_Place, dict[int, list[Answers]]] = defaultdict(lambda: defaultdict(list))
    for number, pair in enumerate(pairs):
        for answers in _matched(*pair):
            for place in _places(answers[0]):
                parts[place][number].append(answers)
    return tuple(_slice(place, list(parts[place].values()), interval) for place in sorted(parts))


def _matched(
    baseline: Sequence[RequestSample], candidate: Sequence[RequestSample]
) -> Iterator[Answers]:
    """Answers to the same prompt; one that was sent several times is matched in order."""
    waiting: dict[str, deque[RequestSample]] = defaultdict(deque)
    for sample in _counted(baseline):
        waiting[sample.prompt_id].append(sample)
    for sample in _counted(candidate):
        if waiting[sample.prompt_id]:
            yield waiting[sample.prompt_id].popleft(), sample


def _counted(samples: Sequence[RequestSample]) -> Iterator[RequestSample]:
    return (s for s in samples if s.counted and is_finished(s))


def _places(sample: RequestSample) -> Iterator[_Place]:
    yield "kind", 0, sample.kind
    if (length := sample.prompt_tokens) is not None:
        rank = bisect_left(BUCKETS, length)
        open_end = f">{BUCKETS[-1]}"
        yield "prompt_tokens", rank, f"<={BUCKETS[rank]}" if rank < len(BUCKETS) else open_end


def _slice(place: _Place, pairs: Sequence[Sequence[Answers]], interval: Interval) -> Slice:
    by, _, name = place
    answers = [both for of_pair in pairs for both in of_pair]
    candidates = [candidate for _, candidate in answers]
    log_ratios = [mean for of_pair in pairs if (mean := _mean_log_ratio(of_pair)) is not None]
    drafted = request_drafting(candidates)
    return Slice(
        by=by,
        name=name,
        requests=len(answers),
        baseline_tpot_ms_p50=_middle(baseline.tpot_ms for baseline, _ in answers),
        candidate_tpot_ms_p50=_middle(candidate.tpot_ms for candidate in candidates),
        log_ratio=interval(log_ratios) if log_ratios else None,
        acceptance_length=drafted.acceptance_length if drafted else None,
        tokens_per_decode_step=drafted.tokens_per_decode_step if drafted else None,
    )


def _mean_log_ratio(answers: Sequence[Answers]) -> float | None:
    ratios = [
        math.log(slow / fast)
        for baseline, candidate in answers
        if (slow := baseline.tpot_ms) and (fast := candidate.tpot_ms)
    ]
    return fmean(ratios) if ratios else None


def _middle(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
