"""Whether two measurements may be compared at all."""

from __future__ import annotations

from tuner.errors import IncomparableError
from tuner.records import Measurement

LATE_GAPS = 1.0
"""A request sent later than this many mean gaps came after the next was due: another load."""

LEAST_LATE_MS = 50.0
"""What a busy machine may be late by, whatever the gap."""


def require_comparable(
    baseline: Measurement,
    candidate: Measurement,
    baseline_version: str | None = None,
    candidate_version: str | None = None,
) -> None:
    """Raises IncomparableError, saying what differs, unless both were asked the same of the same.

    The versions are what the engines' own logs say; one that is not known is not held against it.
    What a setting may itself cause (prefix hits, preemptions, queueing) is no reason to refuse: it
    is reported beside the result.
    """
    differing = _differing(baseline, candidate, baseline_version, candidate_version)
    differing += [
        f"the client sent a request of the {arm} {figures.max_send_lag_ms:.0f} ms late, at a mean "
        f"gap of {_mean_gap_ms(measured):.0f} ms"
        for arm, measured in (("baseline", baseline), ("candidate", candidate))
        if (figures := measured.figures).max_send_lag_ms is not None
        and figures.max_send_lag_ms > max(LATE_GAPS * _mean_gap_ms(measured), LEAST_LATE_MS)
    ]
    if differing:
        raise IncomparableError(
            f"measurements {baseline.id} and {candidate.id} cannot be compared: "
            + "; ".join(differing)
        )


def _differing(
    baseline: Measurement,
    candidate: Measurement,
    baseline_version: str | None,
    candidate_version: str | None,
) -> list[str]:
    told = [
        ("load", str(baseline.load), str(candidate.load)),
        ("prompts and arrivals (sha256)", baseline.plan_sha256, candidate.plan_sha256),
        ("target, host, engine or workload (context)", baseline.context, candidate.context),
    ]
    if baseline_version and candidate_version:
        told.append(("engine version", baseline_version, candidate_version))
    return [f"{what}: {ours} and {theirs}" for what, ours, theirs in told if ours != theirs]


def _mean_gap_ms(measured: Measurement) -> float:
    """Of an open loop: from its rate, or, where arrivals were recorded, from what was sent."""
    rate = measured.load.request_rate
    if isinstance(rate, float):
        return 1000 / rate
    return 1000 * measured.figures.duration_s / max(measured.figures.requests, 1)
