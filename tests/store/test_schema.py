from multiprocessing import get_context
from pathlib import Path

import pytest
from optuna.storages import RDBStorage
from sqlalchemy import inspect, text

from tuner.errors import StorageError
from tuner.store import Store, check, is_empty, open_store, upgrade
from tuner.store.database import connect, reading, writing


def _tables(url):
    engine = connect(url)
    with reading(engine) as connection:
        names = inspect(connection).get_table_names()
    engine.dispose()
    return set(names)


def _run(url, statement):
    engine = connect(url)
    with writing(engine) as connection:
        connection.execute(text(statement))
    engine.dispose()


def test_upgrade_makes_what_check_wants(storage_url):
    assert is_empty(storage_url)
    upgrade(storage_url)
    assert check(storage_url) == "0003"
    assert not is_empty(storage_url)


def test_upgrade_again_changes_nothing(storage_url):
    upgrade(storage_url)
    tables = _tables(storage_url)
    upgrade(storage_url)
    assert _tables(storage_url) == tables


def test_all_tables_carry_the_prefix(storage_url):
    upgrade(storage_url)
    assert {name[:6] for name in _tables(storage_url)} == {"tuner_"}


def test_asking_makes_no_file(tmp_path):
    url = f"sqlite:///{tmp_path}/tuner.db"
    assert is_empty(url)
    with pytest.raises(StorageError, match="run `tuner db upgrade`"):
        check(url)
    with pytest.raises(StorageError, match="run `tuner db upgrade`"):
        Store.open(url, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_folder_of_the_file_is_made(tmp_path):
    url = f"sqlite:///{tmp_path}/deep/er/tuner.db"
    upgrade(url)
    check(url)


def test_empty_database_is_told_apart(storage_url, tmp_path):
    _run(storage_url, "CREATE TABLE somebody_elses (id INTEGER)")
    assert is_empty(storage_url)
    for call in (check, lambda url: Store.open(url, tmp_path)):
        with pytest.raises(StorageError, match="has no schema yet; run `tuner db upgrade`"):
            call(storage_url)


def test_schema_of_a_newer_version(storage_url):
    upgrade(storage_url)
    _run(storage_url, "UPDATE tuner_alembic_version SET version_num = '9999'")
    with pytest.raises(StorageError, match="9999 is newer than this version knows"):
        check(storage_url)
    with pytest.raises(StorageError, match="9999"):
        upgrade(storage_url)


def test_failed_upgrade_leaves_nothing(storage_url):
    _run(storage_url, "CREATE TABLE tuner_measurements (id INTEGER)")
    with pytest.raises(StorageError, match="tuner_measurements"):
        upgrade(storage_url)
    assert _tables(storage_url) == {"tuner_measurements"}


def test_open_store_makes_an_empty_database_ready(storage_url, tmp_path):
    called = []
    for _ in range(2):
        open_store(storage_url, tmp_path, called.append).close()
    assert called == [storage_url]


def test_also_gets_the_normalised_url(postgres_database_url):
    called = []
    upgrade(postgres_database_url.replace("postgresql:", "postgres:"), called.append)
    assert called == [postgres_database_url]


def _make_optuna_tables(url):
    RDBStorage(url)


def _upgrade_at_once(barrier, url, failed):
    barrier.wait()
    try:
        upgrade(url, also=_make_optuna_tables)
        check(url)
    except BaseException as error:
        failed.put(repr(error))
        raise


def test_four_processes_upgrade_a_fresh_database_at_once(storage_url, tmp_path):
    context = get_context("spawn")
    barrier, failed = context.Barrier(4), context.SimpleQueue()
    url = storage_url.replace(str(tmp_path), str(tmp_path / "fresh"))
    processes = [
        context.Process(target=_upgrade_at_once, args=(barrier, url, failed)) for _ in range(4)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert failed.empty(), failed.get()
    assert [process.exitcode for process in processes] == [0, 0, 0, 0]
    assert check(url) == "0003"
    assert {"studies", "trials", "alembic_version"} <= _tables(url)


def test_store_works_from_another_folder(storage_url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    open_store(storage_url, Path()).close()
