"""What was seen: frozen records that travel between the rooms and rest in the store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from tuner.errors import Failure
from tuner.spec import Load, StudySpec, digest
from tuner.vllm import MODEL_FREE_METHODS, SCHEDULE


class Stage(StrEnum):
    """Where a study stands. It only moves forward, and any stage can be taken up again."""

    PREFLIGHT = "preflight"
    BASELINE = "baseline"
    SCREEN = "screen"
    EXPLORE = "explore"
    CONFIRM = "confirm"
    DONE = "done"


class Purpose(StrEnum):
    """Why something was measured. Only what served CONFIRM is ever reported.

    SCREEN: answers of the baseline, recorded to be replayed. LIVE_K: k was changed while the engine
    ran. VERIFY: a stored answer, measured again.
    """

    BASELINE = "baseline"
    SCREEN = "screen"
    EXPLORE = "explore"
    LIVE_K = "live_k"
    CONFIRM = "confirm"
    VERIFY = "verify"


@dataclass(frozen=True)
class Setting:
    """One speculative config, k included, as canonical JSON; ``null`` is off, one like others."""

    config: str

    @classmethod
    def of(cls, speculative_config: Mapping[str, Any] | None) -> Setting:
        value = None if speculative_config is None else dict(speculative_config)
        return cls(json.dumps(value, sort_keys=True, separators=(",", ":")))

    @property
    def speculative_config(self) -> dict[str, Any] | None:
        config: dict[str, Any] | None = json.loads(self.config)
        return config

    @property
    def key(self) -> str:
        """The canonical hash, 16 hex digits: equal exactly for equal configs."""
        return digest(self.speculative_config)[:16]

    @property
    def is_off(self) -> bool:
        return self.speculative_config is None

    @property
    def method(self) -> str:
        return "off" if self.is_off else str((self.speculative_config or {})["method"])

    @property
    def k(self) -> int:
        """``num_speculative_tokens``; 0 for off, for sorting only."""
        return int((self.speculative_config or {}).get("num_speculative_tokens", 0))

    @property
    def proposer(self) -> str:
        """The config without k, as canonical JSON: settings that differ in k alone share it."""
        config = self.speculative_config or {}
        return Setting.of({n: v for n, v in config.items() if n != "num_speculative_tokens"}).config

    @property
    def is_schedule(self) -> bool:
        """Whether k follows the number of requests."""
        return SCHEDULE in (self.speculative_config or {})

    @property
    def has_no_draft_model(self) -> bool:
        """Whether it proposes from the text alone."""
        return self.method in MODEL_FREE_METHODS

    @property
    def label(self) -> str:
        """Short and readable: ``draft_model draft-noise-0.1 k=3``."""
        config = self.speculative_config
        if config is None:
            return "off"
        words = [config["method"]]
        if model := config.get("model"):
            words.append(str(model).rstrip("/").rpartition("/")[2])
        words.append(f"k={self.k}")
        shown = {"method", "model", "num_speculative_tokens"}
        words += [f"{name}={value}" for name, value in sorted(config.items()) if name not in shown]
        return " ".join(words)


OFF = Setting.of(None)


@dataclass(frozen=True)
class HostFacts:
    """What the engine ran on. ``device`` is ``cpu`` or ``cuda``."""

    device: str
    cpu_model: str
    cpus: int
    memory_bytes: int
    gpus: tuple[str, ...] = ()
    driver: str | None = None

    def __str__(self) -> str:
        if self.gpus:
            return f"{len(self.gpus)} x {self.gpus[0]} (driver {self.driver})"
        return f"CPU: {self.cpus} x {self.cpu_model}"


@dataclass(frozen=True)
class EngineFacts:
    """What is installed where the engine runs, asked before any start; None where unknown."""

    name: str
    version: str | None = None
    has_serve_script: bool = False
    packages: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Context:
    """What a measurement depends on beside setting and load; measurements are reused by it."""

    target: str
    target_digest: str
    host: HostFacts
    engine: EngineFacts
    baseline_argv: tuple[str, ...]
    env: Mapping[str, str]
    workload_sha256: str

    @property
    def digest(self) -> str:
        return digest(
            {
                "target": self.target_digest,
                "host": [
                    self.host.device,
                    self.host.cpu_model,
                    self.host.cpus,
                    self.host.gpus,
                    self.host.driver,
                ],
                "engine": [self.engine.name, self.engine.version, dict(self.engine.packages)],
                "argv": self.baseline_argv,
                "env": dict(self.env),
                "workload": self.workload_sha256,
            }
        )


@dataclass(frozen=True)
class StartedFacts:
    """What an engine's own log says of it once it is up; None where the log does not say."""

    version: str | None = None
    runner: str | None = None
    async_scheduling: bool | None = None
    graph_mode: str | None = None
    kv_cache_tokens: int | None = None
    max_concurrency: float | None = None


