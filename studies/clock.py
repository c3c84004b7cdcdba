"""Working time of a study over all its sittings."""

from __future__ import annotations

import time

from tuner.store import Store


class Clock:
    """Counts from its making and saves to the store, so that a killed sitting loses little."""

    def __init__(self, store: Store, study: str) -> None:
        self._store = store
        self._study = study
        self._saved_s = store.study(study).spent_s
        self._since = time.monotonic()

    @property
    def spent_s(self) -> float:
        return self._saved_s + time.monotonic() - self._since

    def save(self) -> None:
        now = time.monotonic()
        self._store.add_spent(self._study, now - self._since)
        self._saved_s += now - self._since
        self._since = now
