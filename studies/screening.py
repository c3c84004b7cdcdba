"""What the screen says of a study's settings, predicted speed-ups included."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from studies.evidence import load_costs
from studies.ledger import Ledger
from studies.space import enumerate_settings
from tuner import demo
from tuner.errors import NotFoundError
from tuner.predict.forecast import Forecast, acceptance_rate
from tuner.records import Estimate, Screen, Setting, StudyRecord
from tuner.settings import Settings
from tuner.spec import Load
from tuner.store import Store

SCREENED = "screened"
"""Kind of the events that keep how many settings were screened, and the seconds it took."""


@dataclass(frozen=True)
class Predicted:
    """At one load: a speed-up over the baseline, and what a decode step must give to break even.

    ``low`` and ``high`` bound the speed-up (95 %). ``break_even_acceptance`` is the chance of each
    drafted token to be accepted at which the setting is as fast as off. Both break-even numbers are
    None where nothing is enough.
    """

    load: Load
    speedup: float
    low: float
    high: float
    break_even_tokens_per_step: float | None
    break_even_acceptance: float | None


@dataclass(frozen=True)
class Row:
    """A screened setting; without predictions where it can't be replayed."""

    screen: Screen
    predicted: tuple[Predicted, ...]

    def body(self) -> dict[str, Any]:
        screen = self.screen
        return {
            "setting": screen.setting.key,
            "label": screen.setting.label,
            "speculative_config": screen.setting.speculative_config,
            "tokens_per_decode_step": _estimate(screen.tokens_per_decode_step),
            "acceptance_length": _estimate(screen.acceptance_length),
            "draft_coverage": screen.draft_coverage,
            "drafted_per_decode_step": screen.drafted_per_decode_step,
            "by_kind": {kind: _estimate(found) for kind, found in screen.by_kind.items()},
            "draft_cost": screen.draft_cost,
            "requests": screen.requests,
            "tokens": screen.tokens,
            "reason": screen.reason,
            "predicted": [
                {
                    "load": each.load.model_dump(),
                    "speedup": each.speedup,
                    "low": each.low,
                    "high": each.high,
                    "break_even_tokens_per_step": each.break_even_tokens_per_step,
                    "break_even_acceptance": each.break_even_acceptance,
                }
                for each in self.predicted
            ],
        }


def screening_s(store: Store, study: str) -> float:
    """Seconds that the study's screens took; most in the sitting that worked them out."""
    took = [body["seconds"] for _, kind, body in store.events(study) if kind == SCREENED]
    return max(took, default=0.0)


def screened(store: Store, record: StudyRecord, settings: Settings) -> list[Row]:
    """Every setting but off, in the study's order. Raises NotFoundError before it was screened."""
    spec = demo.located(record.spec, settings.models_dir)
    space = [s for s in enumerate_settings(spec) if not s.is_off]
    screens = store.screens(record.context) if record.context else {}
    if record.context is None or not set(space) <= set(screens):
        raise NotFoundError(
            f"study {record.name} is not screened yet; `tuner optimize {record.name} --until"
            " screen` does that"
        )
    ledger = Ledger(store, spec, tuple(space), record.context)
    device = store.context(record.context).host.device
    forecast = Forecast(screens, load_costs(ledger, device), ())
    return [_row(forecast, screens[setting], spec.loads) for setting in space]


def _row(forecast: Forecast, screen: Screen, loads: tuple[Load, ...]) -> Row:
    if screen.reason is not None:
        return Row(screen, ())
    return Row(screen, tuple(_predicted(forecast, screen.setting, load) for load in loads))


def _predicted(forecast: Forecast, setting: Setting, load: Load) -> Predicted:
    speedup = forecast.speedup(setting, load)
    low, high = speedup.bounds()
    needed = forecast.break_even_tokens(setting, load)
    return Predicted(
        load=load,
        speedup=speedup.value,
        low=low,
        high=high,
        break_even_tokens_per_step=needed,
        break_even_acceptance=_acceptance(needed, setting.k),
    )


def _acceptance(tokens: float | None, k: int) -> float | None:
    return acceptance_rate(tokens, k) if tokens is not None and tokens <= k + 1 else None


def _estimate(found: Estimate | None) -> dict[str, float | None] | None:
    return None if found is None else {"value": found.value, "low": found.low, "high": found.high}
