"""The store: what a study asked, saw, decided and answered, as records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from sqlalchemy import Engine, Select, delete, insert, select, update

from tuner.answers import Recommendation
from tuner.errors import NotFoundError, StorageError, UsageError
from tuner.records import (
    Comparison,
    Context,
    EngineStart,
    Measurement,
    Purpose,
    RequestSample,
    Round,
    Screen,
    Setting,
    SettingFailure,
    Stage,
    StudyRecord,
)
from tuner.spec import Load, StudySpec
from tuner.store import rows
from tuner.store.database import connect, masked, reading, sqlite_file, writing
from tuner.store.lock import exclusive
from tuner.store.samples import read_samples, write_samples
from tuner.store.schema import check_schema, is_empty, upgrade
from tuner.store.sound import require_duration
from tuner.store.statements import (
    add_missing,
    add_settings,
    find_study,
    insert_rows,
    update_study,
    with_setting,
)
from tuner.store.tables import (
    comparisons,
    contexts,
    engine_starts,
    events,
    failures,
    measurements,
    recommendations,
    screens,
    studies,
)


def open_store(url: str, data_dir: Path, also: Callable[[str], None] | None = None) -> Store:
    """``Store.open``, on an empty database after ``upgrade(url, also)``."""
    if is_empty(url):
        upgrade(url, also)
    return Store.open(url, data_dir)


class Store:
    """Reads and writes records. Each method is one transaction; threads may share a store.

    Every method raises ``StorageError`` where the database fails or refuses, and ``NotFoundError``
    for a study or context that is not there.
    """

    def __init__(self, url: str, data_dir: Path, engine: Engine) -> None:
        self.url = url
        self._data_dir = data_dir
        self._engine = engine

    @classmethod
    def open(cls, url: str, data_dir: Path) -> Store:
        """The store at this URL; samples lie under ``data_dir``.

        Raises ``StorageError``: the URL is wrong, nothing answers, the schema is not current.
        """
        file = sqlite_file(url)
        if file and not file.exists():
            raise StorageError(f"storage {masked(url)}: no such file; run `tuner db upgrade`")
        engine = connect(url)
        try:
            check_schema(engine)
        except StorageError:
            engine.dispose()
            raise
        return cls(url, data_dir, engine)

    def close(self) -> None:
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def save_study(self, spec: StudySpec) -> StudyRecord:
        """Add the study, or give it a changed spec and send it back to preflight; rows stay."""
        now = datetime.now(UTC)
        row = rows.spec_row(spec)
        new = {**row, "stage": Stage.PREFLIGHT, "spent_s": 0.0, "created_at": now}
        with writing(self._engine) as connection:
            add_missing(connection, studies, [{**new, "updated_at": now}])
            if find_study(connection, spec.name, lock=True).spec != spec:
                changed = {**row, "stage": Stage.PREFLIGHT, "updated_at": now}
                connection.execute(
                    update(studies).where(studies.c.name == spec.name).values(changed)
                )
            return find_study(connection, spec.name)

    def study(self, name: str) -> StudyRecord:
        with reading(self._engine) as connection:
            return find_study(connection, name)

    def studies(self) -> list[StudyRecord]:
        """All studies, the last updated first."""
        query = select(studies).order_by(studies.c.updated_at.desc(), studies.c.name)
        return [rows.study_of(row) for row in self._read(query)]

    def set_stage(self, name: str, stage: Stage) -> None:
        with writing(self._engine) as connection:
            update_study(connection, name, stage=stage)

    def add_context(self, context: Context) -> str:
        """Store the context once, by its digest, which is returned."""
        row = rows.context_row(context, datetime.now(UTC))
        with writing(self._engine) as connection:
            add_missing(connection, contexts, [row])
        return str(row["digest"])

    def set_context(self, name: str, context: Context) -> str:
        """Point the study at the context, stored once by its digest. Returns the digest."""
        row = rows.context_row(context, datetime.now(UTC))
        with writing(self._engine) as connection:
            add_missing(connection, contexts, [row])
            update_study(connection, name, context=row["digest"])
        return str(row["digest"])

    def context(self, digest: str) -> Context:
        for row in self._read(select(contexts).where(contexts.c.digest == digest)):
            return rows.context_of(row)
        raise NotFoundError(f"no context {digest} in the store")

    def add_spent(self, name: str, seconds: float) -> None:
        """Add working time to what the study has spent."""
        require_duration(f"study {name}: time spent", seconds)
        with writing(self._engine) as connection:
            update_study(connection, name, spent_s=studies.c.spent_s + seconds)

    @contextmanager
    def study_lock(self, name: str) -> Iterator[None]:
        """Hold the study alone. ``UsageError`` where another process has it; freed when it dies."""
        with exclusive(self.url, f"study-{name}", wait=False) as held:
            if not held:
                raise UsageError(
                    f"study {name} is being worked on by another process; wait for it or stop it"
                )
            yield

    def add_engine_start(self, start: EngineStart) -> None:
        with writing(self._engine) as connection:
            add_settings(connection, [start.setting])
            connection.execute(insert(engine_starts).values(rows.engine_start_row(start)))

    def update_engine_start(self, start: EngineStart) -> None:
        row = rows.engine_start_row(start)
        with writing(self._engine) as connection:
            changed = connection.execute(
                update(engine_starts).where(engine_starts.c.id == start.id).values(row)
            )
            if not changed.rowcount:
                raise NotFoundError(f"no engine start {start.id} in the store")

    def engine_starts(self, study: str) -> list[EngineStart]:
        """The study's engine starts, oldest first."""
        query = with_setting(engine_starts).where(engine_starts.c.study == study)
        query = query.order_by(engine_starts.c.started_at, engine_starts.c.id)
        return [rows.engine_start_of(row) for row in self._read(query)]

    def add_measurements(self, new: Sequence[Measurement]) -> None:
        """Store all of them or none: a pair is never half there.

        Raises ``RoundError`` where a count or time is NaN, infinite or negative.
        """
        new_rows = [rows.measurement_row(measurement) for measurement in new]
        with writing(self._engine) as connection:
            add_settings(connection, (measurement.setting for measurement in new))
            insert_rows(connection, measurements, new_rows)

    def measurements(
        self,
        *,
        study: str | None = None,
        context: str | None = None,
        setting: Setting | None = None,
        load: Load | None = None,
        purpose: Purpose | None = None,
    ) -> list[Measurement]:
        """Those that match everything given, over all studies, oldest first."""
        columns = measurements.c
        query = with_setting(measurements)
        if study is not None:
            query = query.where(columns.study == study)
        if context is not None:
            query = query.where(columns.context == context)
        if setting is not None:
            query = query.where(columns.setting == setting.key)
        if load is not None:
            query = query.where(columns.load == load.key)
        if purpose is not None:
            query = query.where(columns.purpose == purpose)
        query = query.order_by(columns.measured_at, columns.pair, columns.order, columns.id)
        return [rows.measurement_of(row) for row in self._read(query)]

    def save_samples(self, measurement_id: str, round_: Round) -> tuple[str, str]:
        """Write the round's samples. Returns (path relative to the data folder, SHA-256)."""
        return write_samples(self._data_dir, measurement_id, round_.samples)

    def load_samples(self, path: str) -> list[RequestSample]:
        return read_samples(self._data_dir, path)

    def add_failure(self, failure: SettingFailure) -> None:
        with writing(self._engine) as connection:
            add_settings(connection, [failure.setting])
            connection.execute(insert(failures).values(rows.setting_failure_row(failure)))

    def failures(self, context: str) -> list[SettingFailure]:
        """What failed in the context, over all studies, in the order it was stored."""
        query = with_setting(failures).where(failures.c.context == context)
        query = query.order_by(failures.c.id)
        return [rows.setting_failure_of(row) for row in self._read(query)]

    def save_screens(self, new: Sequence[Screen]) -> None:
        """Store them in place of former ones of the same setting in the same context."""
        now = datetime.now(UTC)
        new_rows = [rows.screen_row(screen, now) for screen in new]
        with writing(self._engine) as connection:
            add_settings(connection, (screen.setting for screen in new))
            for row in new_rows:
                connection.execute(
                    delete(screens).where(
                        screens.c.context == row["context"], screens.c.setting == row["setting"]
                    )
                )
            insert_rows(connection, screens, new_rows)

    def screens(self, context: str) -> dict[Setting, Screen]:
        """What screening said of the settings of a context, over all studies."""
        query = select(screens).where(screens.c.context == context)
        found = [rows.screen_of(row) for row in self._read(query)]
        return {screen.setting: screen for screen in found}

    def save_comparisons(self, study: str, new: Sequence[Comparison]) -> None:
        """Store them in place of the study's former ones of the same setting, load and purpose."""
        new_rows = [rows.comparison_row(study, comparison) for comparison in new]
        with writing(self._engine) as connection:
            add_settings(connection, (comparison.setting for comparison in new))
            for row in new_rows:
                connection.execute(
                    delete(comparisons).where(
                        comparisons.c.study == study,
                        comparisons.c.setting == row["setting"],
                        comparisons.c.load == row["load"],
                        comparisons.c.purpose == row["purpose"],
                    )
                )
            insert_rows(connection, comparisons, new_rows)

    def comparisons(self, study: str, purpose: Purpose | None = None) -> list[Comparison]:
        """The study's comparisons, in the order they were stored."""
        query = with_setting(comparisons).where(comparisons.c.study == study)
        if purpose is not None:
            query = query.where(comparisons.c.purpose == purpose)
        return [rows.comparison_of(row) for row in self._read(query.order_by(comparisons.c.id))]

    def save_recommendations(self, study: str, answers: Sequence[Recommendation]) -> None:
        """Store one answer per load; the study's former ones, at any load, are superseded."""
        now = datetime.now(UTC)
        new_rows = [rows.recommendation_row(study, answer, now) for answer in answers]
        columns = recommendations.c
        current = select(columns.id, columns.load).where(
            columns.study == study, columns.superseded_by.is_(None)
        )
        with writing(self._engine) as connection:
            find_study(connection, study, lock=True)
            former = connection.execute(current).all()
            ids = {
                row["load"]: connection.scalar(
                    insert(recommendations).values(row).returning(columns.id)
                )
                for row in new_rows
            }
            for id_, load in former if ids else ():
                successor = ids.get(load, next(iter(ids.values())))
                connection.execute(
                    update(recommendations).where(columns.id == id_).values(superseded_by=successor)
                )

    def recommendations(self, study: str) -> list[Recommendation]:
        """The study's current answers, in the order of its loads."""
        columns = recommendations.c
        loads = self.study(study).spec.loads
        query = select(columns.body).where(columns.study == study, columns.superseded_by.is_(None))
        answers = [rows.recommendation_of(row) for row in self._read(query.order_by(columns.id))]
        return sorted(
            answers,
            key=lambda answer: loads.index(answer.load) if answer.load in loads else len(loads),
        )

    def recommendations_for(self, target: str) -> list[Recommendation]:
        """Current, confirmed answers for the target over all studies."""
        columns = recommendations.c
        query = select(columns.body).where(
            columns.target == target, columns.confirmed, columns.superseded_by.is_(None)
        )
        query = query.order_by(columns.study, columns.id)
        return [rows.recommendation_of(row) for row in self._read(query)]

    def add_event(self, study: str, kind: str, body: Mapping[str, Any]) -> None:
        row = rows.event_row(study, kind, body, datetime.now(UTC))
        with writing(self._engine) as connection:
            connection.execute(insert(events).values(row))

    def events(self, study: str) -> list[tuple[datetime, str, dict[str, Any]]]:
        """(when, kind, body) of the study's events, oldest first."""
        query = select(events).where(events.c.study == study).order_by(events.c.id)
        return [(row["created_at"], row["kind"], row["body"]) for row in self._read(query)]

    def events_of_kind(self, kind: str) -> list[tuple[datetime, dict[str, Any]]]:
        """(when, body) of the events of a kind over all studies, oldest first."""
        query = select(events).where(events.c.kind == kind).order_by(events.c.id)
        return [(row["created_at"], row["body"]) for row in self._read(query)]

    def _read(self, query: Select[Any]) -> Sequence[Any]:
        with reading(self._engine) as connection:
            return connection.execute(query).mappings().all()
