"""Whether a setting is better than the baseline, from pairs of rounds, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from scipy.special import stdtrit

from tuner.errors import Failure, FailureKind, RoundError
from tuner.records import Figures
from tuner.spec import Objective

CONFIDENCE = 0.95


def objective_value(figures: Figures, objective: Objective) -> float:
    """The figure that is compared: ms for a latency, tok/s for throughput.

    Cost is compared as throughput: at one price the two ratios are the same. Raises RoundError
    (REQUESTS_FAILED) where the round has no such figure, or it is 0 and has no ratio.
    """
    match objective:
        case "tpot_p50":
            value = figures.tpot_ms_p50
        case "e2e_p95":
            value = figures.e2e_ms_p95
        case "output_throughput" | "cost_per_million_output_tokens":
            value = figures.output_throughput_tok_s
    if not value:
        answered = f"{figures.requests} requests, {figures.output_tokens} output tokens"
        message = f"{objective} can't be told from this round ({answered})"
        raise RoundError(Failure(FailureKind.REQUESTS_FAILED, message))
    return value


def log_ratio(baseline: Figures, candidate: Figures, objective: Objective) -> float:
    """The log of the speed-up, positive where the candidate is better. Raises RoundError."""
    ratio = math.log(objective_value(candidate, objective) / objective_value(baseline, objective))
    lower_is_better = objective in {"tpot_p50", "e2e_p95"}
    return -ratio if lower_is_better else ratio


def pairs_needed(first: Sequence[float], precision: float, confidence: float = CONFIDENCE) -> int:
    """How many pairs in all, the first ones included, for a half-width of log(1 + precision).

    Stein's two-stage rule: the variance of the first pairs alone decides how many follow, so that
    stein_interval keeps its coverage whatever the true variance is. Needs two pairs.

    C. Stein, "A two-sample test for a linear hypothesis whose power is independent of the
    variance", Annals of Mathematical Statistics 16(3), 1945, 243-258.
    """
    needed = (_half_width(first, 1, confidence) / math.log1p(precision)) ** 2
    return max(len(first), math.ceil(needed))


def stein_interval(
    log_ratios: Sequence[float], n_first: int, confidence: float = CONFIDENCE
) -> tuple[float, float, float]:
    """Mean, low and high after Stein's rule: the mean over all pairs, the spread of the first.

    Valid for every number of pairs that only the first ones' spread decided, so also where a limit
    cut pairs_needed short; the interval is then wider than was wanted.
    """
    mean = fmean(log_ratios)
    half = _half_width(log_ratios[:n_first], len(log_ratios), confidence)
    return mean, mean - half, mean + half


def _half_width(spread_of: Sequence[float], pairs: int, confidence: float) -> float:
    """Student's t times the standard error of ``pairs`` values that spread as ``spread_of`` do."""
    quantile = float(stdtrit(len(spread_of) - 1, (1 + confidence) / 2))
    return quantile * stdev(spread_of) / math.sqrt(pairs)
