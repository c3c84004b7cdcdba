"""Loads that are rates, what a round sent, and sameness of output"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
_WITH_LOADS = ("tuner_measurements", "tuner_comparisons", "tuner_recommendations")
_UNIQUE = "uq_tuner_comparisons_study"


def upgrade() -> None:
    for table in _WITH_LOADS:
        with op.batch_alter_table(table) as batch:
            batch.add_column(sa.Column("load", sa.String(length=64), nullable=True))
        op.execute(f"UPDATE {table} SET load = 'concurrency=' || concurrency")  # noqa: S608
    with op.batch_alter_table("tuner_comparisons") as batch:
        batch.drop_constraint(op.f(_UNIQUE), type_="unique")
        batch.drop_column("concurrency")
        batch.alter_column("load", existing_type=sa.String(length=64), nullable=False)
        batch.create_unique_constraint(op.f(_UNIQUE), ["study", "setting", "load", "purpose"])
        batch.add_column(sa.Column("sameness", _JSON, nullable=True))
    with op.batch_alter_table("tuner_recommendations") as batch:
        batch.drop_column("concurrency")
        batch.alter_column("load", existing_type=sa.String(length=64), nullable=False)
    with op.batch_alter_table("tuner_measurements") as batch:
        batch.drop_column("concurrency")
        batch.alter_column("load", existing_type=sa.String(length=64), nullable=False)
        batch.add_column(sa.Column("again", sa.String(length=64), nullable=True))
        batch.add_column(
            sa.Column("plan_sha256", sa.String(length=64), nullable=False, server_default="")
        )
        for count in ("requests_before", "repeated_prompts"):
            batch.add_column(sa.Column(count, sa.Integer(), nullable=False, server_default="0"))
        batch.create_foreign_key(
            op.f("fk_tuner_measurements_again"),
            "tuner_measurements",
            ["again"],
            ["id"],
            deferrable=True,
            initially="DEFERRED",
        )
    with op.batch_alter_table("tuner_measurements") as batch:
        for column in ("plan_sha256", "requests_before", "repeated_prompts"):
            batch.alter_column(column, server_default=None)


def downgrade() -> None:
    """Answers about a rate can't be told in the old schema: they go."""
    with op.batch_alter_table("tuner_measurements") as batch:
        batch.drop_constraint(op.f("fk_tuner_measurements_again"), type_="foreignkey")
        for column in ("again", "plan_sha256", "requests_before", "repeated_prompts"):
            batch.drop_column(column)
    for table in reversed(_WITH_LOADS):
        op.execute(f"DELETE FROM {table} WHERE load NOT LIKE 'concurrency=%'")  # noqa: S608
        with op.batch_alter_table(table) as batch:
            batch.add_column(sa.Column("concurrency", sa.Integer(), nullable=True))
        number = "CAST(SUBSTR(load, LENGTH('concurrency=') + 1) AS INTEGER)"
        op.execute(f"UPDATE {table} SET concurrency = {number}")  # noqa: S608
    with op.batch_alter_table("tuner_comparisons") as batch:
        batch.drop_constraint(op.f(_UNIQUE), type_="unique")
        batch.drop_column("load")
        batch.drop_column("sameness")
        batch.alter_column("concurrency", existing_type=sa.Integer(), nullable=False)
        batch.create_unique_constraint(
            op.f(_UNIQUE), ["study", "setting", "concurrency", "purpose"]
        )
    for table in ("tuner_recommendations", "tuner_measurements"):
        with op.batch_alter_table(table) as batch:
            batch.drop_column("load")
            batch.alter_column("concurrency", existing_type=sa.Integer(), nullable=False)
