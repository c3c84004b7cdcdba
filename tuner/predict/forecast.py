"""What every setting of a study would come to at every load: acceptance over step time.

    speed-up = tokens / ((1 - prefill) * step + prefill * tokens * (1 + draft cost))

with ``tokens`` per decode step and the decode-only ``step`` over the baseline's. ``prefill`` is the
share of the baseline's time between tokens that other requests' prefills take: in a closed loop
each answer is held up by as many of them however fast it comes, and a draft reads prompts too.

Tokens per decode step come from the screen where it could replay, and from what was measured;
step times from what was measured, and priors. Everything is in logarithms and carries its
uncertainty.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from scipy.optimize import brentq

from tuner.predict.baseline_steps import LoadCost
from tuner.predict.step_time import LEAST, Drafter, LogNormal, Point, StepTimes
from tuner.records import Screen, Setting
from tuner.spec import Load

ACCEPTANCE_UNKNOWN = 0.6
"""Chance of a drafted token to be accepted, where nothing is known of a draft."""

ACCEPTANCE_UNKNOWN_SD = 0.25
"""Of the logarithm of its tokens per decode step."""

TEXT_SD = 0.03
"""How far a proposer's tokens per decode step under load lie off the replayed ones, as a share:
other texts, and bfloat16 ties decided otherwise."""

STEP_SD = 0.6
"""Deviation of a verify step's tokens, as a share of their mean: geometric for a good draft."""


@dataclass(frozen=True)
class Seen:
    """A measured setting at a load.

    ``step_ratio`` is its tokens per decode step over its speed-up: the time of a step, prefills
    between steps included, against that of the baseline beside it, in which the luck of a text
    cancels; ``sd`` is of its logarithm. ``steps`` are its decode steps.
    """

    setting: Setting
    load: Load
    step_ratio: float
    sd: float
    tokens_per_decode_step: float
    draft_coverage: float | None
    steps: float


class Forecast:
    """Predicts settings from screens and what was seen."""

    def __init__(
        self,
        screens: Mapping[Setting, Screen],
        costs: Mapping[Load, LoadCost],
        seen: Sequence[Seen],
    ) -> None:
        self._screens = screens
        self._costs = costs
        self._seen: dict[str, list[Seen]] = defaultdict(list)
        for each in seen:
            self._seen[each.setting.proposer].append(each)
        self._coverage = _coverages(screens, seen)
        self._steps = StepTimes(costs, [self._point(each) for each in seen])

    def speedup(self, setting: Setting, load: Load) -> LogNormal:
        """Predicted, or for a setting that was seen there: what its measurement leaves unsure."""
        tokens, step = self.tokens_per_decode_step(setting), self.step_time(setting, load)
        decoding = (1 - self._costs[load].prefill) * step.value
        time = decoding + self._prefill(setting, load) * tokens.value
        mean = tokens.mean - math.log(time)
        return LogNormal(mean, decoding / time * math.hypot(tokens.sd, step.sd))

    def step_time(self, setting: Setting, load: Load) -> LogNormal:
        """Of a decode-only step, over the baseline's at the same load."""
        return self._steps.ratio(self._drafter(setting), self._drafted(setting), load)

    def break_even_tokens(self, setting: Setting, load: Load) -> float | None:
        """How many tokens a decode step must give to pay; None where none is enough."""
        left = 1 - self._prefill(setting, load)
        if left <= 0:
            return None
        return (1 - self._costs[load].prefill) * self.step_time(setting, load).value / left

    def _prefill(self, setting: Setting, load: Load) -> float:
        """Of other requests' prompts for each token, the draft's reading included, as a share of
        the baseline's time for a token.
        """
        return self._costs[load].prefill * (1 + self._drafter(setting).likely_cost)

    def tokens_per_decode_step(self, setting: Setting) -> LogNormal:
        """Of the workload's text."""
        seen = self._seen.get(setting.proposer, [])
        screen = self._screens.get(setting)
        if screen is None or screen.tokens_per_decode_step is None:
            return _unscreened(setting.k, seen)
        shift = self._shift(setting.proposer)
        return LogNormal(math.log(screen.tokens_per_decode_step.value) + shift.mean, shift.sd)

    def _shift(self, proposer: str) -> LogNormal:
        """How far a proposer's measured tokens per step lie off its screened ones: one number."""
        value, weight = 0.0, 1 / (TEXT_SD**2 + self._screen_sd(proposer) ** 2)
        for each in self._seen.get(proposer, []):
            screen = self._screens.get(each.setting)
            if screen is None or screen.tokens_per_decode_step is None:
                continue
            own = 1 / _counted_sd(each) ** 2
            off = math.log(each.tokens_per_decode_step / screen.tokens_per_decode_step.value)
            value, weight = value + own * off, weight + own
        return LogNormal(value / weight, math.sqrt(1 / weight))

    def _screen_sd(self, proposer: str) -> float:
        """Of the logarithm, from the widest interval among its settings."""
        widths = [
            (math.log(found.high) - math.log(found.low)) / 2 / 1.96
            for setting, screen in self._screens.items()
            if setting.proposer == proposer
            and (found := screen.tokens_per_decode_step)
            and found.low
            and found.high
        ]
        return max(widths, default=ACCEPTANCE_UNKNOWN_SD)

    def _point(self, seen: Seen) -> Point:
        """Without the prefills between its steps."""
        drafter, drafted = self._drafter(seen.setting), self._drafted(seen.setting)
        prefill = self._prefill(seen.setting, seen.load) * seen.tokens_per_decode_step
        decoding = max(seen.step_ratio - prefill, LEAST * seen.step_ratio)
        ratio = decoding / (1 - self._costs[seen.load].prefill)
        return Point(drafter, drafted, seen.load, ratio, seen.sd * seen.step_ratio / decoding)

    def _drafter(self, setting: Setting) -> Drafter:
        if setting.has_no_draft_model:
            return Drafter(setting.proposer, 0.0)
        screen = self._screens.get(setting)
        return Drafter(setting.proposer, screen.draft_cost if screen else None)

    def _drafted(self, setting: Setting) -> float:
        """Tokens drafted a decode step, replayed; else k in each of the steps that draft."""
        screen = self._screens.get(setting)
        if screen is not None and screen.drafted_per_decode_step is not None:
            return screen.drafted_per_decode_step
        return setting.k * self._coverage.get(setting, 1.0)


