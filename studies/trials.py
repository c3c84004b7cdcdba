"""A study's settings as its store knows them: explored, failed, or still to come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from studies.evidence import forecast
from studies.ledger import Ledger, Outcome
from studies.space import enumerate_settings
from tuner import demo
from tuner.errors import Failure
from tuner.predict.forecast import Forecast
from tuner.predict.step_time import LogNormal
from tuner.records import Setting, StudyRecord
from tuner.settings import Settings
from tuner.spec import Load, StudySpec
from tuner.store import Store


@dataclass(frozen=True)
class Trial:
    """One setting. ``state`` is ``explored``, ``failed`` or ``not explored``.

    ``predicted`` are the speed-ups by load of one that was not explored, from all that is known.
    """

    setting: Setting
    state: str
    log_ratios: Mapping[Load, float]
    failure: Failure | None
    predicted: Mapping[Load, LogNormal] = field(default_factory=dict)

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
            "predicted_log_speedups": [
                {"load": load.model_dump(), "log_speedup": found.mean, "sd": found.sd}
                for load, found in self.predicted.items()
            ],
            "failure": None
            if self.failure is None
            else {"kind": self.failure.kind, "message": self.failure.message},
        }


def trials(store: Store, record: StudyRecord, settings: Settings) -> list[Trial]:
    """Every setting of the study's space, in its order."""
    spec = demo.located(record.spec, settings.models_dir)
    space = enumerate_settings(spec)
    outcomes, now = _known(store, spec, space, record.context)
    found = []
    for setting in space:
        outcome = outcomes.get(setting)
        if outcome is None:
            predicted = {load: now.speedup(setting, load) for load in spec.loads} if now else {}
            found.append(Trial(setting, "not explored", {}, None, predicted))
        elif outcome.failure is not None:
            found.append(Trial(setting, "failed", {}, outcome.failure))
        else:
            found.append(Trial(setting, "explored", outcome.log_ratios, None))
    return found


def _known(
    store: Store, spec: StudySpec, space: tuple[Setting, ...], context: str | None
) -> tuple[Mapping[Setting, Outcome], Forecast | None]:
    """What was explored, and what that predicts of the rest; nothing before a study has begun."""
    if context is None:
        return {}, None
    ledger = Ledger(store, spec, space, context)
    screens = store.screens(context)
    now = forecast(ledger, screens, store.context(context).host.device) if screens else None
    return ledger.outcomes(), now
