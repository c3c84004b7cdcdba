"""Draft a migration: what ``tuner/store/tables.py`` has and the migrations so far do not build."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from alembic import command

from tuner.store.database import connect, writing
from tuner.store.schema import alembic_config, upgrade

with TemporaryDirectory() as folder:
    url = f"sqlite:///{folder}/draft.db"
    upgrade(url)
    config = alembic_config(Path(__file__).parent)
    with writing(connect(url)) as connection:
        config.attributes["connection"] = connection
        command.revision(config, sys.argv[1], autogenerate=True)
