"""What the stages of one running study share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from studies.clock import Clock
from studies.events import Observer
from studies.ledger import Ledger
from tuner.engine.command import EngineCommand, engine_command
from tuner.load.prompts import Prompt
from tuner.records import Context, Setting
from tuner.spec import StudySpec
from tuner.store import Store

SHARED_MEMORY = 0.95
"""Two engines fit on a device when their shares of its memory stay under this."""


@dataclass(frozen=True)
class Run:
    """A study being worked on."""

    ledger: Ledger
    context: Context
    data_dir: Path
    python: Path
    prompts: Sequence[Prompt]
    clock: Clock
    observe: Observer

    @property
    def spec(self) -> StudySpec:
        return self.ledger.spec

    @property
    def store(self) -> Store:
        return self.ledger.store

    def command(self, setting: Setting) -> EngineCommand:
        spec = self.spec
        return engine_command(spec.engine, spec.target, setting, self.context.engine, self.python)

    @property
    def side_by_side(self) -> bool:
        """Whether baseline and candidate are up at once: as the study says, else where it fits."""
        if self.spec.engine.side_by_side is not None:
            return self.spec.engine.side_by_side
        share = self.spec.engine.args.get("gpu_memory_utilization")
        fits = isinstance(share, int | float) and 2 * share <= SHARED_MEMORY
        return self.context.host.device == "cpu" or fits
