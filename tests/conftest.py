"""Databases, stores and the command line for any test. PostgreSQL is a real one, started here."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
from hypothesis import settings
from sqlalchemy import create_engine, make_url, text

from tests.postgres import find_installed, find_packaged, running
from tuner.cli import main
from tuner.store import Store, open_store, upgrade

_names = count()

# A busy machine is no reason for a test to fail.
settings.register_profile("without deadline", deadline=None)
settings.load_profile("without deadline")


@pytest.fixture(autouse=True)
def _own_data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test touches the user's data. Fixtures of the session still see the real folder."""
    for name in os.environ:
        if name.startswith("TUNER_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TUNER_DATA_DIR", str(tmp_path / "data"))


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The URL of a server's ``postgres`` database, as its superuser."""
    with running(find_installed() or find_packaged()) as url:
        yield url


@pytest.fixture(scope="session")
def _upgraded_database(postgres_url: str) -> Iterator[str]:
    """The name of a database with our schema, copied because that is faster than an upgrade."""
    with _database(postgres_url, "template1") as url:
        upgrade(url)
        yield str(make_url(url).database)


@pytest.fixture
def postgres_database_url(postgres_url: str) -> Iterator[str]:
    """A fresh, empty database."""
    with _database(postgres_url, "template1") as url:
        yield url


@pytest.fixture(params=["sqlite", "postgres"])
def storage_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A fresh database of either kind: empty, but for a test that has the ``store`` in it too."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'tuner.db'}"
        return
    has_store = "store" in request.fixturenames
    template = request.getfixturevalue("_upgraded_database") if has_store else "template1"
    with _database(request.getfixturevalue("postgres_url"), template) as url:
        yield url


@pytest.fixture
def store(storage_url: str, tmp_path: Path) -> Iterator[Store]:
    with open_store(storage_url, tmp_path) as opened:
        yield opened


@pytest.fixture
def tuner(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """Runs a command in this process: exit code, stdout, stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["tuner", *arguments])
        monkeypatch.setenv("COLUMNS", "200")
        code = 0
        try:
            main()
        except SystemExit as error:
            code = int(error.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return run


@contextmanager
def _database(server_url: str, template: str) -> Iterator[str]:
    """A new database, dropped in the end. Yields its URL."""
    name = f"test_{next(_names)}"
    _run(server_url, f"CREATE DATABASE {name} TEMPLATE {template}")
    yield make_url(server_url).set(database=name).render_as_string(hide_password=False)
    _run(server_url, f"DROP DATABASE {name} WITH (FORCE)")


def _run(url: str, statement: str) -> None:
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(statement))
    engine.dispose()
