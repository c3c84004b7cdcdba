"""From replayed steps to what a setting would come to, with intervals over requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter

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
    drafted: int
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
    decode_steps = sum(answer.steps for answer in answers)
    return Screen(
        setting=setting,
        context=context,
        tokens_per_decode_step=per_step,
        acceptance_length=_ratio(
            [(answer.kind, answer.drafts + answer.accepted, answer.drafts) for answer in answers]
        ),
        draft_coverage=sum(answer.drafting_steps for answer in answers) / decode_steps,
        drafted_per_decode_step=sum(answer.drafted for answer in answers) / decode_steps,
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
        drafted=sum(step.drafted for step in steps),
        drafts=sum(step.drafted > 0 for step in whole),
        accepted=sum(step.accepted for step in whole),
    )


def _tokens_per_decode_step(answers: Sequence[_Answer]) -> Estimate | None:
    """No bounds where nothing was drafted: that another text is not met either is not known."""
    estimate = _ratio([(answer.kind, answer.tokens, answer.steps) for answer in answers])
    drafted = any(answer.drafting_steps for answer in answers)
    return estimate if estimate is None or drafted else Estimate(estimate.value)


def _ratio(answers: Sequence[tuple[str, int, int]]) -> Estimate | None:
    """The ratio of two sums over answers, each with its kind; None where the lower sum is 0.

    Its interval is that of the percentile bootstrap over the answers that have anything below the
    line. Kinds of prompts are dealt in turns, so each is drawn from by itself: one answer fewer
    than it has, each counting the more for it (J. N. K. Rao and C. F. J. Wu, "Resampling inference
    with complex survey data", Journal of the American Statistical Association 83, 1988). No bounds
    for fewer than two answers.
    """
    counted = sorted([answer for answer in answers if answer[2] > 0], key=itemgetter(0))
    if not counted:
        return None
    counts = np.array([(above, below) for _, above, below in counted], dtype=float)
    above, below = counts.sum(axis=0)
    value = float(above / below)
    if len(counted) < 2:  # noqa: PLR2004
        return Estimate(value)
    of_kind = Counter(kind for kind, _, _ in counted)
    drawn = _draws(tuple(of_kind[kind] for kind in sorted(of_kind))) @ counts
    low, high = np.percentile(drawn[:, 0] / drawn[:, 1], BOUNDS)
    return Estimate(value, float(low), float(high))


@lru_cache(maxsize=32)
def _draws(of_kind: Sequence[int]) -> NDArray[np.float64]:
    """How often each draw takes each answer, of so many of each kind in turn.

    Kinds that were met once say nothing of how they differ within: they are drawn from together.
    """
    random = np.random.default_rng(SEED)
    kind = np.repeat(np.arange(len(of_kind)), of_kind)
    kind[np.repeat(of_kind, of_kind) == 1] = -1
    drawn = np.ones((DRAWS, len(kind)))
    for each in np.unique(kind):
        [own] = np.nonzero(kind == each)
        if (size := len(own)) > 1:
            chances = np.full(size, 1 / size)
            taken = random.multinomial(size - 1, chances, size=DRAWS)
            drawn[:, own] = taken * size / (size - 1)
    return drawn