@dataclass(frozen=True)
class EngineStart:
    """One attempt to start a server, and what became of it."""

    id: str
    study: str
    context: str
    setting: Setting
    purpose: Purpose
    argv: tuple[str, ...]
    env: Mapping[str, str]
    started_at: datetime
    startup_s: float | None = None
    facts: StartedFacts = StartedFacts()
    log_path: str = ""
    log_tail: str = ""
    failure: Failure | None = None


@dataclass(frozen=True)
class RequestSample:
    """One request as the client saw it. ``started_s`` counts from the round's start.

    ``chunk_ms`` are the arrivals of the chunks that carried tokens, counted from when the request
    was sent; ``chunk_tokens`` says how many each carried, empty where the server returned no token
    ids. ``accepted_per_step`` and ``drafted_per_step`` are the server's own account of this
    request, one number per verify step, None where it gave none. ``due_s`` is when the plan would
    have had it sent, None in a closed loop. A request that is not ``counted`` kept the load up
    before or after those that are; the last of them were cut off.
    """

    prompt_id: str
    kind: str
    started_s: float
    ttft_ms: float | None = None
    e2e_ms: float | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    finish_reason: str | None = None
    text: str = ""
    error: str | None = None
    counted: bool = True
    chunk_ms: tuple[float, ...] = ()
    chunk_tokens: tuple[int, ...] = ()
    prompt_token_ids: tuple[int, ...] = ()
    token_ids: tuple[int, ...] = ()
    accepted_per_step: tuple[int, ...] | None = None
    drafted_per_step: tuple[int, ...] | None = None
    due_s: float | None = None

    @property
    def tpot_ms(self) -> float | None:
        """(E2E - TTFT) / (completion tokens - 1), as vLLM's benchmark defines it."""
        gaps = (self.completion_tokens or 0) - 1
        if self.ttft_ms is None or self.e2e_ms is None or gaps < 1:
            return None
        return (self.e2e_ms - self.ttft_ms) / gaps


@dataclass(frozen=True)
class Round:
    """One pass of the workload at one load, in the order the requests were sent.

    Everything about a round follows from its samples.
    """

    load: Load
    samples: tuple[RequestSample, ...]

    @property
    def counted(self) -> tuple[RequestSample, ...]:
        """The requests that were sent while the load was at its level."""
        return tuple(sample for sample in self.samples if sample.counted)

    @property
    def window_s(self) -> tuple[float, float]:
        """From when the first counted request was sent to the last token of any of them.

        (0, 0) where none was answered.
        """
        answered = [s for s in self.counted if s.e2e_ms is not None]
        if not answered:
            return 0.0, 0.0
        end = max(s.started_s + (s.e2e_ms or 0.0) / 1000 for s in answered)
        return min(s.started_s for s in self.counted), end


@dataclass(frozen=True)
class Counters:
    """Differences of the server's counters over a round, summed over its engines."""

    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    accepted_at_position: tuple[int, ...] = ()
    generation_tokens: int = 0
    prompt_tokens: int = 0
    prefix_cache_queries: int = 0
    prefix_cache_hits: int = 0
    preemptions: int = 0
    queued_requests: int = 0
    queue_time_s: float = 0.0


@dataclass(frozen=True)
class Figures:
    """What a round comes to. None, never 0 or NaN, where there was nothing to divide by.

    Latencies are of the counted requests; ``output_tokens`` and throughput are of every token that
    arrived between the first counted request and the end of the last (``duration_s``).
    ``looping_share`` is the share of counted output tokens that only repeat what stands before
    them. ``max_send_lag_ms`` is by how much the client was late at worst (open loop).
    """

    requests: int
    duration_s: float
    output_tokens: int
    output_throughput_tok_s: float
    tpot_ms_p50: float | None
    tpot_ms_p95: float | None
    ttft_ms_p50: float | None
    ttft_ms_p95: float | None
    e2e_ms_p50: float | None
    e2e_ms_p95: float | None
    acceptance_length: float | None
    acceptance_at_position: tuple[float, ...] | None
    tokens_per_decode_step: float | None
    draft_coverage: float | None
    prefix_cache_hit_share: float | None = None
    preemptions: int = 0
    queue_ms_mean: float | None = None
    looping_share: float | None = None
    mean_output_tokens: float | None = None
    max_send_lag_ms: float | None = None


