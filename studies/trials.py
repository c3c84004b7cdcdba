"""A study's settings as its store knows them: explored, failed, or still to come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from studies.ledger import Ledger
from studies.space import enumerate_settings
from tuner import demo
from tuner.errors import Failure
from tuner.records import Setting, StudyRecord
from tuner.settings import Settings
from tuner.spec import Load
from tuner.store import Store


@dataclass(frozen=True)
class Trial:
    """One setting. ``state`` is ``explored``, ``failed`` or ``not explored``."""

    setting: Setting
    state: str
    log_ratios: Mapping[Load, float]
    failure: Failure | None

    def body(self) -> dict[str, Any]:
        return {
            "setting": self.setting.key,
            "label": self.setting.label,
            "speculative_config": self.setting.speculative_config,
            "state": self.state,
            "log_speedups": [
                {"load": load.model_dump(), "log_speedup": ratio}
                for load, ratio in self.log_ratios.items()
            ],
            "failure": None
            if self.failure is None
            else {"kind": self.failure.kind, "message": self.failure.message},
        }


def trials(store: Store, record: StudyRecord, settings: Settings) -> list[Trial]:
    """Every setting of the study's space, in its order."""
    spec = demo.located(record.spec, settings.models_dir)
    space = enumerate_settings(spec)
    outcomes = {}
    if record.context is not None:
        outcomes = Ledger(store, spec, space, record.context).outcomes()
    found = []
    for setting in space:
        outcome = outcomes.get(setting)
        if outcome is None:
            found.append(Trial(setting, "not explored", {}, None))
        elif outcome.failure is not None:
            found.append(Trial(setting, "failed", {}, outcome.failure))
        else:
            found.append(Trial(setting, "explored", outcome.log_ratios, None))
    return found
