"""What happens while a study runs, as records for whoever watches. The loop prints nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tuner.answers import Recommendation, Verification
from tuner.errors import Failure
from tuner.measure.agreement import Agreement
from tuner.records import (
    Comparison,
    Measurement,
    Purpose,
    Screen,
    Setting,
    Stage,
    StartedFacts,
)
from tuner.spec import Load


@dataclass(frozen=True)
class StageEntered:
    """``spent_s`` is what the study has worked so far, over all sittings."""

    stage: Stage
    note: str
    spent_s: float


@dataclass(frozen=True)
class Warned:
    """Something that does not keep the study from running, but that its owner should know."""

    text: str


@dataclass(frozen=True)
class EngineStarting:
    setting: Setting
    purpose: Purpose


@dataclass(frozen=True)
class EngineReady:
    setting: Setting
    startup_s: float
    facts: StartedFacts


@dataclass(frozen=True)
class RoundStarting:
    setting: Setting
    load: Load
    what: str


@dataclass(frozen=True)
class RoundMeasured:
    measurement: Measurement


@dataclass(frozen=True)
class Scoring:
    """Answers at a load are read by the baseline engine: are they the target's own text?"""

    setting: Setting
    load: Load


@dataclass(frozen=True)
class Screening:
    """The baseline's recorded answers are being replayed; ``what`` says with which draft."""

    what: str


@dataclass(frozen=True)
class Screened:
    screen: Screen


@dataclass(frozen=True)
class Explored:
    """A setting's mean log speed-up by load; ``before`` says it was known from an earlier run."""

    setting: Setting
    log_ratios: Mapping[Load, float]
    before: bool


@dataclass(frozen=True)
class Failed:
    """``final`` says that the setting is not tried again."""

    setting: Setting
    failure: Failure
    final: bool


@dataclass(frozen=True)
class LiveKCompared:
    """What the pairs of a live and a plain engine say so far of one k."""

    found: Agreement


@dataclass(frozen=True)
class Confirmed:
    comparison: Comparison


@dataclass(frozen=True)
class Answered:
    answers: tuple[Recommendation, ...]


@dataclass(frozen=True)
class Verified:
    verification: Verification


Event = (
    StageEntered
    | Warned
    | EngineStarting
    | EngineReady
    | RoundStarting
    | RoundMeasured
    | Scoring
    | Screening
    | Screened
    | Explored
    | Failed
    | LiveKCompared
    | Confirmed
    | Answered
    | Verified
)
Observer = Callable[[Event], None]
