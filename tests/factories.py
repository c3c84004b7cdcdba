"""Records for tests: sound ones, with any field replaced by keyword."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from typing import Any

from tuner.answers import (
    EngineName,
    Evidence,
    Measured,
    Recommendation,
    Speedup,
    Verification,
    WorkloadName,
)
from tuner.records import (
    OFF,
    Comparison,
    Context,
    Counters,
    EngineFacts,
    EngineStart,
    Estimate,
    Figures,
    HostFacts,
    Measurement,
    Purpose,
    RequestSample,
    Screen,
    Setting,
    StartedFacts,
)
from tuner.spec import Load, StudySpec
from tuner.store import Store

NGRAM = Setting.of({"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4})
DRAFT = Setting.of({"method": "draft_model", "model": "/models/draft", "num_speculative_tokens": 2})
NOON = datetime(2026, 5, 1, 12, 0, 0, 123456, tzinfo=UTC)

_numbers = count(1)


def study_spec(**changes: Any) -> StudySpec:
    values: dict[str, Any] = {
        "name": "chat",
        "target": {"model": "/models/target"},
        "engine": {"args": {"max_model_len": 2048, "dtype": "float32"}},
        "candidates": [{"method": "ngram", "k": [1, 3], "prompt_lookup_max": 4}],
        "loads": [{"concurrency": 4}, {"concurrency": 1}],
    }
    return StudySpec.model_validate({**values, **changes})


def request_sample(**changes: Any) -> RequestSample:
    """A finished answer of 9 tokens, one a chunk, without speculation."""
    value = RequestSample(
        prompt_id="p1",
        kind="chat",
        started_s=0.0,
        ttft_ms=50.0,
        e2e_ms=210.0,
        prompt_tokens=12,
        completion_tokens=9,
        finish_reason="length",
        text="one two three four five six seven eight nine",
        chunk_ms=tuple(50.0 + 20 * n for n in range(9)),
        chunk_tokens=(1,) * 9,
        prompt_token_ids=tuple(range(12)),
        token_ids=tuple(range(100, 109)),
    )
    return replace(value, **changes)


def context(**changes: Any) -> Context:
    value = Context(
        target="/models/target",
        target_digest="c0ffee",
        host=HostFacts("cpu", "A CPU", 2, 8_000_000_000),
        engine=EngineFacts("vllm", "0.32.0", packages={"torch": "2.13.0"}),
        baseline_argv=("vllm", "serve", "/models/target", "--max-model-len", "2048"),
        env={"VLLM_CPU_KVCACHE_SPACE": "1"},
        workload_sha256="ab" * 32,
    )
    return replace(value, **changes)


def engine_start(**changes: Any) -> EngineStart:
    value = EngineStart(
        id=f"start-{next(_numbers)}",
        study="chat",
        context=context().digest,
        setting=NGRAM,
        purpose=Purpose.EXPLORE,
        argv=("vllm", "serve", "/models/target"),
        env={"VLLM_CPU_KVCACHE_SPACE": "1"},
        started_at=NOON,
        startup_s=41.5,
        facts=StartedFacts("0.32.0", "V1", True, "none", 16384, 8.0),
        log_path="logs/start.log",
        log_tail="Application startup complete.",
    )
    return replace(value, **changes)


def figures(**changes: Any) -> Figures:
    value = Figures(
        requests=16,
        duration_s=12.5,
        output_tokens=2048,
        output_throughput_tok_s=163.84,
        tpot_ms_p50=21.7,
        tpot_ms_p95=25.1,
        ttft_ms_p50=48.3,
        ttft_ms_p95=77.0,
        e2e_ms_p50=2804.2,
        e2e_ms_p95=3264.7,
        acceptance_length=1.8,
        acceptance_at_position=(0.5, 0.2, 0.1),
        tokens_per_decode_step=1.7,
        draft_coverage=0.9,
    )
    return replace(value, **changes)


def counters(**changes: Any) -> Counters:
    value = Counters(
        drafts=1000,
        draft_tokens=3000,
        accepted_tokens=800,
        accepted_at_position=(500, 200, 100),
        generation_tokens=2048,
        prompt_tokens=512,
    )
    return replace(value, **changes)


def measurement(**changes: Any) -> Measurement:
    value = Measurement(
        id=f"measurement-{next(_numbers)}",
        study="chat",
        context=context().digest,
        engine_start="start",
        setting=NGRAM,
        load=Load(concurrency=4),
        purpose=Purpose.EXPLORE,
        pair=0,
        order=0,
        beside=None,
        figures=figures(),
        counters=counters(),
        measured_at=NOON,
    )
    return replace(value, **changes)


def pair(**changes: Any) -> tuple[Measurement, Measurement]:
    """(baseline, candidate), each beside the other."""
    baseline = measurement(setting=OFF, order=0, **changes)
    candidate = measurement(order=1, beside=baseline.id, **changes)
    return replace(baseline, beside=candidate.id), candidate


def screen(**changes: Any) -> Screen:
    value = Screen(
        setting=NGRAM,
        context=context().digest,
        tokens_per_decode_step=Estimate(1.75, 1.5, 2.0),
        acceptance_length=Estimate(2.25, 2.0, 2.5),
        draft_coverage=0.6,
        drafted_per_decode_step=2.4,
        by_kind={"chat": Estimate(1.5, 1.25, 1.75), "code": Estimate(2.0)},
        draft_cost=0.0,
        requests=48,
        tokens=6144,
        measurements=("m1", "m2"),
    )
    return replace(value, **changes)


def comparison(**changes: Any) -> Comparison:
    value = Comparison(
        setting=NGRAM,
        load=Load(concurrency=4),
        purpose=Purpose.EXPLORE,
        log_ratio=-0.02,
        low=-0.05,
        high=0.01,
        confidence=0.95,
        pairs=(("m1", "m2"), ("m3", "m4")),
        stopped_because="three pairs",
    )
    return replace(value, **changes)


def recommendation(**changes: Any) -> Recommendation:
    arm = Measured(
        tpot_ms_p50=21.7,
        ttft_ms_p50=48.3,
        ttft_ms_p95=77.0,
        e2e_ms_p50=2804.2,
        e2e_ms_p95=3264.7,
        output_throughput_tok_s=163.84,
        rounds=4,
        requests=64,
    )
    value = Recommendation(
        study="chat",
        target="/models/target",
        objective="tpot_p50",
        load=Load(concurrency=4),
        speculative_config=NGRAM.speculative_config,
        engine_args={"max_model_len": 2048},
        launch_command=["vllm", "serve", "/models/target"],
        environment={},
        speedup=Speedup(value=1.3, low=1.2, high=1.4, confidence=0.95),
        measured=arm,
        baseline=arm,
        acceptance_length=1.8,
        acceptance_at_position=[0.5, 0.2, 0.1],
        tokens_per_decode_step=1.7,
        kv_cache_tokens=16384,
        cost=None,
        confirmed=True,
        considered=[],
        evidence=Evidence(engine_starts=["start"], measurements=["m1", "m2"]),
        engine=EngineName(name="vllm", version="0.32.0", runner="V1"),
        hardware="CPU: 2 x A CPU",
        workload=WorkloadName(name="builtin", sha256="ab" * 32),
        measured_at=NOON,
        warnings=[],
    )
    return value.model_copy(update=changes)


def verification(**changes: Any) -> Verification:
    answer = recommendation()
    value = Verification(
        study=answer.study,
        target=answer.target,
        objective=answer.objective,
        load=answer.load,
        speculative_config=answer.speculative_config,
        verified_config=answer.speculative_config,
        outcome="holds",
        reason="still better than off",
        speedup=Speedup(value=1.25, low=1.1, high=1.42, confidence=0.95),
        stored_speedup=answer.speedup,
        measured=answer.measured,
        baseline=answer.baseline,
        pairs=5,
        stopped_because="decided",
        differences=["engine: vllm 0.32.0 → vllm 0.33.0"],
        evidence=answer.evidence,
        engine=EngineName(name="vllm", version="0.33.0", runner="V1"),
        hardware=answer.hardware,
        workload=answer.workload,
        measured_at=NOON,
        stored_measured_at=NOON,
        warnings=[],
    )
    return value.model_copy(update=changes)


def add_study(store: Store, **changes: Any) -> StudySpec:
    """Save a study that stands in ``context()``."""
    spec = study_spec(**changes)
    store.save_study(spec)
    store.set_context(spec.name, context())
    return spec


def add_start(store: Store, **changes: Any) -> EngineStart:
    """Save an engine start of the study ``chat``, and the study with it."""
    add_study(store)
    start = engine_start(**changes)
    store.add_engine_start(start)
    return start
