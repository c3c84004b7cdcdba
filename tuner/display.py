"""A running study on the terminal: a live table where there is one, plain lines elsewhere."""

from __future__ import annotations

import math
import time
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from studies.events import (
    Answered,
    Confirmed,
    EngineReady,
    EngineStarting,
    Event,
    Explored,
    Failed,
    LiveKCompared,
    RoundMeasured,
    RoundStarting,
    Scoring,
    Screened,
    Screening,
    StageEntered,
    Verified,
    Warned,
)
from tuner.records import Measurement, Purpose, Screen, Setting, Stage
from tuner.spec import Load, StudySpec


def describe(event: Event) -> str | None:  # noqa: C901, PLR0911, PLR0912 - a line per event
    """One plain line for what happened; None for what is not worth one."""
    match event:
        case StageEntered(stage, note, _):
            return f"{stage}: {note}" if note else f"{stage}"
        case Warned(text):
            return f"warning: {text}"
        case EngineStarting(setting, purpose):
            return f"starting {setting.label} ({purpose})"
        case EngineReady(setting, startup_s, facts):
            runner = f", runner {facts.runner}" if facts.runner else ""
            return f"{setting.label} answers after {startup_s:.0f} s{runner}"
        case RoundMeasured(m):
            return f"  {m.setting.label} at {m.load}, pair {m.pair + 1}: {figures(m)}"
        case Explored(setting, ratios, before):
            speedups = ", ".join(f"{load}: {ratio(r)}" for load, r in ratios.items())
            return f"explored {setting.label}{' earlier' if before else ''}: {speedups}"
        case Failed(setting, failure, final):
            again = "" if final else "; it is tried again"
            return f"failed {setting.label}: {failure}{again}"
        case LiveKCompared(found):
            steps = ratio(found.log_ratio.value)
            return f"  k={found.k} changed live, pair {len(found.step_times)}: {steps} a plain step"
        case Confirmed(c):
            low, high = ratio(c.low), ratio(c.high)
            n = len(c.pairs)
            return (
                f"confirmed {c.setting.label} at {c.load}: {ratio(c.log_ratio)}"
                f" ({low} to {high}, {n} pairs, {c.stopped_because})"
            )
        case Scoring(setting, load):
            return f"reading the answers of {setting.label} at {load} with the baseline engine"
        case Screening(what):
            return what
        case Screened(screen):
            return screened(screen)
        case Verified(v):
            return f"{v.load}: {v.outcome}: {v.reason}"
        case RoundStarting() | Answered():
            return None


def screened(screen: Screen) -> str:
    found = screen.tokens_per_decode_step
    if found is None:
        return f"not screened {screen.setting.label}: {screen.reason}"
    interval = "" if found.low is None else f" ({found.low:.2f} to {found.high:.2f})"
    return f"screened {screen.setting.label}: {found.value:.2f} tokens per decode step{interval}"


def figures(measurement: Measurement) -> str:
    length = measurement.figures.acceptance_length
    accepted = "" if length is None else f", acceptance length {length:.2f}"
    return f"TPOT {speed(measurement)}{accepted}"


def speed(measurement: Measurement) -> str:
    tpot = measurement.figures.tpot_ms_p50
    shown = "-" if tpot is None else f"{tpot:.1f}"
    return f"{shown} ms, {measurement.figures.output_throughput_tok_s:.1f} tok/s"


def ratio(log_ratio: float) -> str:
    return f"{math.exp(log_ratio):.2f}x"


def clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d}"


