"""What is handed to users: the same objects in the command line's JSON and over REST."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

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
    """Figures over the confirm rounds of one arm (medians of the rounds' own figures).

    Cache hits, preemptions, queueing and looping text may be what a setting causes: they stand
    beside the result and are never corrected away.
    """

    tpot_ms_p50: float | None
    ttft_ms_p50: float | None
    ttft_ms_p95: float | None
    e2e_ms_p50: float | None
    e2e_ms_p95: float | None
    output_throughput_tok_s: float
    rounds: int
    requests: int
    mean_output_tokens: float | None = None
    prefix_cache_hit_share: float | None = None
    preemptions: int = 0
    queue_ms_mean: float | None = None
    looping_share: float | None = None


class Interval(Answer):
    """A value with its 95 % interval; bounds are null where they can't be told."""

    model_config = ConfigDict(from_attributes=True)

    value: float
    low: float | None
    high: float | None


class Drafting(Answer):
    """How well drafts were met, pooled over the confirm rounds.

    ``acceptance_at_position`` is accepted there / drafts; ``conditional_acceptance_at_position`` is
    accepted there / accepted at the position before it.
    """

    model_config = ConfigDict(from_attributes=True)

    acceptance_length: Interval
    acceptance_at_position: tuple[Interval, ...]
    conditional_acceptance_at_position: tuple[Interval | None, ...]
    tokens_per_decode_step: Interval | None
    draft_coverage: Interval | None


class Slice(Answer):
    """A kind of prompt, or prompts of a length: the finalist against the baseline on those alone.

    ``requests`` are of one arm; acceptance and tokens per decode step are the finalist's.
    """

    by: str
    name: str
    requests: int
    tpot_ms_p50: float | None
    baseline_tpot_ms_p50: float | None
    tpot_speedup: Interval | None
    acceptance_length: Interval | None
    tokens_per_decode_step: Interval | None


class SameText(Answer):
    """Whether the candidate's text is the target's own, and how that was seen."""

    worse: bool
    reason: str


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
    """A finalist that was measured too and is not recommended, with its numbers and why."""

    speculative_config: dict[str, Any]
    speedup: Speedup
    measured: Measured | None = None
    drafting: Drafting | None = None
    sameness: SameText | None = None
    reason: str = ""


class BreakEven(Answer):
    """Between two measured loads, ``on_at`` and ``off_at``, a setting's speed-up falls below 1.

    Estimated by interpolation: ``concurrency`` is requests under way (closed loop),
    ``requests_per_s`` what that comes to as a rate (open loop).
    """

    speculative_config: dict[str, Any]
    on_at: str
    off_at: str
    concurrency: float
    requests_per_s: float


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
    max_concurrency: float | None = None
    baseline_kv_cache_tokens: int | None = None
    drafting: Drafting | None = None
    breakdown: list[Slice] = Field(default_factory=list)
    sameness: SameText | None = None
    pairs: int = 0
    stopped_because: str | None = None
    cost: Cost | None
    confirmed: bool
    considered: list[Considered]
    break_even: BreakEven | None = None
    evidence: Evidence
    engine: EngineName
    hardware: str
    workload: WorkloadName
    measured_at: datetime
    warnings: list[str]


class Recommendations(Answer):
    """One recommendation per load."""

    recommendations: list[Recommendation]


Verdict = Literal["holds", "lost", "changed"]


class Verification(Answer):
    """A stored answer, measured again beside the baseline at its load.

    ``speculative_config`` is the answer's, null for off; ``verified_config`` is what was started:
    that, or for off the best candidate of then, null where there was none. The answer ``holds``
    where its setting is still better than off by more than the noise and the intervals of now and
    then overlap, or where off still is not beaten. It is ``changed`` where they do not overlap, or
    off is beaten now; ``lost`` where its setting is not shown to be better than off any more, does
    not run, or no longer gives the target's own text. ``differences`` say what else is not as it
    was when the answer was measured, at ``stored_measured_at``.
    """

    study: str
    target: str
    objective: str
    load: Load
    speculative_config: dict[str, Any] | None
    verified_config: dict[str, Any] | None
    outcome: Verdict
    reason: str
    speedup: Speedup | None
    stored_speedup: Speedup | None
    measured: Measured | None
    baseline: Measured | None
    sameness: SameText | None = None
    pairs: int
    stopped_because: str | None
    differences: list[str]
    evidence: Evidence
    engine: EngineName
    hardware: str
    workload: WorkloadName
    measured_at: datetime
    stored_measured_at: datetime
    warnings: list[str]


class Verifications(Answer):
    """One verification per answer."""

    verifications: list[Verification]