def _coverages(screens: Mapping[Setting, Screen], seen: Sequence[Seen]) -> dict[Setting, float]:
    """The share of decode steps that draft: screened, else measured."""
    measured = {s.setting: s.draft_coverage for s in seen if s.draft_coverage is not None}
    screened = {
        setting: screen.draft_coverage
        for setting, screen in screens.items()
        if screen.draft_coverage is not None
    }
    return measured | screened


def _counted_sd(seen: Seen) -> float:
    return STEP_SD / math.sqrt(max(seen.steps, 1.0))


def _unscreened(k: int, seen: Sequence[Seen]) -> LogNormal:
    """One chance for each drafted token, fitted to what was measured at other k."""
    chance = ACCEPTANCE_UNKNOWN
    sd = ACCEPTANCE_UNKNOWN_SD
    if seen:
        chance = fmean(acceptance_rate(s.tokens_per_decode_step, s.setting.k) for s in seen)
        nearest = min(abs(math.log((k + 1) / (s.setting.k + 1))) for s in seen)
        sd = math.hypot(TEXT_SD, 0.1 * nearest, min(_counted_sd(s) for s in seen))
    return LogNormal(math.log(geometric_tokens(chance, k)), sd)


def geometric_tokens(chance: float, k: int) -> float:
    """Tokens per verify step where each drafted token is accepted with one chance: 1 + p + … + p^k.

    Y. Leviathan, M. Kalman, Y. Matias, "Fast inference from transformers via speculative decoding",
    ICML 2023, equation 1.
    """
    return math.fsum(chance**n for n in range(k + 1))


def acceptance_rate(tokens_per_step: float, k: int) -> float:
    """The chance that ``geometric_tokens`` turns into so many tokens; 0 to 1."""
    if tokens_per_step <= 1:
        return 0.0
    if tokens_per_step >= k + 1:
        return 1.0
    return float(brentq(lambda p: geometric_tokens(p, k) - tokens_per_step, 0.0, 1.0))
