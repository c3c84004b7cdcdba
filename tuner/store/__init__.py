"""What the tuner remembers: studies, measurements and answers, in SQLite or PostgreSQL."""

from tuner.store.schema import check, is_empty, normalise_url, upgrade
from tuner.store.store import Store, open_store

__all__ = ["Store", "check", "is_empty", "normalise_url", "open_store", "upgrade"]
