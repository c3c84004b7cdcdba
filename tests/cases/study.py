"""A small study over the fake, which logs what every engine of it was sent."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from studies.events import Event
from studies.loop import optimize
from studies.projection import make_optuna_tables
from tests.factories import study_spec
from tuner.answers import Recommendation
from tuner.engine.fake_script import VARIABLE
from tuner.settings import Settings
from tuner.spec import StudySpec
from tuner.store import Store, upgrade

COMMAND = (sys.executable, str(Path(__file__).with_name("logged_fake.py")))
SPEED = {"prefill_ms": 2, "step_ms": 3, "step_ms_per_k": 0, "step_ms_per_request": 0}

PROMPTS = (
    "Name the four moons of Jupiter that Galileo saw and say how far from it each of them is.",
    "Rewrite this sentence so that a child of eight understands it: entropy never decreases.",
    "What is wrong with a function that opens a file in a loop and leaves it open each time?",
)


@dataclass(frozen=True)
class Sent:
    """A request as the engine met it: ``beside`` others were under way, ``answered`` to its end."""

    ids: tuple[int, ...]
    body: dict[str, Any]
    beside: int
    answered: bool


@dataclass(frozen=True)
class StartedEngine:
    """What one engine was started with and sent, in the order in which it came."""

    argv: list[str]
    sent: list[Sent]

    @property
    def speculates(self) -> bool:
        return "--speculative-config" in self.argv


@dataclass(frozen=True)
class Study:
    spec: StudySpec
    store: Store
    settings: Settings
    log: Path

    def answer(self) -> Recommendation:
        """Of its one load."""
        [found] = optimize(self.spec, self.store, self.settings, _ignore)
        return found

    @property
    def engines(self) -> list[StartedEngine]:
        """In the order of their starts."""
        return [_read(path) for path in sorted(self.log.iterdir())]


@contextmanager
def study(
    folder: Path, script: dict[str, Any] | None = None, flags: tuple[str, ...] = (), **changes: Any
) -> Iterator[Study]:
    """One candidate, suffix at k=1, at concurrency 2. ``flags`` are of every engine's command."""
    log = folder / "log"
    log.mkdir()
    spec = study_spec(
        **{
            "name": "case",
            "target": {"model": "owner/target"},
            "engine": {
                "command": [*COMMAND, str(log), *flags],
                "env": {VARIABLE: json.dumps(SPEED | (script or {}))},
                "startup_timeout_s": 60,
            },
            "candidates": [{"method": "suffix", "k": 1}],
            "workload": {"output_tokens": 12, "requests": 2},
            "loads": [{"concurrency": 2}],
            "precision": 0.49,
            **changes,
        }
    )
    settings = Settings(data_dir=folder / "data", storage=f"sqlite:///{folder / 'tuner.db'}")
    upgrade(settings.storage_url, also=make_optuna_tables)
    with Store.open(settings.storage_url, settings.data_dir) as store:
        yield Study(spec, store, settings, log)


def _ignore(event: Event) -> None:
    """An observer that looks away."""


def _read(path: Path) -> StartedEngine:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    answered = {line["answered"] for line in lines if "answered" in line}
    sent = [
        Sent(tuple(r["ids"]), r["body"], r["beside"], r["number"] in answered)
        for r in (line["sent"] for line in lines if "sent" in line)
    ]
    return StartedEngine(lines[0]["argv"], sent)
