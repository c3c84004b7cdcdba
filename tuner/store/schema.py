"""The schema: made and brought up to date by ``tuner db upgrade``, checked before every use."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from importlib.resources import as_file, files
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Engine, inspect

from tuner.errors import StorageError
from tuner.store.database import (
    connect,
    in_words,
    masked,
    normalise_url,
    reading,
    sqlite_file,
    writing,
)
from tuner.store.lock import exclusive
from tuner.store.tables import PREFIX, VERSION_TABLE

__all__ = ["check", "is_empty", "normalise_url", "upgrade"]


def upgrade(url: str, also: Callable[[str], None] | None = None) -> None:
    """Make the schema, or bring it up to date; any number of processes may try at once.

    ``also`` is called with the normalised URL under the same lock: other tables that live in the
    database. Raises ``StorageError`` where the database cannot be reached or changed.
    """
    _make_folder(url)
    with exclusive(url, "upgrade", wait=True):
        engine = connect(url)
        try:
            _use_write_ahead_log(engine)
            if also:  # before ours, so that a database that has ours has all
                also(normalise_url(url))
            with as_file(files("migrations")) as folder, writing(engine) as connection:
                config = alembic_config(folder)
                config.attributes["connection"] = connection
                command.upgrade(config, "head")
        except CommandError as error:
            raise StorageError(
                f"storage {masked(url)}: {error}; was it made by a newer version of this program?"
            ) from error
        finally:
            engine.dispose()


def check(url: str) -> str:
    """The schema's revision. ``StorageError`` unless it is the one that this version needs."""
    file = sqlite_file(url)
    if file and not file.exists():
        raise StorageError(f"storage {masked(url)}: no such file; run `tuner db upgrade`")
    engine = connect(url)
    try:
        return check_schema(engine)
    finally:
        engine.dispose()


def check_schema(engine: Engine) -> str:
    """``check`` over an engine that is there already."""
    with reading(engine) as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        revision = context.get_current_revision()
    with as_file(files("migrations")) as folder:
        scripts = ScriptDirectory.from_config(alembic_config(folder))
        head = scripts.get_current_head()
        known = {script.revision for script in scripts.walk_revisions()}
    where = f"storage {engine.url.render_as_string(hide_password=True)}"
    if revision is None:
        raise StorageError(f"{where}: has no schema yet; run `tuner db upgrade`")
    if revision not in known:
        raise StorageError(
            f"{where}: its schema {revision} is newer than this version knows; install a newer one"
        )
    if revision != head:
        raise StorageError(
            f"{where}: its schema {revision} is older than {head}; run `tuner db upgrade`"
        )
    return revision


def is_empty(url: str) -> bool:
    """Whether the database holds no table of ours. A SQLite file that is missing is not made."""
    file = sqlite_file(url)
    if file and not file.exists():
        return True
    engine = connect(url)
    try:
        with reading(engine) as connection:
            names = inspect(connection).get_table_names()
        return not any(name.startswith(PREFIX) for name in names)
    finally:
        engine.dispose()


def _make_folder(url: str) -> None:
    if file := sqlite_file(url):
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"storage {masked(url)}: cannot make its folder: {error}") from error


def _use_write_ahead_log(engine: Engine) -> None:
    """Let readers go on while one writes. SQLite keeps it in the file; not within a transaction."""
    if engine.dialect.name == "sqlite":
        with in_words(engine):
            connection = engine.raw_connection()
        try:
            connection.cursor().execute("PRAGMA journal_mode = WAL")
        except sqlite3.Error as error:
            where = engine.url.render_as_string(hide_password=True)
            raise StorageError(f"storage {where}: {error}") from error
        finally:
            connection.close()


def alembic_config(folder: Path) -> Config:
    """Alembic's configuration for the migrations in the folder; there is no ``alembic.ini``."""
    config = Config()
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    return config
