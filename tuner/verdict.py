"""A stored answer and what measuring it again found → holds, lost or changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from tuner.answers import (
    EngineName,
    Evidence,
    Recommendation,
    Speedup,
    Verdict,
    Verification,
    WorkloadName,
)
from tuner.arms import Arm, measured
from tuner.differences import differences
from tuner.errors import Failure
from tuner.recommend import Challenger, Findings, evidence_warnings
from tuner.records import Context, EngineStart, Setting

LOST = 5
CHANGED = 6
"""Exit codes of `tuner verify`; 0 where every answer holds."""

NOTHING_BESIDE = (
    "off, and no setting ran beside it then: there was none to measure again; once engine, host"
    " or study are others, `tuner optimize` tries the candidates anew"
)


@dataclass(frozen=True)
class Claim:
    """What an answer says of a setting at its load.

    Of the one it recommends or, where it is off, of the best candidate of then.
    """

    answer: Recommendation
    setting: Setting
    speedup: Speedup

    @property
    def is_on(self) -> bool:
        return self.answer.speculative_config is not None


@dataclass(frozen=True)
class Paired:
    """The setting of a claim and the baseline, measured again next to each other."""

    baseline: Arm
    challenger: Challenger


@dataclass(frozen=True)
class Unmeasured:
    """Why the setting of a claim could not be measured again, and the start that shows it."""

    failure: Failure
    start: EngineStart


Again = Paired | Unmeasured | None
"""What became of measuring an answer again; None where it claims nothing of any setting."""


def claim(answer: Recommendation) -> Claim | None:
    """What can be measured again of an answer; None where it is off and nothing ran beside off."""
    if answer.speculative_config is not None:
        return Claim(answer, Setting.of(answer.speculative_config), answer.speedup)
    if answer.considered:
        best = answer.considered[0]
        return Claim(answer, Setting.of(best.speculative_config), best.speedup)
    return None


def verification(
    answer: Recommendation, then: Context, now: Context, again: Again, notes: Sequence[str]
) -> Verification:
    """The verdict with its numbers.

    ``then`` and ``now`` are what the two were measured in; ``notes`` are warnings about all of it.
    """
    claimed = claim(answer)
    paired = again if isinstance(again, Paired) else None
    challenger = paired.challenger if paired else None
    outcome, reason = _verdict(claimed, again)
    engine = _engine(now, again)
    return Verification(
        study=answer.study,
        target=answer.target,
        objective=answer.objective,
        load=answer.load,
        speculative_config=answer.speculative_config,
        verified_config=claimed.setting.speculative_config if claimed else None,
        outcome=outcome,
        reason=reason,
        speedup=challenger.speedup if challenger else None,
        stored_speedup=claimed.speedup if claimed else None,
        measured=measured(challenger.arm) if challenger else None,
        baseline=measured(paired.baseline) if paired else None,
        sameness=challenger.sameness if challenger else None,
        pairs=len(challenger.comparison.pairs) if challenger else 0,
        stopped_because=challenger.comparison.stopped_because if challenger else None,
        differences=differences(then, now, answer.engine, engine),
        evidence=_evidence(again),
        engine=engine,
        hardware=str(now.host),
        workload=WorkloadName(name=answer.workload.name, sha256=now.workload_sha256),
        measured_at=_measured_at(again),
        stored_measured_at=answer.measured_at,
        warnings=[*_warnings(now, answer, paired), *notes],
    )


def exit_code(found: Sequence[Verification]) -> int:
    """LOST where any answer is lost, else CHANGED where any changed, else 0."""
    outcomes = {each.outcome for each in found}
    if "lost" in outcomes:
        return LOST
    return CHANGED if "changed" in outcomes else 0


def _verdict(claimed: Claim | None, again: Again) -> tuple[Verdict, str]:
    if claimed is None or again is None:
        return "holds", NOTHING_BESIDE
    if isinstance(again, Unmeasured):
        failed = f"{claimed.setting.label} could not be measured: {again.failure}"
        return ("lost", failed) if claimed.is_on else ("holds", f"{failed}; the answer stays off")
    of = _of_on if claimed.is_on else _of_off
    return of(again.challenger, claimed.speedup)


def _of_on(challenger: Challenger, stored: Speedup) -> tuple[Verdict, str]:
    now, seen = challenger.speedup, _seen(challenger, stored)
    if foreign := _foreign_text(challenger):
        return "lost", f"better than off, but {foreign}; {seen}"
    if challenger.wins and _overlap(now, stored):
        return "holds", f"still better than off: {seen}"
    if challenger.wins:
        gain = "more" if now.value > stored.value else "less"
        return "changed", f"still better than off, but by clearly {gain}: {seen}"
    if now.high < 1:
        return "lost", f"worse than off: {seen}"
    lost = f"no longer better than off by more than the noise: {seen}"
    if now.low <= stored.value <= now.high:
        lost += "; what was measured then is not excluded either: more requests per round tell"
    return "lost", lost


def _of_off(challenger: Challenger, stored: Speedup) -> tuple[Verdict, str]:
    label, seen = challenger.arm.setting.label, _seen(challenger, stored)
    if challenger.wins:
        return "changed", f"{label} is now better than off: {seen}"
    if foreign := _foreign_text(challenger):
        return "holds", f"{label} is better than off, but {foreign}; {seen}"
    return "holds", f"{label} is still not better than off by more than the noise: {seen}"


def _foreign_text(challenger: Challenger) -> str | None:
    """Why a faster challenger does not win all the same."""
    if challenger.wins or not challenger.is_faster or challenger.sameness is None:
        return None
    return f"its text is not the target's own: {challenger.sameness.reason}"


def _overlap(a: Speedup, b: Speedup) -> bool:
    return a.low <= b.high and b.low <= a.high


def _seen(challenger: Challenger, stored: Speedup) -> str:
    pairs = len(challenger.comparison.pairs)
    return f"{_shown(challenger.speedup)} in {pairs} pairs, {_shown(stored)} then"


def _shown(speedup: Speedup) -> str:
    return f"{speedup.value:.2f}x ({speedup.low:.2f}-{speedup.high:.2f})"


def _starts(again: Again) -> list[EngineStart]:
    """The starts it rests on, the setting's own last."""
    if isinstance(again, Paired):
        return [*again.baseline.starts, *again.challenger.arm.starts]
    return [again.start] if again else []


def _engine(now: Context, again: Again) -> EngineName:
    starts = _starts(again)
    facts = starts[-1].facts if starts else None
    return EngineName(
        name=now.engine.name,
        version=(facts.version if facts else None) or now.engine.version,
        runner=facts.runner if facts else None,
    )


def _evidence(again: Again) -> Evidence:
    arms = [again.baseline, again.challenger.arm] if isinstance(again, Paired) else []
    return Evidence(
        engine_starts=[start.id for start in _starts(again)],
        measurements=[m.id for arm in arms for m in arm.measurements],
    )


def _measured_at(again: Again) -> datetime:
    if isinstance(again, Paired):
        return max(m.measured_at for m in again.challenger.arm.measurements)
    return again.start.started_at if again else datetime.now(UTC)


def _warnings(now: Context, answer: Recommendation, paired: Paired | None) -> list[str]:
    if paired is None:
        return []
    return evidence_warnings(now, Findings(answer.load, paired.baseline, paired.challenger))
