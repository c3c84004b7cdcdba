"""Locks between processes. The operating system or PostgreSQL frees them when the holder dies."""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import func, select

from tuner.errors import StorageError
from tuner.store.database import connect, in_words, sqlite_file


@contextmanager
def exclusive(url: str, name: str, *, wait: bool) -> Iterator[bool]:
    """Hold the lock ``name`` of this database, over processes and threads.

    Yields whether it is held: always with ``wait``; without, False where another has it. It is a
    locked file beside a SQLite database, and a session's advisory lock in PostgreSQL.
    """
    file = sqlite_file(url)
    if file is None:
        lock = _advisory_lock(url, name, wait=wait)
    else:
        lock = _file_lock(file.with_name(f"{file.name}.{name}.lock"), wait=wait)
    with lock as held:
        yield held


@contextmanager
def _file_lock(path: Path, *, wait: bool) -> Iterator[bool]:
    try:
        opened = path.open("a")
    except OSError as error:
        raise StorageError(f"cannot lock beside the database: {error}") from error
    with opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True


@contextmanager
def _advisory_lock(url: str, name: str, *, wait: bool) -> Iterator[bool]:
    key = int.from_bytes(hashlib.sha256(f"tuner {name}".encode()).digest()[:8], signed=True)
    engine = connect(url)
    with in_words(engine):
        connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
    try:
        with in_words(engine):
            if wait:
                connection.execute(select(func.pg_advisory_lock(key)))
                held = True
            else:
                held = bool(connection.scalar(select(func.pg_try_advisory_lock(key))))
        yield held
    finally:
        connection.invalidate()  # ends the session, and with it the lock, even where it is dead
        connection.close()
        engine.dispose()
