"""Records as rows, and back. A record read back equals the one written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import RowMapping

from tuner.answers import Recommendation
from tuner.errors import Failure, FailureKind, StorageError
from tuner.records import (
    Comparison,
    Context,
    Counters,
    EngineStart,
    Figures,
    Measurement,
    Purpose,
    Sameness,
    Screen,
    Setting,
    SettingFailure,
    Stage,
    StartedFacts,
    StudyRecord,
)
from tuner.spec import Load, StudySpec
from tuner.store.sound import require_duration, require_finite, require_sound

Row = dict[str, Any]

SEARCHED_FIGURES = ("tpot_ms_p50", "e2e_ms_p95", "output_throughput_tok_s", "acceptance_length")
"""Figures with a column of their own; the others are JSON."""

_contexts = TypeAdapter(Context)
_figures = TypeAdapter(Figures)
_counters = TypeAdapter(Counters)
_facts = TypeAdapter(StartedFacts)
_sameness = TypeAdapter(Sameness | None)
_screens = TypeAdapter(Screen)


def spec_row(spec: StudySpec) -> Row:
    body = spec.model_dump(mode="json")
    require_finite(f"study {spec.name}", body)
    return {"name": spec.name, "spec": body}


def study_of(row: RowMapping) -> StudyRecord:
    return StudyRecord(
        name=row["name"],
        spec=StudySpec.model_validate(row["spec"]),
        stage=Stage(row["stage"]),
        context=row["context"],
        spent_s=row["spent_s"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


def context_row(context: Context, now: datetime) -> Row:
    return {"digest": context.digest, "body": asdict(context), "created_at": now}


def context_of(row: RowMapping) -> Context:
    return _contexts.validate_python(row["body"])


def setting_row(setting: Setting) -> Row:
    return {
        "key": setting.key,
        "method": setting.method,
        "k": setting.k,
        "config": setting.config,
    }


def engine_start_row(start: EngineStart) -> Row:
    what = f"engine start {start.id}"
    if start.startup_s is not None:
        require_duration(f"{what}: startup_s", start.startup_s)
    require_finite(what, asdict(start.facts))
    return {
        "id": start.id,
        "study": start.study,
        "context": start.context,
        "setting": start.setting.key,
        "purpose": start.purpose.value,
        "argv": list(start.argv),
        "env": dict(start.env),
        "started_at": start.started_at,
        "startup_s": start.startup_s,
        "facts": asdict(start.facts),
        "log_path": start.log_path,
        "log_tail": start.log_tail,
        **_failure_columns(start.failure),
    }


def engine_start_of(row: RowMapping) -> EngineStart:
    return EngineStart(
        id=row["id"],
        study=row["study"],
        context=row["context"],
        setting=Setting(row["config"]),
        purpose=Purpose(row["purpose"]),
        argv=tuple(row["argv"]),
        env=row["env"],
        started_at=row["started_at"],
        startup_s=row["startup_s"],
        facts=_facts.validate_python(row["facts"]),
        log_path=row["log_path"],
        log_tail=row["log_tail"],
        failure=_failure_of(row),
    )


def measurement_row(measurement: Measurement) -> Row:
    what = f"measurement {measurement.id}"
    require_sound(what, measurement.figures)
    require_sound(what, measurement.counters)
    figures = asdict(measurement.figures)
    return {
        "id": measurement.id,
        "study": measurement.study,
        "context": measurement.context,
        "engine_start": measurement.engine_start,
        "setting": measurement.setting.key,
        "load": measurement.load.key,
        "purpose": measurement.purpose.value,
        "pair": measurement.pair,
        "order": measurement.order,
        "beside": measurement.beside,
        "again": measurement.again,
        **{name: figures.pop(name) for name in SEARCHED_FIGURES},
        "other_figures": figures,
        "counters": asdict(measurement.counters),
        "warnings": list(measurement.warnings),
        "samples_path": measurement.samples_path,
        "samples_sha256": measurement.samples_sha256,
        "plan_sha256": measurement.plan_sha256,
        "requests_before": measurement.requests_before,
        "repeated_prompts": measurement.repeated_prompts,
        "measured_at": measurement.measured_at,
    }


def measurement_of(row: RowMapping) -> Measurement:
    searched = {name: row[name] for name in SEARCHED_FIGURES}
    return Measurement(
        id=row["id"],
        study=row["study"],
        context=row["context"],
        engine_start=row["engine_start"],
        setting=Setting(row["config"]),
        load=Load.of(row["load"]),
        purpose=Purpose(row["purpose"]),
        pair=row["pair"],
        order=row["order"],
        beside=row["beside"],
        figures=_figures.validate_python({**row["other_figures"], **searched}),
        counters=_counters.validate_python(row["counters"]),
        measured_at=row["measured_at"],
        warnings=tuple(row["warnings"]),
        samples_path=row["samples_path"],
        samples_sha256=row["samples_sha256"],
        again=row["again"],
        plan_sha256=row["plan_sha256"],
        requests_before=row["requests_before"],
        repeated_prompts=row["repeated_prompts"],
    )


def comparison_row(study: str, comparison: Comparison) -> Row:
    row = {
        "study": study,
        "setting": comparison.setting.key,
        "load": comparison.load.key,
        "purpose": comparison.purpose.value,
        "log_ratio": comparison.log_ratio,
        "low": comparison.low,
        "high": comparison.high,
        "confidence": comparison.confidence,
        "pairs": [list(pair) for pair in comparison.pairs],
        "stopped_because": comparison.stopped_because,
        "sameness": None if comparison.sameness is None else asdict(comparison.sameness),
    }
    require_finite(f"comparison of {comparison.setting.label} at {comparison.load}", row)
    return row


def comparison_of(row: RowMapping) -> Comparison:
    return Comparison(
        setting=Setting(row["config"]),
        load=Load.of(row["load"]),
        purpose=Purpose(row["purpose"]),
        log_ratio=row["log_ratio"],
        low=row["low"],
        high=row["high"],
        confidence=row["confidence"],
        pairs=tuple((baseline, candidate) for baseline, candidate in row["pairs"]),
        stopped_because=row["stopped_because"],
        sameness=_sameness.validate_python(row["sameness"]),
    )


def setting_failure_row(failure: SettingFailure) -> Row:
    return {
        "context": failure.context,
        "setting": failure.setting.key,
        **_failure_columns(failure.failure),
        "engine_start": failure.engine_start,
        "failed_at": failure.failed_at,
    }


def setting_failure_of(row: RowMapping) -> SettingFailure:
    return SettingFailure(
        setting=Setting(row["config"]),
        context=row["context"],
        failure=_required_failure_of(row),
        engine_start=row["engine_start"],
        failed_at=row["failed_at"],
    )


def screen_row(screen: Screen, now: datetime) -> Row:
    body = asdict(screen)
    require_finite(f"screen of {screen.setting.label}", body)
    found = screen.tokens_per_decode_step
    return {
        "context": screen.context,
        "setting": screen.setting.key,
        "tokens_per_decode_step": found and found.value,
        "body": body,
        "screened_at": now,
    }


def screen_of(row: RowMapping) -> Screen:
    return _screens.validate_python(row["body"])


def recommendation_row(study: str, answer: Recommendation, now: datetime) -> Row:
    if answer.study != study:
        raise StorageError(f"an answer of study {answer.study} is none of study {study}")
    body = answer.model_dump(mode="json")
    require_finite(f"recommendation for {answer.study} at {answer.load}", body)
    return {
        "study": study,
        "target": answer.target,
        "load": answer.load.key,
        "objective": answer.objective,
        "confirmed": answer.confirmed,
        "speedup_value": answer.speedup.value,
        "body": body,
        "created_at": now,
    }


def recommendation_of(row: RowMapping) -> Recommendation:
    return Recommendation.model_validate(row["body"])


def event_row(study: str, kind: str, body: Mapping[str, Any], now: datetime) -> Row:
    require_finite(f"event {kind} of study {study}", body)
    return {"study": study, "kind": kind, "body": dict(body), "created_at": now}


def _failure_columns(failure: Failure | None) -> Row:
    return {
        "failure_kind": failure.kind.value if failure else None,
        "failure_message": failure.message if failure else None,
        "failure_exit_code": failure.exit_code if failure else None,
    }


def _failure_of(row: RowMapping) -> Failure | None:
    return None if row["failure_kind"] is None else _required_failure_of(row)


def _required_failure_of(row: RowMapping) -> Failure:
    return Failure(
        FailureKind(row["failure_kind"]), row["failure_message"], row["failure_exit_code"]
    )
