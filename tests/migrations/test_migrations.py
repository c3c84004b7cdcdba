import optuna
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from optuna.storages import RDBStorage
from sqlalchemy import inspect

from tests import factories
from tuner.store import Store, check, upgrade
from tuner.store.database import connect, reading, writing
from tuner.store.schema import alembic_config
from tuner.store.tables import PREFIX, VERSION_TABLE, metadata


@pytest.fixture
def optuna_storage():
    """Opens Optuna's storage at a URL, making its tables; closed when the test ends."""
    opened = []

    def open_storage(url):
        opened.append(RDBStorage(url))
        return opened[-1]

    yield open_storage
    for storage in opened:
        storage.remove_session()
        storage.engine.dispose()


@pytest.fixture
def with_optuna(storage_url, optuna_storage):
    """A database that Optuna's tables are in as well."""
    upgrade(storage_url, also=optuna_storage)
    return storage_url


def _differences(url):
    engine = connect(url)
    options = {
        "version_table": VERSION_TABLE,
        "include_name": lambda name, kind, _: kind != "table" or name.startswith(PREFIX),
        "compare_server_default": True,
    }
    with reading(engine) as connection:
        found = compare_metadata(MigrationContext.configure(connection, opts=options), metadata)
    engine.dispose()
    return found


def test_migrations_build_the_tables(with_optuna):
    assert _differences(with_optuna) == []


def test_difference_is_found(with_optuna):
    engine = connect(with_optuna)
    with writing(engine) as connection:
        connection.exec_driver_sql("DROP INDEX ix_tuner_measurements_study")
        connection.exec_driver_sql("ALTER TABLE tuner_studies DROP COLUMN spent_s")
    engine.dispose()
    assert {difference[0] for difference in _differences(with_optuna)} == {
        "add_index",
        "add_column",
    }


@pytest.mark.parametrize("first", ["ours", "optunas"])
def test_optuna_and_we_share_a_database(storage_url, tmp_path, optuna_storage, first):
    if first == "optunas":
        optuna.create_study(storage=optuna_storage(storage_url), study_name="old")
        upgrade(storage_url)
    else:
        upgrade(storage_url)
        optuna.create_study(storage=optuna_storage(storage_url), study_name="old")
    with Store.open(storage_url, tmp_path) as store:
        factories.add_study(store)
        study = optuna.load_study(storage=optuna_storage(storage_url), study_name="old")
        study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
        assert store.study("chat").name == "chat"
    upgrade(storage_url, also=optuna_storage)
    check(storage_url)
    storage = optuna_storage(storage_url)
    assert storage.get_current_version() == storage.get_head_version()
    assert len(optuna.load_study(storage=storage, study_name="old").trials) == 1


def test_downgrade_leaves_optuna_alone(with_optuna):
    engine = connect(with_optuna)
    config = alembic_config("migrations")
    with writing(engine) as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
    with reading(engine) as connection:
        names = set(inspect(connection).get_table_names())
    engine.dispose()
    assert {name for name in names if name.startswith(PREFIX)} == {VERSION_TABLE}
    assert {"studies", "trials", "alembic_version"} <= names
