"""The recorded grid as a file: what each start and each pair came to, small enough to be kept.

A file goes on where another ended: what an earlier one holds is not measured again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from studies.ledger import Pair
from studies.run import Run
from studies.screen_text import recordings
from tests.benchmarks.dated import RESULTS
from tuner.measure.step_gaps import step_gaps
from tuner.records import (
    OFF,
    Context,
    EngineStart,
    Estimate,
    Measurement,
    Purpose,
    RequestSample,
    Setting,
)
from tuner.spec import Load, StudySpec

BUILD = Path("build/bench/grid.json")
RUNNER = "V1"
MEASURED = (Purpose.EXPLORE, Purpose.CONFIRM, Purpose.LIVE_K)

Body = dict[str, Any]


def surest() -> Path:
    """Of the grids kept, the one with the most held-out pairs; else the one being recorded."""
    return max(RESULTS.glob("grid-*.json"), key=_held_out, default=BUILD)


def _held_out(path: Path) -> int:
    pairs = json.loads(path.read_text())["pairs"]
    return sum(pair["purpose"] == Purpose.CONFIRM for pair in pairs)


def earlier(conditions: Body) -> Body | None:
    """What was recorded under the same conditions: each kind of machine has a grid of its own."""
    for path in (kept_at(conditions), BUILD):
        if not path.exists():
            continue
        body: Body = json.loads(path.read_text())
        if body["conditions"] == conditions:
            print(f"going on with {len(body['pairs'])} pairs of {path}", flush=True)
            return body
    print("no grid was recorded under these conditions: beginning", flush=True)
    return None


def write_grid(body: Body, *, keep: bool) -> None:
    """Kept, it takes the place of the file it goes on from."""
    body = body | {"written_at": datetime.now(UTC).isoformat(timespec="seconds")}
    for path in [BUILD, *([kept_at(body["conditions"])] if keep else [])]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(body, separators=(",", ":")) + "\n")
        print(path)


def kept_at(conditions: Body) -> Path:
    """One file for each kind of machine; ``written_at`` in it says when it was last gone on with.

    Conditions that changed otherwise make the old file useless: it is written over.
    """
    machine = re.sub(r"[^a-z0-9]+", "-", conditions["host"].lower()).strip("-")
    return RESULTS / f"grid-{machine}.json"


def portable(config: Mapping[str, Any] | None, models_dir: Path) -> Body | None:
    """A speculative config that names its draft as the study does, not by its folder here."""
    if config is None:
        return None
    model = config.get("model")
    if model and Path(model).is_relative_to(models_dir):
        return {**config, "model": str(Path(model).relative_to(models_dir))}
    return dict(config)


def merged(now: Body, before: Body | None) -> Body:
    """Both files' starts, rounds and pairs, each once; the earlier one's screens, if it has any."""
    if before is None:
        return now
    by_id = {
        kind: list({row["id"]: row for row in [*before[kind], *now[kind]]}.values())
        for kind in ("starts", "baseline", "pairs")
    }
    return now | by_id | {"screens": before["screens"] or now["screens"]}


def pairs_of(body: Body, config: Mapping[str, Any], load: Load, purpose: Purpose) -> list[Body]:
    of = {"setting": config, "load": load.key, "purpose": purpose}
    return [pair for pair in body["pairs"] if {name: pair[name] for name in of} == of]


def conditions(spec: StudySpec, context: Context) -> Body:
    return {
        "host": str(context.host),
        "engine": f"{context.engine.name} {context.engine.version}",
        "runner": RUNNER,
        "engine_args": dict(spec.engine.args),
        "engine_env": dict(spec.engine.env),
        "workload": spec.workload.model_dump(mode="json"),
        "objective": spec.objective,
    }


def check_runner(starts: Sequence[EngineStart]) -> None:
    """Raises SystemExit for another runner than that of the conditions."""
    if runners := {s.facts.runner for s in starts if s.facts.runner} - {RUNNER}:
        raise SystemExit(f"recorded with {runners}, and the grid is one of runner {RUNNER}")


def grid(run: Run, models_dir: Path) -> Body:
    """What this machine has recorded so far. Raises SystemExit for another runner than V1."""
    starts = run.store.engine_starts(run.spec.name)
    check_runner(starts)
    measured = run.store.measurements(context=run.ledger.context)
    settings = [setting for setting in run.ledger.settings if not setting.is_off]
    return {
        "conditions": conditions(run.spec, run.context),
        "loads": [load.key for load in run.spec.loads],
        "settings": [portable(setting.speculative_config, models_dir) for setting in settings],
        "starts": [_start(start, measured, models_dir) for start in starts],
        "screens": [
            {
                "setting": portable(setting.speculative_config, models_dir),
                "tokens_per_decode_step": _estimate(screen.tokens_per_decode_step),
                "draft_coverage": screen.draft_coverage,
                "drafted_per_decode_step": screen.drafted_per_decode_step,
                "draft_cost": screen.draft_cost,
                "tokens": screen.tokens,
                "reason": screen.reason,
            }
            for setting, screen in run.store.screens(run.ledger.context).items()
        ],
        "baseline": [
            {"id": m.id, "load": m.load.key, "tpot_ms_p50": m.figures.tpot_ms_p50}
            | _gaps(run.store.load_samples(m.samples_path))
            for m in [
                *recordings(run),
                *run.store.measurements(
                    context=run.ledger.context, setting=OFF, purpose=Purpose.BASELINE
                ),
            ]
        ],
        "pairs": [
            _pair(run, portable(setting.speculative_config, models_dir), purpose, pair)
            for purpose in MEASURED
            for setting in settings
            for load in run.spec.loads
            for pair in run.ledger.pairs(setting, load, purpose)
        ],
    }


def _start(start: EngineStart, measured: Sequence[Measurement], models_dir: Path) -> Body:
    """``seconds`` from its start to its last round's end, the baseline's rounds included."""
    own = [m.measured_at for m in measured if m.engine_start == start.id]
    return {
        "id": start.id,
        "setting": portable(start.setting.speculative_config, models_dir),
        "purpose": start.purpose,
        "startup_s": start.startup_s,
        "seconds": (max(own) - start.started_at).total_seconds() if own else None,
        "failure": None if start.failure is None else str(start.failure),
    }


def _pair(run: Run, config: Body | None, purpose: Purpose, pair: Pair) -> Body:
    return {
        "id": pair.candidate.id,
        "setting": config,
        "load": pair.candidate.load.key,
        "purpose": purpose,
        "pair": pair.number,
        "start": pair.candidate.engine_start,
        "log_ratio": pair.log_ratio(run.spec.objective),
        "baseline": _arm(run, pair.baseline),
        "candidate": _arm(run, pair.candidate),
    }


def _arm(run: Run, measurement: Measurement) -> Body:
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
        **_gaps(samples),
    }


def _gaps(samples: Sequence[RequestSample]) -> Body:
    gaps = step_gaps(samples)
    if gaps is None:
        return {}
    return {"decode_only_ms": gaps.decode_only_ms, "prefill_share": gaps.prefill_share}


def _estimate(found: Estimate | None) -> list[float | None] | None:
    return None if found is None else [found.value, found.low, found.high]


def settings_of(body: Body) -> list[Setting]:
    return [Setting.of(config) for config in body["settings"]]
