"""What is handed to users: the same objects in the command line's JSON and over REST."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict

from tuner.spec import Load


class Answer(BaseModel):
    """Part of what is handed to users, the same in the command line's JSON and over REST."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Speedup(Answer):
    """A ratio against the baseline, above 1 where better, with its interval."""

    value: float
    low: float
    high: float
    confidence: float


class Measured(Answer):
    """Figures over the confirm rounds of one arm (medians of the rounds' own figures)."""

    tpot_ms_p50: float | None
    ttft_ms_p50: float | None
    ttft_ms_p95: float | None
    e2e_ms_p50: float | None
    e2e_ms_p95: float | None
    output_throughput_tok_s: float
    rounds: int
    requests: int


class Cost(Answer):
    """Dollars at the measured load: usd_per_hour / (tok/s * 3600) * 1e6."""

    usd_per_hour: float
    usd_per_million_output_tokens: float
    baseline_usd_per_million_output_tokens: float
    saving_usd_per_million_output_tokens: float
    saving_share: float


class EngineName(Answer):
    name: str
    version: str | None
    runner: str | None


class WorkloadName(Answer):
    name: str
    sha256: str


class Evidence(Answer):
    """Ids of the rows that an answer rests on."""

    engine_starts: list[str]
    measurements: list[str]


class Considered(Answer):
    """A finalist that was confirmed too, with its speed-up."""

    speculative_config: dict[str, Any]
    speedup: Speedup


class Recommendation(Answer):
    """The answer for one load. ``speculative_config`` is null where the answer is off."""

    study: str
    target: str
    objective: str
    load: Load
    speculative_config: dict[str, Any] | None
    engine_args: dict[str, Any]
    launch_command: list[str]
    environment: dict[str, str]
    speedup: Speedup
    measured: Measured
    baseline: Measured
    acceptance_length: float | None
    acceptance_at_position: list[float] | None
    tokens_per_decode_step: float | None
    kv_cache_tokens: int | None
    cost: Cost | None
    confirmed: bool
    considered: list[Considered]
    evidence: Evidence
    engine: EngineName
    hardware: str
    workload: WorkloadName
    measured_at: datetime
    warnings: list[str]


class Recommendations(Answer):
    """One recommendation per load."""

    recommendations: list[Recommendation]
