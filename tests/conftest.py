"""Databases and stores for any test. PostgreSQL is a real one, started here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text

from tests.postgres import find_installed, find_packaged, running
from tuner.store import Store, open_store

_names = count()


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


@pytest.fixture
def postgres_database_url(postgres_url: str) -> str:
    """A fresh, empty database."""
    name = f"test_{next(_names)}"
    engine = create_engine(postgres_url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return make_url(postgres_url).set(database=name).render_as_string(hide_password=False)


@pytest.fixture(params=["sqlite", "postgres"])
def storage_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh, empty database of either kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'tuner.db'}"
    url: str = request.getfixturevalue("postgres_database_url")
    return url


@pytest.fixture
def store(storage_url: str, tmp_path: Path) -> Iterator[Store]:
    with open_store(storage_url, tmp_path) as opened:
        yield opened
