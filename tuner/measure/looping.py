"""Text that goes round in circles: cheap to draft, so it flatters ngram and suffix."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile

from tuner.records import RequestSample

LONGEST_PERIOD = 64
"""In tokens. A loop of longer pieces is taken for text."""

TIMES = 3
"""How often a piece must stand there, the first time included, to be a loop."""


def looping_tokens(tokens: Sequence[object]) -> int:
    """How many tokens at the end only repeat what stands right before them.

    The end loops where a piece of at most LONGEST_PERIOD tokens stands there at least TIMES times
    in a row (the last time it may be cut off after that). The first of them does not count: it is
    text that was said once. Of several periods that fit, the one with the most repeated tokens.
    """
    backwards = tokens[::-1]
    most = 0
    for period in range(1, min(LONGEST_PERIOD, len(tokens) // TIMES) + 1):
        same = zip(backwards, backwards[period:], strict=False)
        repeated = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], same))
        if repeated >= (TIMES - 1) * period:
            most = max(most, repeated)
    return most


def looping_share(samples: Iterable[RequestSample]) -> float | None:
    """The share of all answers' tokens that are looping_tokens; words where no ids are known.

    The end-of-sequence token of an answer that stopped by itself is left out, else it would hide
    the loop before it. None where there are no tokens.
    """
    looping = everything = 0
    for sample in samples:
        tokens = _tokens(sample)
        looping += looping_tokens(tokens)
        everything += len(tokens)
    return looping / everything if everything else None


def _tokens(sample: RequestSample) -> Sequence[object]:
    if not sample.token_ids:
        return sample.text.split()
    return sample.token_ids[:-1] if sample.finish_reason == "stop" else sample.token_ids
