import math
from io import StringIO

from rich.console import Console

from studies.events import (
    Confirmed,
    EngineReady,
    EngineStarting,
    Event,
    Explored,
    Failed,
    LiveKCompared,
    RoundMeasured,
    RoundStarting,
    Screened,
    Screening,
    StageEntered,
    Verified,
)
from tests.factories import NGRAM, comparison, measurement, screen, study_spec, verification
from tuner.display import LiveProgress, PlainProgress, progress
from tuner.errors import Failure, FailureKind
from tuner.measure.agreement import Agreement
from tuner.records import OFF, Estimate, Purpose, Screen, Setting, Stage, StartedFacts
from tuner.spec import Load

SUFFIX = Setting.of({"method": "suffix", "num_speculative_tokens": 8})
LOADS = study_spec().loads
EVENTS: list[Event] = [
    StageEntered(Stage.BASELINE, "the target as it is", 0.0),
    EngineStarting(OFF, Purpose.BASELINE),
    EngineReady(OFF, 31.0, StartedFacts(runner="V1")),
    RoundMeasured(measurement(setting=OFF, purpose=Purpose.BASELINE)),
    Screening("[1/2] scoring a draft"),
    Screened(screen()),
    Screened(Screen(SUFFIX, "here", reason="no interpreter")),
    StageEntered(Stage.EXPLORE, "2 settings", 65.0),
    Explored(NGRAM, {load: math.log(1.5) for load in LOADS}, before=True),
    Failed(SUFFIX, Failure(FailureKind.OUT_OF_MEMORY, "no room"), final=True),
    LiveKCompared(Agreement(4, ((20.0, 20.0),), Estimate(math.log(1.02)), None, None)),
    Confirmed(comparison(log_ratio=math.log(1.4), low=math.log(1.3), high=math.log(1.5))),
    Verified(verification(load=LOADS[0])),
    RoundStarting(NGRAM, Load(concurrency=4), "pair 3"),
]


def test_without_a_terminal_every_event_is_a_line() -> None:
    console = Console(file=StringIO(), width=300)
    shown = progress(console, study_spec())
    assert isinstance(shown, PlainProgress)
    with shown as observe:
        for event in EVENTS:
            observe(event)
    text = console.file.getvalue()
    assert "baseline: the target as it is" in text
    assert "off answers after 31 s, runner V1" in text
    assert f"explored {NGRAM.label} earlier: concurrency 4: 1.50x" in text
    assert "failed suffix k=8: out of memory: no room" in text
    assert f"screened {NGRAM.label}: 1.75 tokens per decode step (1.50 to 2.00)" in text
    assert "not screened suffix k=8: no interpreter" in text
    assert "k=4 changed live, pair 1: 1.02x a plain step" in text
    assert "1.40x (1.30x to 1.50x" in text
    assert "concurrency 4: holds: still better than off" in text
    assert len(text.splitlines()) == len(EVENTS) - 1  # a round's start is not worth a line


def test_on_a_terminal_one_picture_has_stage_time_budget_and_what_was_measured() -> None:
    console = Console(file=StringIO(), width=200, force_terminal=True)
    shown = progress(console, study_spec(budget={"engine_starts": 5, "minutes": 10}))
    assert isinstance(shown, LiveProgress)
    with shown as observe:
        for event in EVENTS:
            observe(event)
        plain = Console(file=StringIO(), width=200)
        plain.print(shown._picture())
    text = plain.file.getvalue()
    assert "chat: explore" in text
    assert "1:05 used" in text
    assert "8:5" in text  # minutes and seconds left of ten
    assert "2 engine starts left" in text
    assert f"{NGRAM.label} at concurrency 4: pair 3" in text
    assert "1.50x" in text
    assert "1.40x (1.30x to 1.50x)" in text
    assert "verify" in text
    assert "holds" in text
    assert "out of memory: no room" in text
