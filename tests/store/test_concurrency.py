"""Several processes and lost connections, over SQLite and PostgreSQL."""

import time

import pytest
from sqlalchemy import create_engine, text

from tests import factories
from tuner.errors import UsageError
from tuner.records import Stage
from tuner.store import open_store

WRITER = """
import sys
from pathlib import Path
from tests import factories
from tuner.store import Store
url, folder, number = sys.argv[1:]
with Store.open(url, Path(folder)) as store:
    for i in range(50):
        start = factories.engine_start(id=f"{number}-{i}", setting=factories.DRAFT)
        store.add_engine_start(start)
        measurement = factories.measurement(id=start.id, engine_start=start.id)
        store.add_measurements([measurement])
        store.add_spent("chat", 1.0)
"""

HOLDER = """
import sys, time
from pathlib import Path
from tuner.store import Store
url, folder = sys.argv[1:]
with Store.open(url, Path(folder)) as store, store.study_lock("chat"):
    print("held", flush=True)
    time.sleep(600)
"""


def test_two_writers_lose_nothing(store, tmp_path, python):
    factories.add_study(store)
    writers = [python(WRITER, store.url, tmp_path, number) for number in range(2)]
    for writer in writers:
        assert writer.wait() == 0
    assert len(store.engine_starts("chat")) == len(store.measurements()) == 100
    assert store.study("chat").spent_s == 100.0


def test_lock_of_a_killed_process_is_free(store, tmp_path, python):
    factories.add_study(store)
    holder = python(HOLDER, store.url, tmp_path)
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(UsageError, match="chat"), store.study_lock("chat"):
        pass
    holder.kill()
    holder.wait()
    _until_free(store)


def _until_free(store):
    """PostgreSQL needs a moment to see that its client is gone."""
    deadline = time.monotonic() + 60
    while True:
        try:
            with store.study_lock("chat"):
                return
        except UsageError:
            if time.monotonic() > deadline:
                raise


def _drop_connections(url):
    engine = create_engine(url)
    with engine.connect() as connection:
        connection.execute(
            text(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        )
    engine.dispose()


@pytest.fixture
def postgres_store(postgres_database_url, tmp_path):
    with open_store(postgres_database_url, tmp_path) as opened:
        yield opened


def test_dropped_connection_is_replaced(postgres_store):
    factories.add_study(postgres_store)
    _drop_connections(postgres_store.url)
    postgres_store.set_stage("chat", Stage.CONFIRM)
    assert postgres_store.study("chat").stage is Stage.CONFIRM


def test_lock_is_let_go_where_its_connection_was_dropped(postgres_store):
    factories.add_study(postgres_store)
    with postgres_store.study_lock("chat"):
        _drop_connections(postgres_store.url)
    with postgres_store.study_lock("chat"):
        pass
