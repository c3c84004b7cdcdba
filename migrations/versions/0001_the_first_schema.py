"""The first schema"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "tuner_contexts",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("body", _JSON, nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_tuner_contexts")),
    )
    op.create_table(
        "tuner_settings",
        sa.Column("key", sa.String(length=16), nullable=False),
        sa.Column("method", sa.String(length=64), nullable=False),
        sa.Column("k", sa.Integer(), nullable=False),
        sa.Column("config", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_tuner_settings")),
    )
    op.create_table(
        "tuner_studies",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("stage", sa.String(length=16), nullable=False),
        sa.Column("context", sa.String(length=64), nullable=True),
        sa.Column("spent_s", sa.Double(), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("updated_at", _TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["context"], ["tuner_contexts.digest"], name=op.f("fk_tuner_studies_context")
        ),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_tuner_studies")),
    )
    op.create_table(
        "tuner_comparisons",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("study", sa.String(length=64), nullable=False),
        sa.Column("setting", sa.String(length=16), nullable=False),
        sa.Column("concurrency", sa.Integer(), nullable=False),
        sa.Column("purpose", sa.String(length=16), nullable=False),
        sa.Column("log_ratio", sa.Double(), nullable=False),
        sa.Column("low", sa.Double(), nullable=True),
        sa.Column("high", sa.Double(), nullable=True),
        sa.Column("confidence", sa.Double(), nullable=False),
        sa.Column("pairs", _JSON, nullable=False),
        sa.Column("stopped_because", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["setting"], ["tuner_settings.key"], name=op.f("fk_tuner_comparisons_setting")
        ),
        sa.ForeignKeyConstraint(
            ["study"], ["tuner_studies.name"], name=op.f("fk_tuner_comparisons_study")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tuner_comparisons")),
        sa.UniqueConstraint(
            "study", "setting", "concurrency", "purpose", name=op.f("uq_tuner_comparisons_study")
        ),
    )
    op.create_table(
        "tuner_engine_starts",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("study", sa.String(length=64), nullable=False),
        sa.Column("context", sa.String(length=64), nullable=False),
        sa.Column("setting", sa.String(length=16), nullable=False),
        sa.Column("purpose", sa.String(length=16), nullable=False),
        sa.Column("argv", _JSON, nullable=False),
        sa.Column("env", _JSON, nullable=False),
        sa.Column("started_at", _TIME, nullable=False),
        sa.Column("startup_s", sa.Double(), nullable=True),
        sa.Column("facts", _JSON, nullable=False),
        sa.Column("log_path", sa.Text(), nullable=False),
        sa.Column("log_tail", sa.Text(), nullable=False),
        sa.Column("failure_kind", sa.String(length=32), nullable=True),
        sa.Column("failure_message", sa.Text(), nullable=True),
        sa.Column("failure_exit_code", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(
            ["context"], ["tuner_contexts.digest"], name=op.f("fk_tuner_engine_starts_context")
        ),
        sa.ForeignKeyConstraint(
            ["setting"], ["tuner_settings.key"], name=op.f("fk_tuner_engine_starts_setting")
        ),
        sa.ForeignKeyConstraint(
            ["study"], ["tuner_studies.name"], name=op.f("fk_tuner_engine_starts_study")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tuner_engine_starts")),
    )
    op.create_index(op.f("ix_tuner_engine_starts_study"), "tuner_engine_starts", ["study"])
    op.create_table(
        "tuner_events",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("study", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=64), nullable=False),
        sa.Column("body", _JSON, nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["study"], ["tuner_studies.name"], name=op.f("fk_tuner_events_study")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tuner_events")),
    )
    op.create_index(op.f("ix_tuner_events_study"), "tuner_events", ["study"])
    op.create_table(
        "tuner_recommendations",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("study", sa.String(length=64), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("concurrency", sa.Integer(), nullable=False),
        sa.Column("objective", sa.String(length=64), nullable=False),
        sa.Column("confirmed", sa.Boolean(), nullable=False),
        sa.Column("speedup_value", sa.Double(), nullable=False),
        sa.Column("body", _JSON, nullable=False),
        sa.Column("superseded_by", sa.Integer(), nullable=True),
        sa.Column("created_at", _TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["study"], ["tuner_studies.name"], name=op.f("fk_tuner_recommendations_study")
        ),
        sa.ForeignKeyConstraint(
            ["superseded_by"],
            ["tuner_recommendations.id"],
            name=op.f("fk_tuner_recommendations_superseded_by"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tuner_recommendations")),
    )
    op.create_index(
        op.f("ix_tuner_recommendations_speedup_value"), "tuner_recommendations", ["speedup_value"]
    )
    op.create_index(op.f("ix_tuner_recommendations_study"), "tuner_recommendations", ["study"])
    op.create_index(
        op.f("ix_tuner_recommendations_superseded_by"), "tuner_recommendations", ["superseded_by"]
    )
    op.create_index(op.f("ix_tuner_recommendations_target"), "tuner_recommendations", ["target"])
    op.create_table(
        "tuner_failures",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("context", sa.String(length=64), nullable=False),
        sa.Column("setting", sa.String(length=16), nullable=False),
        sa.Column("failure_kind", sa.String(length=32), nullable=False),
        sa.Column("failure_message", sa.Text(), nullable=False),
        sa.Column("failure_exit_code", sa.Integer(), nullable=True),
        sa.Column("engine_start", sa.String(length=64), nullable=True),
        sa.Column("failed_at", _TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["context"], ["tuner_contexts.digest"], name=op.f("fk_tuner_failures_context")
        ),
        sa.ForeignKeyConstraint(
            ["engine_start"],
            ["tuner_engine_starts.id"],
            name=op.f("fk_tuner_failures_engine_start"),
        ),
        sa.ForeignKeyConstraint(
            ["setting"], ["tuner_settings.key"], name=op.f("fk_tuner_failures_setting")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tuner_failures")),
    )
    op.create_index(
        op.f("ix_tuner_failures_context_setting"), "tuner_failures", ["context", "setting"]
    )
    op.create_table(
        "tuner_measurements",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("study", sa.String(length=64), nullable=False),
        sa.Column("context", sa.String(length=64), nullable=False),
        sa.Column("engine_start", sa.String(length=64), nullable=False),
        sa.Column("setting", sa.String(length=16), nullable=False),
        sa.Column("concurrency", sa.Integer(), nullable=False),
        sa.Column("purpose", sa.String(length=16), nullable=False),
        sa.Column("pair", sa.Integer(), nullable=False),
        sa.Column("order", sa.Integer(), nullable=False),
        sa.Column("beside", sa.String(length=64), nullable=True),
        sa.Column("tpot_ms_p50", sa.Double(), nullable=True),
        sa.Column("e2e_ms_p95", sa.Double(), nullable=True),
        sa.Column("output_throughput_tok_s", sa.Double(), nullable=False),
        sa.Column("acceptance_length", sa.Double(), nullable=True),
        sa.Column("other_figures", _JSON, nullable=False),
        sa.Column("counters", _JSON, nullable=False),
        sa.Column("warnings", _JSON, nullable=False),
        sa.Column("samples_path", sa.Text(), nullable=False),
        sa.Column("samples_sha256", sa.String(length=64), nullable=False),
        sa.Column("measured_at", _TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["context"], ["tuner_contexts.digest"], name=op.f("fk_tuner_measurements_context")
        ),
        sa.ForeignKeyConstraint(
            ["engine_start"],
            ["tuner_engine_starts.id"],
            name=op.f("fk_tuner_measurements_engine_start"),
        ),
        sa.ForeignKeyConstraint(
            ["setting"], ["tuner_settings.key"], name=op.f("fk_tuner_measurements_setting")
        ),
        sa.ForeignKeyConstraint(
            ["study"], ["tuner_studies.name"], name=op.f("fk_tuner_measurements_study")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tuner_measurements")),
        sa.ForeignKeyConstraint(
            ["beside"],
            ["tuner_measurements.id"],
            name=op.f("fk_tuner_measurements_beside"),
            deferrable=True,
            initially="DEFERRED",
        ),
        sa.UniqueConstraint("beside", name=op.f("uq_tuner_measurements_beside")),
    )
    op.create_index(
        op.f("ix_tuner_measurements_context_setting"), "tuner_measurements", ["context", "setting"]
    )
    op.create_index(op.f("ix_tuner_measurements_study"), "tuner_measurements", ["study"])


def downgrade() -> None:
    op.drop_table("tuner_measurements")
    op.drop_table("tuner_failures")
    op.drop_table("tuner_recommendations")
    op.drop_table("tuner_events")
    op.drop_table("tuner_engine_starts")
    op.drop_table("tuner_comparisons")
    op.drop_table("tuner_studies")
    op.drop_table("tuner_settings")
    op.drop_table("tuner_contexts")
