"""How Alembic reaches the database: over the connection that ``tuner.store.schema`` gives it."""

from typing import Any

from alembic import context

from tuner.store.tables import PREFIX, VERSION_TABLE, metadata


def _is_ours(name: str | None, kind: str, _parents: Any) -> bool:
    """Whether autogenerate looks at it: other tables in the database are none of our business."""
    return kind != "table" or (name or "").startswith(PREFIX)


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    include_name=_is_ours,
    render_as_batch=True,
    transactional_ddl=True,  # SQLite can; Alembic assumes it can't
)
with context.begin_transaction():
    context.run_migrations()
