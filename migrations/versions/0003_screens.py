"""Screens: what replaying recorded answers says of settings that were not started"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    op.create_table(
        "tuner_screens",
        sa.Column("context", sa.String(length=64), nullable=False),
        sa.Column("setting", sa.String(length=16), nullable=False),
        sa.Column("tokens_per_decode_step", sa.Double(), nullable=True),
        sa.Column("body", _JSON, nullable=False),
        sa.Column("screened_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["context"], ["tuner_contexts.digest"], name=op.f("fk_tuner_screens_context")
        ),
        sa.ForeignKeyConstraint(
            ["setting"], ["tuner_settings.key"], name=op.f("fk_tuner_screens_setting")
        ),
        sa.PrimaryKeyConstraint("context", "setting", name=op.f("pk_tuner_screens")),
    )


def downgrade() -> None:
    op.drop_table("tuner_screens")
