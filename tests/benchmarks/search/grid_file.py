"""The recorded grid as a file: what each start and each pair came to, small enough to be kept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from studies.ledger import Pair
from studies.run import Run
from studies.screen_text import recordings
from tuner.records import OFF, EngineStart, Measurement, Purpose, Setting

RESULTS = Path("tests/benchmarks/results")
BUILD = Path("build/bench/grid.json")
MEASURED = (Purpose.EXPLORE, Purpose.CONFIRM, Purpose.LIVE_K)


def write_grid(run: Run, *, keep: bool) -> None:
    now = datetime.now(UTC)
    body = grid(run) | {"written_at": now.isoformat(timespec="seconds")}
    for path in [BUILD, *([RESULTS / f"grid-{now:%Y-%m-%d}.json"] if keep else [])]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(body, separators=(",", ":")) + "\n")
        print(path)


def grid(run: Run) -> dict[str, Any]:
    starts = run.store.engine_starts(run.spec.name)
    measured = run.store.measurements(context=run.ledger.context)
    settings = [setting for setting in run.ledger.settings if not setting.is_off]
    return {
        "conditions": {
            "host": str(run.context.host),
            "engine": f"{run.context.engine.name} {run.context.engine.version}",
            "runner": next((s.facts.runner for s in starts if s.facts.runner), None),
            "engine_args": dict(run.spec.engine.args),
            "workload": run.spec.workload.model_dump(mode="json"),
            "objective": run.spec.objective,
        },
        "loads": [load.key for load in run.spec.loads],
        "starts": [_start(start, measured) for start in starts],
        "screens": [
            {
                "setting": setting.speculative_config,
                "tokens_per_decode_step": _estimate(screen.tokens_per_decode_step),
                "draft_coverage": screen.draft_coverage,
                "draft_cost": screen.draft_cost,
                "tokens": screen.tokens,
                "reason": screen.reason,
            }
            for setting, screen in run.store.screens(run.ledger.context).items()
        ],
        "baseline": [
            {"load": m.load.key, "tpot_ms_p50": m.figures.tpot_ms_p50}
            for m in [
                *recordings(run),
                *run.store.measurements(
                    context=run.ledger.context, setting=OFF, purpose=Purpose.BASELINE
                ),
            ]
        ],
        "pairs": [
            _pair(run, setting, purpose, pair)
            for purpose in MEASURED
            for setting in settings
            for load in run.spec.loads
            for pair in run.ledger.pairs(setting, load, purpose)
        ],
        "unfinished": [
            setting.label
            for setting in settings
            if not run.ledger.pairs(setting, run.spec.loads[0], Purpose.EXPLORE)
        ],
    }


def _start(start: EngineStart, measured: Sequence[Measurement]) -> dict[str, Any]:
    """``seconds`` from its start to its last round's end, the baseline's rounds included."""
    own = [m.measured_at for m in measured if m.engine_start == start.id]
    return {
        "id": start.id,
        "setting": start.setting.speculative_config,
        "purpose": start.purpose,
        "startup_s": start.startup_s,
        "seconds": (max(own) - start.started_at).total_seconds() if own else None,
        "failure": None if start.failure is None else str(start.failure),
    }


def _pair(run: Run, setting: Setting, purpose: Purpose, pair: Pair) -> dict[str, Any]:
    return {
        "setting": setting.speculative_config,
        "load": pair.candidate.load.key,
        "purpose": purpose,
        "pair": pair.number,
        "start": pair.candidate.engine_start,
        "log_ratio": pair.log_ratio(run.spec.objective),
        "baseline": _arm(run, pair.baseline),
        "candidate": _arm(run, pair.candidate),
    }


def _arm(run: Run, measurement: Measurement) -> dict[str, Any]:
    """The counted requests' own figures, from which others can be worked out."""
    samples = run.store.load_samples(measurement.samples_path)
    figures = measurement.figures
    return {
        "tpot_ms_p50": figures.tpot_ms_p50,
        "output_throughput_tok_s": figures.output_throughput_tok_s,
        "tokens_per_decode_step": figures.tokens_per_decode_step,
        "draft_coverage": figures.draft_coverage,
        "seconds": max((s.started_s + (s.e2e_ms or 0) / 1000 for s in samples), default=0.0),
        "tpot_ms": [s.tpot_ms for s in samples if s.counted],
        "output_tokens": [s.completion_tokens for s in samples if s.counted],
    }


def _estimate(found: Any) -> list[float | None] | None:
    return None if found is None else [found.value, found.low, found.high]
