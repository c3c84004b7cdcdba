"""From replayed steps to what a setting would come to, with intervals over requests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tuner.predict.replay import Recorded, Step, uncut
from tuner.records import Estimate, Screen, Setting

DRAWS = 4000
"""Of the bootstrap."""

SEED = 20261130
"""One for all: two settings are compared over the same draws of requests."""

BOUNDS = (2.5, 97.5)
"""Percentiles of a 95 % interval."""

TOO_SHORT = "no recorded answer has a decode step"


@dataclass(frozen=True)
class _Answer:
    """What the decode steps of one answer come to.

    ``drafts`` and ``accepted`` leave out the last step, which the answer's end cuts: what it would
    have accepted beyond is not known.
    """

    kind: str
    steps: int
    tokens: int
    drafting_steps: int
    drafts: int
    accepted: int


def screened(
    setting: Setting,
    context: str,
    recorded: Sequence[Recorded],
    steps_per_answer: Sequence[Sequence[Step]],
    draft_cost: float | None,
) -> Screen:
    """A setting from its replayed steps, one list for each recorded answer.

    Numbers are ratios of sums over answers. Tokens per decode step are those of whole answers, as a
    client sees them: an end cuts a step of a large k short, so short answers gain less by it.
    """
    answers = [_counted(one, steps) for one, steps in zip(recorded, steps_per_answer, strict=True)]
    per_step = _tokens_per_decode_step(answers)
    if per_step is None:
        return not_replayed(setting, context, recorded, TOO_SHORT)
    kinds = dict.fromkeys(answer.kind for answer in answers)
    by_kind = {
        kind: _tokens_per_decode_step([answer for answer in answers if answer.kind == kind])
        for kind in kinds
    }
    drafts = [answer.drafts for answer in answers]
    return Screen(
        setting=setting,
        context=context,
        tokens_per_decode_step=per_step,
        acceptance_length=_ratio([answer.drafts + answer.accepted for answer in answers], drafts),
        draft_coverage=sum(answer.drafting_steps for answer in answers)
        / sum(answer.steps for answer in answers),
        by_kind={kind: estimate for kind, estimate in by_kind.items() if estimate},
        draft_cost=draft_cost,
        requests=len(recorded),
        tokens=sum(len(one.token_ids) for one in recorded),
        measurements=measurements(recorded),
    )


def not_replayed(
    setting: Setting, context: str, recorded: Sequence[Recorded], reason: str
) -> Screen:
    """A setting that the answers say nothing of, and why."""
    return Screen(setting, context, measurements=measurements(recorded), reason=reason)


def measurements(recorded: Iterable[Recorded]) -> tuple[str, ...]:
    """Where the answers come from, each once, in their order."""
    return tuple(dict.fromkeys(one.measurement for one in recorded))


def _counted(recorded: Recorded, steps: Sequence[Step]) -> _Answer:
    whole = uncut(steps)
    return _Answer(
        kind=recorded.kind,
        steps=len(steps),
        tokens=len(recorded.token_ids) - 1,
        drafting_steps=sum(step.drafted > 0 for step in steps),
        drafts=sum(step.drafted > 0 for step in whole),
        accepted=sum(step.accepted for step in whole),
    )


def _tokens_per_decode_step(answers: Sequence[_Answer]) -> Estimate | None:
    """No bounds where nothing was drafted: that another text is not met either is not known."""
    estimate = _ratio([answer.tokens for answer in answers], [answer.steps for answer in answers])
    drafted = any(answer.drafting_steps for answer in answers)
    return estimate if estimate is None or drafted else Estimate(estimate.value)


def _ratio(numerators: Sequence[int], denominators: Sequence[int]) -> Estimate | None:
    """The ratio of two sums over requests; None where the lower sum is 0.

    Its interval is that of the percentile bootstrap over the requests that have anything below the
    line (B. Efron and R. Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13). No
    bounds for fewer than two of those.
    """
    counts = np.array([numerators, denominators], dtype=float)
    counts = counts[:, counts[1] > 0]
    clusters = counts.shape[1]
    if not clusters:
        return None
    above, below = counts.sum(axis=1)
    value = float(above / below)
    if clusters < 2:  # noqa: PLR2004
        return Estimate(value)
    drawn = _draws(clusters) @ counts.T
    low, high = np.percentile(drawn[:, 0] / drawn[:, 1], BOUNDS)
    return Estimate(value, float(low), float(high))


@lru_cache(maxsize=32)
def _draws(clusters: int) -> NDArray[np.float64]:
    """How often each draw of the bootstrap takes each request."""
    random = np.random.default_rng(SEED)
    return random.multinomial(clusters, np.full(clusters, 1 / clusters), size=DRAWS).astype(float)
