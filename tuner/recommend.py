"""Measurements of the confirm stage → one answer per load, or an honest "off"."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from tuner.answers import (
    Considered,
    Drafting,
    EngineName,
    Evidence,
    Measured,
    Recommendation,
    SameText,
    Speedup,
    WorkloadName,
)
from tuner.arms import Arm, drafted, measured, sliced
from tuner.cost import cost
from tuner.measure.sequential import CONFIDENCE
from tuner.preflight.check import CPU_SAMPLING
from tuner.records import Comparison, Context
from tuner.spec import Load, StudySpec

EVEN = Speedup(value=1.0, low=1.0, high=1.0, confidence=CONFIDENCE)
"""Off against the baseline: the same thing, so 1 by definition."""

OTHER_LENGTH = 0.02
"""Answers whose lengths differ by a larger share are not compared by their totals unsaid."""

REPEATED_SHARE = 0.1
"""Above this share of prompts met before, a method that remembers answers is flattered."""


@dataclass(frozen=True)
class Challenger:
    """The finalist of a load, and how it compares with the baseline there."""

    arm: Arm
    comparison: Comparison

    @property
    def is_faster(self) -> bool:
        """Better than the baseline by more than the noise: the whole interval lies above it."""
        return self.comparison.low > 0

    @property
    def wins(self) -> bool:
        """Faster, and its text is the target's own as far as can be told."""
        return self.is_faster and not (self.comparison.sameness and self.comparison.sameness.worse)

    @property
    def speedup(self) -> Speedup:
        return Speedup(
            value=math.exp(self.comparison.log_ratio),
            low=math.exp(self.comparison.low),
            high=math.exp(self.comparison.high),
            confidence=self.comparison.confidence,
        )

    @property
    def sameness(self) -> SameText | None:
        found = self.comparison.sameness
        return SameText(worse=found.worse, reason=found.reason) if found else None


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
    challenger = found.challenger
    winner = challenger if challenger and challenger.wins else None
    chosen = winner.arm if winner else found.baseline
    own, baseline = measured(chosen), measured(found.baseline)
    drafting = drafted(chosen)
    start = chosen.starts[-1]
    arms = [found.baseline, *([challenger.arm] if challenger else [])]
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
        measured=own,
        baseline=baseline,
        acceptance_length=drafting.acceptance_length.value if drafting else None,
        acceptance_at_position=(
            [estimate.value for estimate in drafting.acceptance_at_position] if drafting else None
        ),
        tokens_per_decode_step=_tokens_per_decode_step(chosen, drafting),
        kv_cache_tokens=start.facts.kv_cache_tokens,
        max_concurrency=start.facts.max_concurrency,
        baseline_kv_cache_tokens=found.baseline.starts[-1].facts.kv_cache_tokens,
        drafting=drafting,
        breakdown=sliced(found.baseline, challenger.arm) if challenger else [],
        sameness=challenger.sameness if challenger else None,
        pairs=len(challenger.comparison.pairs) if challenger else 0,
        stopped_because=challenger.comparison.stopped_because if challenger else None,
        cost=cost(spec.price, own, baseline),
        confirmed=True,
        considered=[] if winner or challenger is None else [_considered(challenger)],
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
            *evidence_warnings(context, found),
            *_slower_in_all(spec, own, baseline),
            *_other_lengths(spec, found),
            *notes,
        ],
    )


def _tokens_per_decode_step(arm: Arm, drafting: Drafting | None) -> float | None:
    if drafting and drafting.tokens_per_decode_step:
        return drafting.tokens_per_decode_step.value
    known = [m.figures.tokens_per_decode_step for m in arm.measurements]
    return median(value for value in known if value is not None) if any(known) else None


def _considered(loser: Challenger) -> Considered:
    """The finalist that is not recommended, with its numbers."""
    reason = "not better than off by more than the noise"
    if loser.is_faster and loser.sameness:
        reason = f"faster, but its text is not the target's own: {loser.sameness.reason}"
    return Considered(
        speculative_config=loser.arm.setting.speculative_config or {},
        speedup=loser.speedup,
        measured=measured(loser.arm),
        drafting=drafted(loser.arm),
        sameness=loser.sameness,
        reason=reason,
    )


def evidence_warnings(context: Context, found: Findings) -> list[str]:
    """What the reader of a comparison should know of how it was measured."""
    warnings = []
    if context.host.device == "cpu":
        warnings.append("measured on a CPU: it says nothing about a GPU")
    challenger = found.challenger
    if challenger is None:
        rounds = found.baseline.measurements
        return [*warnings, *dict.fromkeys(text for m in rounds for text in m.warnings)]
    if context.engine.name == "vllm-cpu" and challenger.wins:
        warnings.append(CPU_SAMPLING)
    if challenger.comparison.stopped_because == "limit":
        warnings.append(_undecided(challenger))
    warnings += _remembered(challenger.arm)
    rounds = [*found.baseline.measurements, *challenger.arm.measurements]
    return [*warnings, *dict.fromkeys(text for m in rounds for text in m.warnings)]


def _undecided(challenger: Challenger) -> str:
    pairs, found = len(challenger.comparison.pairs), challenger.speedup
    return (
        f"after {pairs} pairs, the most that are measured, it is not decided: the speed-up lies"
        f" between {found.low:.2f}x and {found.high:.2f}x; more requests per round tell"
    )


def _remembered(arm: Arm) -> list[str]:
    """Suffix drafts from earlier answers: prompts that come again flatter it."""
    rounds = arm.measurements
    repeated = sum(m.repeated_prompts for m in rounds)
    requests = sum(m.figures.requests for m in rounds)
    if arm.setting.method != "suffix" or repeated <= REPEATED_SHARE * requests:
        return []
    flattered = (
        f"suffix remembers answers, and {repeated} of {requests} prompts had been asked before on"
        " the same engine start: it does this well only on traffic that repeats itself as much;"
        " a workload with more prompts tells"
    )
    return [flattered]


def _slower_in_all(spec: StudySpec, own: Measured, baseline: Measured) -> list[str]:
    """A setting can be better on a latency and still put out fewer, dearer tokens."""
    before, after = baseline.output_throughput_tok_s, own.output_throughput_tok_s
    if after >= before:
        return []
    fell = f"output throughput fell from {before:.1f} to {after:.1f} tok/s"
    return [f"better on {spec.objective}, yet {fell}; see objective output_throughput"]


def _other_lengths(spec: StudySpec, found: Findings) -> list[str]:
    """E2E is a total: shorter answers look faster (1000 against 947 tokens, vllm#8439)."""
    if spec.objective != "e2e_p95" or found.challenger is None:
        return []
    before = measured(found.baseline).mean_output_tokens or 0.0
    after = measured(found.challenger.arm).mean_output_tokens or 0.0
    if abs(after - before) <= OTHER_LENGTH * before:
        return []
    lengths = f"answers have {after:.0f} tokens on average, the baseline's {before:.0f}"
    return [f"{lengths}: e2e_p95 takes that for speed, objective tpot_p50 does not"]
