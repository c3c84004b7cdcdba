"""Statements that several of the store's methods share. All run in the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Select, Table, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from tuner.errors import NotFoundError
from tuner.records import Setting, StudyRecord
from tuner.store import rows
from tuner.store.tables import settings, studies


def find_study(connection: Connection, name: str, *, lock: bool = False) -> StudyRecord:
    """The study; with ``lock``, no other transaction changes it before this one ends.

    Raises ``NotFoundError`` with the names that are there.
    """
    query = select(studies).where(studies.c.name == name)
    row = connection.execute(query.with_for_update() if lock else query).mappings().first()
    if row is None:
        raise NotFoundError(_no_study(connection, name))
    return rows.study_of(row)


def update_study(connection: Connection, name: str, **values: Any) -> None:
    """Set columns of the study, and when it was updated. ``NotFoundError`` as ``find_study``."""
    values["updated_at"] = datetime.now(UTC)
    if not connection.execute(
        update(studies).where(studies.c.name == name).values(values)
    ).rowcount:
        raise NotFoundError(_no_study(connection, name))


def add_settings(connection: Connection, used: Iterable[Setting]) -> None:
    """Add the settings that are not there yet."""
    by_key = {setting.key: rows.setting_row(setting) for setting in used}
    add_missing(connection, settings, [by_key[key] for key in sorted(by_key)])


def add_missing(connection: Connection, table: Table, new: Sequence[rows.Row]) -> None:
    """Insert the rows whose primary key is not there yet, whoever else inserts it meanwhile."""
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    for row in new:
        connection.execute(dialect.insert(table).values(row).on_conflict_do_nothing())


def insert_rows(connection: Connection, table: Table, new: Sequence[rows.Row]) -> None:
    if new:
        connection.execute(insert(table), list(new))


def with_setting(table: Table) -> Select[Any]:
    """The table's rows, each with the ``config`` of its setting."""
    return select(table, settings.c.config).join(settings, table.c.setting == settings.c.key)


def _no_study(connection: Connection, name: str) -> str:
    names = connection.scalars(select(studies.c.name).order_by(studies.c.name)).all()
    known = f"there are {', '.join(names)}" if names else "there is none yet"
    return f"no study {name} in the store; {known}"