@dataclass(frozen=True)
class Measurement:
    """A round's figures and counters, where they came from, and where its samples lie.

    ``order`` is 0 for the arm of a pair that was measured first; ``beside`` is the id of the pair's
    other measurement, None for a round measured alone. Where starts alternate, a pair's baseline
    was measured before the candidate and again after it: ``again`` is the id of the second round.
    ``plan_sha256`` is over what was sent: load, prompts and arrivals. ``requests_before`` had been
    answered by this engine start before the round, ``repeated_prompts`` of the round's own prompts
    among them: methods that remember answers (suffix) draft from that history.
    """

    id: str
    study: str
    context: str
    engine_start: str
    setting: Setting
    load: Load
    purpose: Purpose
    pair: int
    order: int
    beside: str | None
    figures: Figures
    counters: Counters
    measured_at: datetime
    warnings: tuple[str, ...] = ()
    samples_path: str = ""
    samples_sha256: str = ""
    again: str | None = None
    plan_sha256: str = ""
    requests_before: int = 0
    repeated_prompts: int = 0


@dataclass(frozen=True)
class ScoredText:
    """One answer, teacher-forced through the baseline engine.

    ``off_target`` of its ``tokens`` were neither what the target would have said nor near it;
    ``mean_logprob`` is the mean log-probability (nats) of its tokens under the target.
    """

    measurement: str
    request: int
    tokens: int
    off_target: int
    mean_logprob: float


@dataclass(frozen=True)
class Sameness:
    """Answers of both arms under the target, and whether the candidate's are clearly worse.

    ``reason`` says in a sentence what was compared and what came of it.
    """

    baseline: tuple[ScoredText, ...]
    candidate: tuple[ScoredText, ...]
    worse: bool
    reason: str


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval; ``low`` and ``high`` are None where it can't be told."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Screen:
    """What replaying the baseline's recorded answers says of a setting that was not started.

    Numbers are of decode steps at any load; intervals are over requests. ``by_kind`` has the tokens
    per decode step of each kind of prompt. ``draft_coverage`` is the share of the steps that draft,
    ``drafted_per_decode_step`` the tokens drafted in one on average: k where every step drafts k.
    ``draft_cost`` is the draft's parameters as a share of the target's, 0 for methods without a
    model, None where unknown. ``tokens`` were replayed, over ``requests`` answers of the
    ``measurements`` named. ``reason`` says why a setting can't be replayed; then all numbers are
    None.
    """

    setting: Setting
    context: str
    tokens_per_decode_step: Estimate | None = None
    acceptance_length: Estimate | None = None
    draft_coverage: float | None = None
    drafted_per_decode_step: float | None = None
    by_kind: Mapping[str, Estimate] = field(default_factory=dict)
    draft_cost: float | None = None
    requests: int = 0
    tokens: int = 0
    measurements: tuple[str, ...] = ()
    reason: str | None = None


@dataclass(frozen=True)
class Comparison:
    """A setting against the baseline at one load: the mean log ratio of the objective over pairs.

    ``log_ratio`` is positive where the setting is better, whatever the objective's direction.
    ``low`` and ``high`` are logs too. ``pairs`` names the measurements, (baseline, candidate) each.
    ``stopped_because`` is ``decided``, ``precise`` or ``limit``.
    """

    setting: Setting
    load: Load
    purpose: Purpose
    log_ratio: float
    low: float
    high: float
    confidence: float
    pairs: tuple[tuple[str, str], ...]
    stopped_because: str
    sameness: Sameness | None = None


@dataclass(frozen=True)
class SettingFailure:
    """A setting that could not be measured in a context, and why."""

    setting: Setting
    context: str
    failure: Failure
    engine_start: str | None
    failed_at: datetime


@dataclass(frozen=True)
class StudyRecord:
    """A study as the store has it. ``spent_s`` is working time over all sittings."""

    name: str
    spec: StudySpec
    stage: Stage
    context: str | None
    spent_s: float
    created_at: datetime
    updated_at: datetime
