"""vLLM's ngram, over text that is already there: what it drafts at each place of an answer.

Both of vLLM 0.32's model runners look for the longest piece, of ``prompt_lookup_min`` to
``prompt_lookup_max`` tokens, that ends the text and stands in it before, and draft what followed it
there. Of several places runner V1 takes the earliest, V2 the latest. V1 drafts only after a match
and no further than the text goes (``v1/spec_decode/ngram_proposer.py``); V2 always drafts k tokens,
and fills up with the last one of the text (``v1/worker/gpu/spec_decode/ngram/speculator.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from tuner.predict.replay import Step, met, replay

Runner = Literal["V1", "V2"]

DEFAULT_LOOKUP = 5
"""Both bounds, where a speculative config has neither; where it has one, that is both."""

NOWHERE = -1


def lookup_range(config: Mapping[str, Any]) -> tuple[int, int]:
    """``prompt_lookup_min`` and ``prompt_lookup_max`` as vLLM completes them."""
    least, most = config.get("prompt_lookup_min"), config.get("prompt_lookup_max")
    given = [bound for bound in (least, most) if bound is not None]
    if not given:
        return DEFAULT_LOOKUP, DEFAULT_LOOKUP
    return int(given[0]), int(given[-1])


class Ngram:
    """An answer to be drafted by ngram.

    What was found for a piece's length is kept, so that many settings cost little more than one.
    ``context_tokens`` is the engine's ``max_model_len``, None where it is not to bind.
    """

    def __init__(
        self,
        prompt: Sequence[int],
        answer: Sequence[int],
        runner: Runner,
        context_tokens: int | None = None,
    ) -> None:
        self._text = (*prompt, *answer)
        self._prompt_tokens = len(prompt)
        self._runner = runner
        self._context_tokens = context_tokens
        self._found: dict[int, list[int]] = {}

    def steps(self, least: int, most: int, k: int) -> list[Step]:
        """The decode steps of the answer."""

        def propose(at: int) -> tuple[int, int]:
            known = self._prompt_tokens + at
            draft = self.draft(known, least, most, k)
            return len(draft), met(draft, self._text[known : known + k])

        return replay(len(self._text) - self._prompt_tokens, propose)

    def draft(self, known: int, least: int, most: int, k: int) -> Sequence[int]:
        """What is drafted after the first ``known`` tokens of the text."""
        start = self._follows(known, least, most)
        found = () if start == NOWHERE else self._text[start : min(start + k, known)]
        if self._runner == "V2":
            return (*found, *[self._text[known - 1]] * (k - len(found)))
        if self._context_tokens is not None:
            return found[: max(self._context_tokens - known, 0)]
        return found

    def _follows(self, known: int, least: int, most: int) -> int:
        """Where the text goes on after the piece that was found, the longest one."""
        for length in range(most, least - 1, -1):
            if (start := self._places(length)[known]) != NOWHERE:
                return start
        return NOWHERE

    def _places(self, length: int) -> list[int]:
        """By how much of the text is known: where it goes on after its last ``length`` tokens."""
        if length not in self._found:
            self._found[length] = self._search(length)
        return self._found[length]

    def _search(self, length: int) -> list[int]:
        places = [NOWHERE] * (len(self._text) + 1)
        ends: dict[tuple[int, ...], int] = {}
        for known in range(length, len(self._text) + 1):
            piece = self._text[known - length : known]
            before = ends.setdefault(piece, known)
            if before != known:
                places[known] = before
                if self._runner == "V2":
                    ends[piece] = known
        return places
