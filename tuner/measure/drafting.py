"""How drafting went: acceptance, tokens per decode step and draft coverage, with intervals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scipy.special import stdtrit

from tuner.records import Counters, Estimate, RequestSample

CONFIDENCE = 0.95

Rounds = Sequence[tuple[Counters, Sequence[RequestSample]]]
"""What the server counted over each round, and the round's samples."""

_SHARE = (0.0, 1.0)
_LENGTH = (1.0, math.inf)


@dataclass(frozen=True)
class Drafting:
    """What the drafts came to; each number with its interval, None where it can't be told.

    ``at_position[i]`` is the share of all drafts whose token ``i`` was accepted,
    ``conditional_at_position[i]`` that among the drafts whose tokens before it were. ``by`` says
    over what the intervals were taken, ``request`` or ``round``; ``clusters`` is how many those
    were.
    """

    acceptance_length: Estimate
    at_position: tuple[Estimate, ...]
    conditional_at_position: tuple[Estimate | None, ...]
    tokens_per_decode_step: Estimate | None
    draft_coverage: Estimate | None
    by: str
    clusters: int


@dataclass(frozen=True)
class Tally:
    """What one request, or one round, drafted and decoded.

    ``tokens`` and ``steps`` are of decoding: without the prefill, and the one token it gives.
    """

    drafts: int
    accepted: int
    accepted_at: tuple[int, ...]
    tokens: int
    steps: int

    def reached(self, accepted: int) -> int:
        """How many drafts had so many tokens accepted, or more."""
        if accepted == 0:
            return self.drafts
        return self.accepted_at[accepted - 1] if accepted <= len(self.accepted_at) else 0


def drafting(rounds: Rounds) -> Drafting | None:
    """Counts pooled over rounds (never averaged percentages); None where nothing was drafted.

    Where the server gave its account of every answer, the counts are of answers and the intervals
    over them; else both are of the rounds' counters, which also hold tokens accepted past an
    answer's end.
    """
    tallies = request_tallies([s for _, samples in rounds for s in samples])
    if tallies is not None:
        return _drafting(tallies, "request")
    return _drafting([round_tally(*round_) for round_ in rounds], "round")


def request_drafting(samples: Iterable[RequestSample]) -> Drafting | None:
    """As drafting, of any choice of requests (a kind's, say); None without per-step data too."""
    tallies = request_tallies(samples)
    return None if tallies is None else _drafting(tallies, "request")


def request_tallies(samples: Iterable[RequestSample]) -> list[Tally] | None:
    """One per answer that decoded; None unless the server gave its account of each of them."""
    decoded = [s for s in finished(samples) if (s.completion_tokens or 0) > 1]
    tallies = [
        _of_request(s, s.accepted_per_step) for s in decoded if s.accepted_per_step is not None
    ]
    return tallies if tallies and len(tallies) == len(decoded) else None


def finished(samples: Iterable[RequestSample]) -> list[RequestSample]:
    """Those that were answered to the end."""
    return [sample for sample in samples if is_finished(sample)]


def is_finished(sample: RequestSample) -> bool:
    """Neither failed nor cut off."""
    return sample.error is None and sample.finish_reason is not None


def round_tally(counters: Counters, samples: Iterable[RequestSample]) -> Tally:
    """A whole round's, padding included, from the counters.

    A decode step gives one token and those accepted. vLLM counts accepted tokens before it cuts an
    answer at its length, so the steps come out a little too few (2-5 % at 64 output tokens).
    """
    prefills = sum(s.ttft_ms is not None for s in samples)
    tokens = counters.generation_tokens - prefills
    return Tally(
        counters.drafts,
        counters.accepted_tokens,
        counters.accepted_at_position,
        tokens,
        tokens - counters.accepted_tokens,
    )


def _of_request(sample: RequestSample, accepted: tuple[int, ...]) -> Tally:
    return Tally(
        drafts=len(accepted),
        accepted=sum(accepted),
        accepted_at=tuple(
            sum(n > position for n in accepted) for position in range(max(accepted, default=0))
        ),
        tokens=(sample.completion_tokens or 1) - 1,
        steps=decode_steps(sample, accepted),
    )


def decode_steps(sample: RequestSample, accepted: Sequence[int]) -> int:
    """Decode steps of one answer whose verify steps accepted so many tokens each.

    Steps without a draft are in no account. A step gives one token and those accepted, but the last
    one is cut at the answer's end, so the answer's tokens alone leave as many possibilities as the
    last verify step accepted. Among those the chunks decide: there is one for each step, or fewer
    where the server sent several steps' tokens together. Exact but where it did that in an answer
    that was cut and had steps without a draft.
    """
    uncut = (sample.completion_tokens or 1) - 1 - sum(accepted)
    fewest = max(len(accepted), uncut)
    most = max(fewest, uncut + (accepted[-1] if accepted else 0))
    return min(max(token_chunks(sample) - 1, fewest), most)


def token_chunks(sample: RequestSample) -> int:
    """How many chunks carried tokens, as far as the server told."""
    return sum(carried > 0 for carried in sample.chunk_tokens) or len(sample.chunk_ms)


def _drafting(tallies: Sequence[Tally], by: str) -> Drafting | None:
    drafts = [t.drafts for t in tallies]
    length = ratio([t.drafts + t.accepted for t in tallies], drafts, _LENGTH)
    if length is None:
        return None
    depth = max(len(t.accepted_at) for t in tallies)
    reached = [[t.reached(accepted) for t in tallies] for accepted in range(depth + 1)]
    steps = [t.steps for t in tallies]
    return Drafting(
        acceptance_length=length,
        at_position=tuple(e for at in reached[1:] if (e := ratio(at, drafts, _SHARE))),
        conditional_at_position=tuple(
            ratio(here, before, _SHARE) for before, here in itertools.pairwise(reached)
        ),
        tokens_per_decode_step=ratio([t.tokens for t in tallies], steps, _LENGTH),
        draft_coverage=ratio(drafts, steps, _SHARE),
        by=by,
        clusters=len(tallies),
    )


def ratio(
    numerators: Sequence[int], denominators: Sequence[int], within: tuple[float, float]
) -> Estimate | None:
    """The ratio of two sums over clusters, with its 95 % interval; None where the lower sum is 0.

    The variance is that of the linearised ratio, n / (n - 1) times the sum of squared residuals
    over the squared lower sum, with Student's t of n - 1 degrees; no bounds for fewer than two
    clusters that have anything below the line. All three are kept ``within`` what is possible.

    W. G. Cochran, "Sampling Techniques", 3rd edition, Wiley 1977, chapter 6 (ratio estimators).
    """
    below = sum(denominators)
    if below <= 0:
        return None
    value = sum(numerators) / below
    n = sum(x > 0 for x in denominators)
    if n < 2:  # noqa: PLR2004
        return Estimate(_kept(value, within))
    squares = math.fsum((y - value * x) ** 2 for y, x in zip(numerators, denominators, strict=True))
    half = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2)) * math.sqrt(n / (n - 1) * squares) / below
    return Estimate(*(_kept(number, within) for number in (value, value - half, value + half)))


def _kept(number: float, within: tuple[float, float]) -> float:
    low, high = within
    return min(max(number, low), high)
