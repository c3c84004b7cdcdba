"""The tables. Migrations build them; a test holds the two equal."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from tuner.store.columns import AnyText, JsonBody, UtcTime

PREFIX = "tuner_"
"""Every table of ours starts so; whatever else the database holds is left alone."""

VERSION_TABLE = "tuner_alembic_version"

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)

contexts = Table(
    "tuner_contexts",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("body", JsonBody, nullable=False),
    Column("created_at", UtcTime, nullable=False),
)

studies = Table(
    "tuner_studies",
    metadata,
    Column("name", String(64), primary_key=True),
    # Not JSONB, which would reorder engine.args and with them the argv that a context digests.
    Column("spec", JSON, nullable=False),
    Column("stage", String(16), nullable=False),
    Column("context", ForeignKey("tuner_contexts.digest")),
    Column("spent_s", Double, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("updated_at", UtcTime, nullable=False),
)

settings = Table(
    "tuner_settings",
    metadata,
    Column("key", String(16), primary_key=True),
    Column("method", String(64), nullable=False),
    Column("k", Integer, nullable=False),
    # Text: the canonical form is what a setting is; JSONB would rewrite its numbers.
    Column("config", Text, nullable=False),
)

engine_starts = Table(
    "tuner_engine_starts",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("study", ForeignKey("tuner_studies.name"), nullable=False, index=True),
    Column("context", ForeignKey("tuner_contexts.digest"), nullable=False),
    Column("setting", ForeignKey("tuner_settings.key"), nullable=False),
    Column("purpose", String(16), nullable=False),
    Column("argv", JsonBody, nullable=False),
    Column("env", JsonBody, nullable=False),
    Column("started_at", UtcTime, nullable=False),
    Column("startup_s", Double),
    Column("facts", JsonBody, nullable=False),
    Column("log_path", AnyText, nullable=False),
    Column("log_tail", AnyText, nullable=False),
    Column("failure_kind", String(32)),
    Column("failure_message", AnyText),
    Column("failure_exit_code", Integer),
)

_BESIDE = ForeignKey("tuner_measurements.id", deferrable=True, initially="DEFERRED")
_AGAIN = ForeignKey("tuner_measurements.id", deferrable=True, initially="DEFERRED")

measurements = Table(
    "tuner_measurements",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("study", ForeignKey("tuner_studies.name"), nullable=False, index=True),
    Column("context", ForeignKey("tuner_contexts.digest"), nullable=False),
    Column("engine_start", ForeignKey("tuner_engine_starts.id"), nullable=False),
    Column("setting", ForeignKey("tuner_settings.key"), nullable=False),
    Column("load", String(64), nullable=False),
    Column("purpose", String(16), nullable=False),
    Column("pair", Integer, nullable=False),
    Column("order", Integer, nullable=False),
    # Checked at commit, where each half of a pair must find the other, which has no third.
    Column("beside", _BESIDE, unique=True),
    Column("again", _AGAIN),
    Column("tpot_ms_p50", Double),
    Column("e2e_ms_p95", Double),
    Column("output_throughput_tok_s", Double, nullable=False),
    Column("acceptance_length", Double),
    Column("other_figures", JsonBody, nullable=False),
    Column("counters", JsonBody, nullable=False),
    Column("warnings", JsonBody, nullable=False),
    Column("samples_path", AnyText, nullable=False),
    Column("samples_sha256", String(64), nullable=False),
    Column("plan_sha256", String(64), nullable=False),
    Column("requests_before", Integer, nullable=False),
    Column("repeated_prompts", Integer, nullable=False),
    Column("measured_at", UtcTime, nullable=False),
    Index(None, "context", "setting"),
)

comparisons = Table(
    "tuner_comparisons",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("study", ForeignKey("tuner_studies.name"), nullable=False),
    Column("setting", ForeignKey("tuner_settings.key"), nullable=False),
    Column("load", String(64), nullable=False),
    Column("purpose", String(16), nullable=False),
    Column("log_ratio", Double, nullable=False),
    Column("low", Double),
    Column("high", Double),
    Column("confidence", Double, nullable=False),
    Column("pairs", JsonBody, nullable=False),
    Column("stopped_because", AnyText, nullable=False),
    Column("sameness", JsonBody),
    UniqueConstraint("study", "setting", "load", "purpose"),
)

failures = Table(
    "tuner_failures",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("context", ForeignKey("tuner_contexts.digest"), nullable=False),
    Column("setting", ForeignKey("tuner_settings.key"), nullable=False),
    Column("failure_kind", String(32), nullable=False),
    Column("failure_message", AnyText, nullable=False),
    Column("failure_exit_code", Integer),
    Column("engine_start", ForeignKey("tuner_engine_starts.id")),
    Column("failed_at", UtcTime, nullable=False),
    Index(None, "context", "setting"),
)

screens = Table(
    "tuner_screens",
    metadata,
    Column("context", ForeignKey("tuner_contexts.digest"), primary_key=True),
    Column("setting", ForeignKey("tuner_settings.key"), primary_key=True),
    Column("tokens_per_decode_step", Double),
    Column("body", JsonBody, nullable=False),
    Column("screened_at", UtcTime, nullable=False),
)

recommendations = Table(
    "tuner_recommendations",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("study", ForeignKey("tuner_studies.name"), nullable=False, index=True),
    Column("target", AnyText, nullable=False, index=True),
    Column("load", String(64), nullable=False),
    Column("objective", String(64), nullable=False),
    Column("confirmed", Boolean, nullable=False),
    Column("speedup_value", Double, nullable=False, index=True),
    Column("body", JsonBody, nullable=False),
    Column("superseded_by", ForeignKey("tuner_recommendations.id"), index=True),
    Column("created_at", UtcTime, nullable=False),
)

events = Table(
    "tuner_events",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("study", ForeignKey("tuner_studies.name"), nullable=False, index=True),
    Column("kind", String(64), nullable=False),
    Column("body", JsonBody, nullable=False),
    Column("created_at", UtcTime, nullable=False),
)
