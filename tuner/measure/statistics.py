"""What is compared between two rounds: the objective's figure, as a log ratio."""

from __future__ import annotations

import math

from tuner.errors import Failure, FailureKind, RoundError
from tuner.records import Figures
from tuner.spec import Objective


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
