import socket

import pytest
from sqlalchemy import text

from tuner.errors import StorageError
from tuner.store import Store, check, is_empty, normalise_url, upgrade
from tuner.store.database import connect, masked, reading


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        ("postgres://a:b@host/db", "postgresql://a:b@host/db"),
        ("postgresql://host/db", "postgresql://host/db"),
        ("postgresql+psycopg://host/db", "postgresql+psycopg://host/db"),
        ("sqlite:///postgres://", "sqlite:///postgres://"),
        ("postgres", "postgres"),
    ],
)
def test_normalise_url(url, normal):
    assert normalise_url(url) == normal
    assert normalise_url(normal) == normal


def test_password_is_masked():
    assert masked("postgres://ann:secret@host/db") == "postgresql://ann:***@host/db"
    assert "secret" not in masked("postgres://ann:secret@host:port/db")


@pytest.mark.parametrize("call", [upgrade, check, is_empty, lambda url: Store.open(url, None)])
@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("tuner.db", "not a database URL"),
        ("", "not a database URL"),
        ("postgresql://ann:secret@host:port/db", "not a database URL"),
        ("mysql://ann:secret@host/db", "mysql is not supported"),
        ("nonsense://ann:secret@host/db", "nonsense is not supported"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("postgresql+nonsense://ann:secret@host/db", "postgresql.nonsense is not supported"),
        ("sqlite+aiosqlite:///x.db", "not supported"),
    ],
)
def test_nonsense_url(call, url, problem, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StorageError, match=problem) as refused:
        call(url)
    assert "secret" not in str(refused.value)
    assert "sqlite:///PATH" in str(refused.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("call", [upgrade, check, is_empty, lambda url: Store.open(url, None)])
def test_server_that_is_not_there(call):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: refuses
        port = taken.getsockname()[1]
        with pytest.raises(StorageError, match="efused") as refused:
            call(f"postgres://ann:secret@127.0.0.1:{port}/db")
    assert f"postgresql://ann:***@127.0.0.1:{port}/db" in str(refused.value)
    assert "secret" not in str(refused.value)


def test_database_that_is_not_there(postgres_url):
    with pytest.raises(StorageError, match='database "absent" does not exist'):
        check(postgres_url.replace("/postgres?", "/absent?"))


@pytest.mark.parametrize("call", [upgrade, check, is_empty])
def test_file_that_is_no_database(call, tmp_path):
    path = tmp_path / "tuner.db"
    path.write_text("a letter, long enough that SQLite reads a header in it" * 40)
    with pytest.raises(StorageError, match="file is not a database"):
        call(f"sqlite:///{path}")


def test_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot make its folder"):
        upgrade(f"sqlite:///{tmp_path}/file/tuner.db")


def test_sqlite_is_set_up(tmp_path):
    url = f"sqlite:///{tmp_path}/tuner.db"
    upgrade(url)
    engine = connect(url)
    with reading(engine) as connection:
        values = [
            connection.scalar(text(f"PRAGMA {name}"))
            for name in ("journal_mode", "foreign_keys", "busy_timeout")
        ]
    engine.dispose()
    assert values == ["wal", 1, 30_000]
