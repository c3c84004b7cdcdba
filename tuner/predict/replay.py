"""Recorded answers, decoded once more on paper: what a setting would have drafted and accepted.

With greedy drafting, vLLM's default, a drafted token is accepted exactly when it equals the token
that comes out, at any temperature: a one-hot draft's token x is accepted with probability p(x), and
what replaces a rejected one is drawn from p without x (speculative sampling: Leviathan, Kalman and
Matias, ICML 2023). So a recorded answer says of any draft what would have been accepted of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """One decode step: how many tokens were drafted, and how many of them accepted."""

    drafted: int
    accepted: int


@dataclass(frozen=True)
class Recorded:
    """An answer of the baseline, with the id of the measurement it comes from.

    ``kind`` is its prompt's; ``started_s`` is when it was asked for, from its round's start.
    """

    kind: str
    prompt_token_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    measurement: str
    started_s: float


Propose = Callable[[int], tuple[int, int]]
"""Asked at a place of an answer, with so many of its tokens known: how many tokens are drafted
there, and how many of them, from the first on, equal what comes next in the answer."""


def replay(tokens: int, propose: Propose) -> list[Step]:
    """The decode steps of an answer of so many ``tokens``.

    The prefill gives the first token. Each step then gives what it accepts of its draft and one
    token more. The answer's end cuts the last step: what it would have accepted beyond is not
    known, so it is to be left out (``uncut``) where acceptance is counted, in a replay as in what
    an engine says of its own steps.
    """
    steps = []
    at = 1
    while at < tokens:
        step = Step(*propose(at))
        steps.append(step)
        at += step.accepted + 1
    return steps


def uncut(steps: Sequence[Step]) -> Sequence[Step]:
    """All steps of an answer but the last."""
    return steps[:-1]


def replay_draft_model(agreements: Sequence[bool], k: int) -> list[Step]:
    """The decode steps with a draft model that drafts ``k`` tokens each time.

    ``agreements`` say of each token of the answer whether it is what the draft finds likeliest
    after all that stands before it. While a draft's tokens are those of the answer, that is what
    the draft itself goes on from, so one list serves every k.
    """
    runs = _runs(agreements)
    return replay(len(agreements), lambda at: (k, min(k, runs[at])))


def _runs(agreements: Sequence[bool]) -> list[int]:
    """For each place, how many agreements follow one another from there on."""
    runs = [0] * (len(agreements) + 1)
    for place in reversed(range(len(agreements))):
        runs[place] = runs[place + 1] + 1 if agreements[place] else 0
    return runs[:-1]


def met(draft: Sequence[int], coming: Sequence[int]) -> int:
    """How many tokens of a draft, from the first on, are those that come."""
    for place, (drafted, token) in enumerate(zip(draft, coming, strict=False)):
        if drafted != token:
            return place
    return min(len(draft), len(coming))