class PlainProgress:
    """Observer that prints a line per event, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        del kind, error, trace

    def __call__(self, event: Event) -> None:
        if line := describe(event):
            spent = clock(time.monotonic() - self._began)
            self._console.print(f"[{spent}] {line}", markup=False, highlight=False, soft_wrap=True)


class LiveProgress:
    """Observer that keeps one picture up to date: stage, what runs, time, what was measured."""

    def __init__(self, console: Console, spec: StudySpec) -> None:
        self._spec = spec
        self._began = time.monotonic()
        self._stage = StageEntered(Stage.PREFLIGHT, "", 0.0)
        self._doing = ""
        self._rows: dict[tuple[Setting, Purpose], dict[Load, str]] = {}
        self._notes: dict[Setting, str] = {}
        self._spinner = Spinner("dots")
        self._live = Live(console=console, get_renderable=self._picture, refresh_per_second=4)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._doing = ""
        self._live.__exit__(kind, error, trace)

    def __call__(self, event: Event) -> None:
        self._follow(event)
        self._tabulate(event)

    def _follow(self, event: Event) -> None:
        """What is being done now."""
        match event:
            case StageEntered(_, _, spent_s):
                self._stage, self._doing = event, ""
                self._began = time.monotonic() - spent_s
            case EngineStarting(setting, _):
                self._doing = f"starting {setting.label}"
            case EngineReady(setting, _, _):
                self._doing = f"{setting.label} answers"
            case RoundStarting(setting, load, what):
                self._doing = f"{setting.label} at {load}: {what}"
            case Scoring(setting, load):
                self._doing = f"{setting.label} at {load}: is its text the target's own?"
            case Answered():
                self._doing = ""
            case Warned(text):
                self._live.console.print(f"warning: {text}", markup=False)
            case Screening(what):
                self._doing = what
            case RoundMeasured() | Screened() | Explored() | Failed() | Confirmed() | Verified():
                pass

    def _tabulate(self, event: Event) -> None:
        """What was measured so far."""
        match event:
            case RoundMeasured(m) if m.setting.is_off and m.purpose is Purpose.BASELINE:
                self._cells(m.setting, Purpose.EXPLORE)[m.load] = speed(m)
            case Explored(setting, ratios, _):
                cells = self._cells(setting, Purpose.EXPLORE)
                cells |= {load: ratio(r) for load, r in ratios.items()}
            case Confirmed(c):
                text = f"{ratio(c.log_ratio)} ({ratio(c.low)} to {ratio(c.high)})"
                self._cells(c.setting, Purpose.CONFIRM)[c.load] = text
            case Verified(v):
                setting = Setting.of(v.verified_config)
                self._cells(setting, Purpose.VERIFY)[v.load] = v.outcome
            case Failed(setting, failure, _):
                self._notes[setting] = str(failure)
                self._cells(setting, Purpose.EXPLORE)
            case _:
                pass

    def _cells(self, setting: Setting, purpose: Purpose) -> dict[Load, str]:
        return self._rows.setdefault((setting, purpose), {})

    def _picture(self) -> Group:
        spent = time.monotonic() - self._began
        head = Text.assemble(
            (f"{self._spec.name}: {self._stage.stage}", "bold"),
            f"  {self._stage.note}  {clock(spent)} used{self._left(spent)}",
        )
        self._spinner.update(text=Text(self._doing))
        body = [self._spinner] if self._doing else []
        return Group(head, *body, *([self._table()] if self._rows else []))

    def _left(self, spent: float) -> str:
        budget = self._spec.budget
        tried = len([1 for _, purpose in self._rows if purpose is Purpose.EXPLORE])
        parts = [f"{max(budget.engine_starts - tried, 0)} engine starts left to explore"]
        if budget.minutes is not None:
            parts.append(f"{clock(max(budget.minutes * 60 - spent, 0))} left")
        return ", " + ", ".join(parts) if self._stage.stage is Stage.EXPLORE else ""

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False)
        table.add_column("setting", overflow="fold")
        table.add_column("stage")
        for load in self._spec.loads:
            table.add_column(str(load))
        for (setting, purpose), cells in self._rows.items():
            row = [Text(cells.get(load, "")) for load in self._spec.loads]
            if note := self._notes.get(setting):
                row[0] = Text(note, style="red")
            table.add_row(setting.label, str(purpose), *row)
        return table


def progress(console: Console, spec: StudySpec) -> PlainProgress | LiveProgress:
    """The observer that suits the console."""
    return LiveProgress(console, spec) if console.is_terminal else PlainProgress(console)
