"""Whether an engine whose k was set live drafts and steps as a plain engine of that k does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.errors import Failure, FailureKind, RoundError
from tuner.measure.drafting import drafting, finished, request_tallies
from tuner.measure.measure import Measured
from tuner.measure.sequential import FIRST_PAIRS, interval_at
from tuner.records import Estimate

TOLERANCE = 0.05
"""Step times agree where the whole interval of their ratio lies within this of 1."""

MOST_PAIRS = 12
"""Where it stays open whether they agree; few enough for the interval of ``sequential``."""

Pair = tuple[Measured, Measured]
"""What the live engine and the plain one made of one plan."""


@dataclass(frozen=True)
class Agreement:
    """Both engines at one k.

    ``step_times`` are pairs of (live, plain) in ms. ``log_ratio`` is the mean log of live over
    plain, with an interval that holds whenever one stops measuring, None before FIRST_PAIRS.
    Acceptance lengths are pooled over the pairs, None where nothing was drafted.
    """

    k: int
    step_times: tuple[tuple[float, float], ...]
    log_ratio: Estimate
    live_acceptance_length: Estimate | None
    plain_acceptance_length: Estimate | None

    @property
    def same_step_time(self) -> bool | None:
        """Whether step times agree; None while both is possible."""
        low, high = self.log_ratio.low, self.log_ratio.high
        if low is None or high is None:
            return None
        within = math.log1p(TOLERANCE)
        if -within <= low and high <= within:
            return True
        return False if low > within or high < -within else None

    @property
    def same_acceptance(self) -> bool:
        """Whether acceptance lengths differ by no more than their intervals together explain."""
        live, plain = self.live_acceptance_length, self.plain_acceptance_length
        if live is None or plain is None or live.high is None or plain.high is None:
            return False
        explained = math.hypot(live.high - live.value, plain.high - plain.value)
        return abs(live.value - plain.value) <= explained

    @property
    def is_settled(self) -> bool:
        """Whether more pairs would make no difference, or there are as many as there may be."""
        pairs = len(self.step_times)
        return pairs >= MOST_PAIRS or (pairs >= FIRST_PAIRS and self.same_step_time is not None)

    @property
    def agrees(self) -> bool:
        return self.same_step_time is True and self.same_acceptance


def agreement(k: int, pairs: Sequence[Pair]) -> Agreement:
    """What the pairs measured so far say; at least one.

    Raises RoundError where a round has no step time.
    """
    step_times = tuple((step_ms(live), step_ms(plain)) for live, plain in pairs)
    return Agreement(
        k=k,
        step_times=step_times,
        log_ratio=interval_at([math.log(live / plain) for live, plain in step_times]),
        live_acceptance_length=_acceptance_length([live for live, _ in pairs]),
        plain_acceptance_length=_acceptance_length([plain for _, plain in pairs]),
    )


def step_ms(measured: Measured) -> float:
    """The mean time of a decode step: what answers took after their first token, by their steps.

    Where the server gave no account of their steps, median TPOT x tokens per decode step. Raises
    RoundError (REQUESTS_FAILED) where nothing was decoded.
    """
    decoded = [s for s in finished(measured.round.samples) if (s.completion_tokens or 0) > 1]
    tallies = request_tallies(decoded)
    if tallies is not None:
        took_ms = math.fsum((s.e2e_ms or 0.0) - (s.ttft_ms or 0.0) for s in decoded)
        found = took_ms / sum(tally.steps for tally in tallies)
    else:
        figures = measured.figures
        found = (figures.tpot_ms_p50 or 0.0) * (figures.tokens_per_decode_step or 0.0)
    if found <= 0:
        message = f"the step time can't be told from this round ({len(decoded)} answers)"
        raise RoundError(Failure(FailureKind.REQUESTS_FAILED, message))
    return found


def _acceptance_length(rounds: Sequence[Measured]) -> Estimate | None:
    found = drafting([(measured.counters, measured.round.samples) for measured in rounds])
    return None if found is None else found.acceptance_length
