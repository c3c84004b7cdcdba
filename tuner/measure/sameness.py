"""Whether a candidate's answers are still the target's own text.

Speculation promises the target's text, but even without it a batch of another shape rounds
differently, so that near ties fall the other way. So a candidate is not held against perfection but
against the baseline, whose answers the same engine has scored in the same way.

The tokens of one answer are not independent: a request is the unit. Both tests are Welch's t, on
means over requests or, for the share of tokens that are off target, on the linearised ratio of two
sums over requests (W. G. Cochran, Sampling Techniques, 3rd edition, 1977, 6.4 and 9A.1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance

from scipy.special import stdtrit

from tuner.records import Sameness, ScoredText

FALSE_ALARMS = 0.01
"""How often at most a healthy candidate looks significantly worse in one test."""

LEAST_OFF_TARGET = 0.005
"""A difference of the shares off target that matters: one token in 200."""

LEAST_LOGPROB = 0.1
"""A loss of mean log-probability that matters, in nats."""

LEAST_LENGTH = 0.2
"""A change of the mean answer length that matters, as a share of the baseline's."""


def judge(
    baseline: Sequence[ScoredText], candidate: Sequence[ScoredText], *, temperature: float
) -> Sameness:
    """Whether the candidate's answers are clearly worse: significantly, and by enough to matter.

    At temperature 0 by the share of tokens that are off target; above it, where every token is
    drawn, by the mean log-probability of an answer and by its length. With fewer than two scored
    answers of either arm nothing can be told, which is not worse.
    """
    ours, theirs = ([text for text in arm if text.tokens] for arm in (baseline, candidate))
    if min(len(ours), len(theirs)) < 2:  # noqa: PLR2004
        told = f"{len(ours)} scored answers of the baseline and {len(theirs)} of the candidate"
        worse, reason = False, f"nothing can be told from {told}"
    elif temperature == 0:
        worse, reason = _off_target(ours, theirs)
    else:
        worse, reason = _drawn(ours, theirs)
    return Sameness(tuple(baseline), tuple(candidate), worse, reason)


def _off_target(
    baseline: Sequence[ScoredText], candidate: Sequence[ScoredText]
) -> tuple[bool, str]:
    ours, theirs = _share_off_target(baseline), _share_off_target(candidate)
    more = theirs.value - ours.value
    worse = more >= LEAST_OFF_TARGET and more > _noise(ours, theirs)
    return worse, (
        f"{theirs.value:.2%} of the candidate's {_tokens(candidate)} scored tokens are off target, "
        f"{ours.value:.2%} of the baseline's {_tokens(baseline)}: {_verdict(worse)}"
    )


def _drawn(baseline: Sequence[ScoredText], candidate: Sequence[ScoredText]) -> tuple[bool, str]:
    ours, theirs = (_mean([text.mean_logprob for text in arm]) for arm in (baseline, candidate))
    loss = ours.value - theirs.value
    less_likely = loss >= LEAST_LOGPROB and loss > _noise(ours, theirs)
    our_length, length = (_mean([text.tokens for text in arm]) for arm in (baseline, candidate))
    change = abs(length.value - our_length.value)
    other_length = change >= LEAST_LENGTH * our_length.value and change > _noise(
        our_length, length, sides=2
    )
    worse = less_likely or other_length
    return worse, (
        f"the candidate's {len(candidate)} scored answers have a mean log-probability of "
        f"{theirs.value:.2f} under the target and {length.value:.0f} tokens, "
        f"the baseline's {len(baseline)} {ours.value:.2f} and {our_length.value:.0f}: "
        f"{_verdict(worse)}"
    )


@dataclass(frozen=True)
class _Estimated:
    """A value, the variance of its error, and the degrees of freedom that this was found with."""

    value: float
    variance: float
    freedom: int


def _share_off_target(texts: Sequence[ScoredText]) -> _Estimated:
    tokens = _tokens(texts)
    share = sum(text.off_target for text in texts) / tokens
    squares = math.fsum((text.off_target - share * text.tokens) ** 2 for text in texts)
    requests = len(texts)
    return _Estimated(share, requests / (requests - 1) * squares / tokens**2, requests - 1)


def _mean(values: Sequence[float]) -> _Estimated:
    return _Estimated(fmean(values), variance(values) / len(values), len(values) - 1)


def _noise(one: _Estimated, other: _Estimated, *, sides: int = 1) -> float:
    """What a difference must exceed to be significant. Welch-Satterthwaite degrees of freedom."""
    total = one.variance + other.variance
    if total == 0:
        return 0.0
    freedom = total**2 / (one.variance**2 / one.freedom + other.variance**2 / other.freedom)
    return float(stdtrit(freedom, 1 - FALSE_ALARMS / sides)) * math.sqrt(total)


def _tokens(texts: Sequence[ScoredText]) -> int:
    return sum(text.tokens for text in texts)


def _verdict(worse: bool) -> str:
    return "clearly worse" if worse else "not clearly worse"
