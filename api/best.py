"""The best of several studies' answers."""

from __future__ import annotations

import math
from collections.abc import Iterable

from tuner.answers import Recommendation
from tuner.records import Setting


def best(answers: Iterable[Recommendation]) -> list[Recommendation]:
    """Per objective and load the answer with the best measured value, ordered by both.

    A tie goes to the simpler setting (off, then the smaller k), then to the newer measurement; an
    answer without a value comes last. Raises ValueError on an objective it doesn't know.
    """
    found: dict[tuple[str, str], Recommendation] = {}
    for answer in sorted(answers, key=_rank):
        found.setdefault((answer.objective, answer.load.key), answer)
    return sorted(found.values(), key=lambda answer: (answer.objective, *answer.load.place))


def _rank(answer: Recommendation) -> tuple[float, int, float]:
    """Smaller is better."""
    value = _to_minimise(answer)
    return (
        math.inf if value is None else value,
        Setting.of(answer.speculative_config).k,
        -answer.measured_at.timestamp(),
    )


def _to_minimise(answer: Recommendation) -> float | None:
    match answer.objective:
        case "tpot_p50":
            return answer.measured.tpot_ms_p50
        case "e2e_p95":
            return answer.measured.e2e_ms_p95
        case "output_throughput":
            return -answer.measured.output_throughput_tok_s
        case "cost_per_million_output_tokens":
            return answer.cost.usd_per_million_output_tokens if answer.cost else None
        case objective:
            raise ValueError(f"study {answer.study} has an unknown objective: {objective}")
