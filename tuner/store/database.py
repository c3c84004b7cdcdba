"""Reaching the database: its URL, its connections, and its errors in words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, IntegrityError, SQLAlchemyError

from tuner.errors import StorageError

BUSY_TIMEOUT_MS = 30_000
"""How long a SQLite writer waits for another one."""

CONNECT_TIMEOUT_S = 10
"""How long PostgreSQL has to answer."""

_DRIVERS = frozenset({"sqlite", "sqlite+pysqlite", "postgresql", "postgresql+psycopg"})

_WANTED = "write sqlite:///PATH or postgresql://USER:PASSWORD@HOST:PORT/DATABASE"

_WRITES = "tuner_writes"


def normalise_url(url: str) -> str:
    """The URL with ``postgres://``, which SQLAlchemy does not know, as ``postgresql://``."""
    scheme, separator, rest = url.partition("://")
    return f"postgresql{separator}{rest}" if separator and scheme == "postgres" else url


def masked(url: str) -> str:
    """The URL as it may be shown: without its password."""
    try:
        return make_url(normalise_url(url)).render_as_string(hide_password=True)
    except (ArgumentError, ValueError):
        return f"{url.partition('://')[0]}://..." if "://" in url else "(not a URL)"


def parse_url(url: str) -> URL:
    """The URL in parts. ``StorageError`` unless it names a SQLite file or a PostgreSQL database."""
    try:
        parsed = make_url(normalise_url(url))
    except (ArgumentError, ValueError) as error:
        raise StorageError(f"storage {masked(url)}: not a database URL; {_WANTED}") from error
    if parsed.drivername not in _DRIVERS:
        raise StorageError(
            f"storage {masked(url)}: {parsed.drivername} is not supported; {_WANTED}"
        )
    if _is_sqlite(parsed) and parsed.database in {None, "", ":memory:"}:
        raise StorageError(f"storage {masked(url)}: names no file; {_WANTED}")
    return parsed


def _is_sqlite(url: URL) -> bool:
    return url.get_backend_name() == "sqlite"


def sqlite_file(url: str) -> Path | None:
    """The database's file, or None for PostgreSQL."""
    parsed = parse_url(url)
    return Path(parsed.database or "").absolute() if _is_sqlite(parsed) else None


def connect(url: str) -> Engine:
    """SQLAlchemy's engine for the URL. Connects at first use. ``StorageError`` for a wrong URL."""
    parsed = parse_url(url)
    is_sqlite = _is_sqlite(parsed)
    timeout: dict[str, Any] = (
        {"timeout": BUSY_TIMEOUT_MS / 1000} if is_sqlite else {"connect_timeout": CONNECT_TIMEOUT_S}
    )
    engine = create_engine(
        parsed,
        pool_pre_ping=True,
        json_serializer=partial(json.dumps, allow_nan=False),
        connect_args=timeout,
    )
    if is_sqlite:
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    return engine


def _set_up_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = (
        None  # transactions begin in _begin_sqlite, not where sqlite3 would
    )
    connection.execute("PRAGMA foreign_keys = ON")


def _begin_sqlite(connection: Connection) -> None:
    # A transaction that reads and then writes fails at once where another wrote in between, busy
    # timeout or not; one that takes the write lock first waits for it.
    writes = connection.get_execution_options().get(_WRITES)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A transaction that only reads. Database errors leave it as ``StorageError``."""
    with in_words(engine), engine.begin() as connection:
        yield connection


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that may write, whole or not at all. Errors leave it as ``StorageError``."""
    with in_words(engine), engine.execution_options(**{_WRITES: True}).begin() as connection:
        yield connection


@contextmanager
def in_words(engine: Engine) -> Iterator[None]:
    """Raise what SQLAlchemy raises as ``StorageError``, saying which database and why."""
    try:
        yield
    except SQLAlchemyError as error:
        cause = str(getattr(error, "orig", None) or error).strip()
        where = engine.url.render_as_string(hide_password=True)
        if isinstance(error, IntegrityError):
            raise StorageError(
                f"storage {where}: refused a row that contradicts what is stored: {cause}"
            ) from error
        raise StorageError(f"storage {where}: {cause}") from error
