"""The fake's language: words that mean nothing, and a target that knows what comes next.

The next token follows from the two before it alone, so text can be scored from any place on. The
rule is a linear recurrence modulo a prime with a primitive characteristic polynomial: from any
start it passes through all pairs of tokens, about a million, before it repeats itself.
"""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise

OWN = 1009
"""Tokens of its own, ids from 0; a prime. Others stand for words that it only finds in prompts."""

VOCABULARY = 1 << 16
"""Number of token ids, own and foreign."""

LAST, BEFORE = 300, 514
"""x² = LAST x + BEFORE has roots of order OWN² - 1."""

WRONG = 16
"""So many tokens after the best and the runner-up are what a corrupting engine says instead."""

BENIGN_GAP, CORRUPT_GAP, NOISE_GAP = 0.7, 8.0, 14.0
"""Nats by which the runner-up, a wrong one, and all other own tokens lie below the best."""

BEST_LOGPROB = -math.log(
    1
    + math.exp(-BENIGN_GAP)
    + WRONG * math.exp(-CORRUPT_GAP)
    + (OWN - 2 - WRONG) * math.exp(-NOISE_GAP)
)
FOREIGN_LOGPROB = -3.0
"""A foreign word's log-probability wherever it stands: that of ordinary text, not of noise."""

LOGPROBS = (
    BEST_LOGPROB,
    BEST_LOGPROB - BENIGN_GAP,
    *(BEST_LOGPROB - CORRUPT_GAP,) * WRONG,
    *(BEST_LOGPROB - NOISE_GAP,) * (OWN - 2 - WRONG),
)
"""By how far an own token stands after the best one, counted round."""

SYLLABLES = tuple(consonant + vowel for consonant in "bdfgjklmnprstvz" for vowel in "aeiou")


def word(token: int) -> str:
    """The word of an id; of a foreign one its number, since its word is not kept."""
    if token >= OWN:
        return f"#{token}"
    turn, first = divmod(token, len(SYLLABLES))
    return f"{SYLLABLES[first]}{SYLLABLES[(first + 11 * turn) % len(SYLLABLES)]}v"


IDS = {word(token): token for token in range(OWN)}


def encode(text: str) -> list[int]:
    """One id a word. A foreign word's depends on all that stands before it, so that prompts which
    end alike are answered differently.
    """
    ids = []
    digest = 0
    for part in text.split():
        digest = zlib.crc32(f" {part}".encode(), digest)
        ids.append(IDS.get(part, OWN + digest % (VOCABULARY - OWN)))
    return ids


def decode(ids: Sequence[int]) -> str:
    """The words, joined by blanks."""
    return " ".join(map(word, ids))


class FakeText:
    """The language of one seed; equal seeds have the same target."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._shift = random.Random(seed).randrange(OWN)  # noqa: S311
        # The recurrence has one start from which it would stand still.
        self._standstill = self._shift * pow(1 - LAST - BEFORE, -1, OWN) % OWN

    def next(self, before: int, last: int) -> int:
        """The target's token after these two."""
        token = (LAST * last + BEFORE * before + self._shift) % OWN
        if token == self._standstill == last:
            return (token + 1) % OWN
        return token

    def answer(
        self,
        prompt: Sequence[int],
        *,
        divergence: float = 0.0,
        corruption: float = 0.0,
        salt: str = "",
    ) -> Iterator[int]:
        """The tokens after a prompt, without end.

        A share ``corruption`` of them are wrong tokens, a share ``divergence`` of the others the
        runner-up. Which ones follows from seed, prompt and ``salt``.
        """
        chance = random.Random(f"{self._seed} {salt} {list(prompt)}").random  # noqa: S311
        off = corruption + (1 - corruption) * divergence
        before, last = (0, 0, *prompt)[-2:]
        while True:
            token = self.next(before, last)
            if off and (drawn := chance()) < off:
                away = 2 + int(chance() * WRONG) if drawn < corruption else 1
                token = (token + away) % OWN
            yield token
            before, last = last, token

    def generate(
        self,
        prompt: Sequence[int],
        n: int,
        *,
        divergence: float = 0.0,
        corruption: float = 0.0,
        salt: str = "",
    ) -> list[int]:
        """The first n tokens of :meth:`answer`."""
        endless = self.answer(prompt, divergence=divergence, corruption=corruption, salt=salt)
        return list(islice(endless, n))

    def score(self, ids: Sequence[int]) -> list[tuple[float, float]]:
        """For each token its log-probability and that of the likeliest there (nats).

        The first two are scored as if ids of 0 stood before them.
        """
        scores = []
        for (before, last), token in zip(pairwise((0, 0, *ids)), ids, strict=False):
            away = (token - self.next(before, last)) % OWN
            logprob = FOREIGN_LOGPROB if token >= OWN else LOGPROBS[away]
            scores.append((logprob, BEST_LOGPROB))
        return scores
