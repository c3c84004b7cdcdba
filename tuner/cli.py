"""The command line. Thin: parse, call, print.

JSON goes to stdout alone, everything else to stderr. Exit codes: 0 done, 2 usage, 3 the study
cannot run, 4 the engine failed, 5 nothing met the constraints, 130 interrupted; of `verify`: 5 an
answer is lost, 6 one has changed.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, Group, RenderableType

from tuner import screen_table, tables
from tuner.errors import TunerError
from tuner.records import Stage
from tuner.settings import Settings
from tuner.spec import Load, StudySpec
from tuner.store import Store, open_store, upgrade
from tuner.store import check as check_schema

if TYPE_CHECKING:
    from studies.events import Observer
    from studies.live_k import Trust

app = typer.Typer(
    name="tuner",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Does speculative decoding pay for your vLLM server? Measured, not guessed.",
)
db = typer.Typer(no_args_is_help=True, help="The database's schema.")
app.add_typer(db, name="db")


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"


class Until(StrEnum):
    SCREEN = "screen"
    DONE = "done"


StudyArgument = Annotated[
    str,
    typer.Argument(
        metavar="STUDY", help="A study file (YAML), a preset's name, or a stored study."
    ),
]
NameArgument = Annotated[
    str | None,
    typer.Argument(metavar="[STUDY]", help="A stored study; the one worked on last if left out."),
]
StorageOption = Annotated[
    str | None,
    typer.Option(
        "--storage",
        metavar="URL",
        help="Database: sqlite:///FILE or postgresql://... Default: TUNER_STORAGE, else a SQLite"
        " file in your data folder.",
    ),
]
OutputOption = Annotated[Output, typer.Option("--output", help="How to print the result.")]
LoadOption = Annotated[
    Load | None,
    typer.Option(
        "--load",
        parser=Load.of,
        metavar="LOAD",
        help="Which load, for example concurrency=4; the study's first if left out.",
    ),
]


@app.command()
def optimize(
    study: StudyArgument,
    until: Annotated[
        Until,
        typer.Option(
            "--until", help="`screen` stops once every setting is predicted: one engine start."
        ),
    ] = Until.DONE,
    storage: StorageOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Run a study to its answer, or go on with one that was interrupted.

    Starts real vLLM servers and measures them: the baseline, whose answers say what every setting
    would have drafted; then the most promising ones beside it, until no other can win; then the
    best one and the baseline afresh. Ctrl-C stops everything cleanly; the same command goes on
    where it stopped. Try `tuner optimize quickstart`.
    """
    from studies.loop import optimize as run  # noqa: PLC0415 - Optuna takes a second to import
    from studies.projection import make_optuna_tables  # noqa: PLC0415
    from studies.screening import screened, screening_s  # noqa: PLC0415
    from studies.sources import find_study  # noqa: PLC0415

    settings = _settings(storage)
    spec = find_study(study, settings)
    opened = open_store(settings.storage_url, settings.data_dir, also=make_optuna_tables)
    with opened as store, _shown(spec, f"`tuner optimize {study}` goes on from here") as observe:
        answers = run(spec, store, settings, observe, until=Stage(until))
        if until is Until.SCREEN:
            rows = screened(store, store.study(spec.name), settings)
            seconds = screening_s(store, spec.name)
            body = {"settings": [row.body() for row in rows], "seconds": seconds}
            _print(screen_table.screened(rows, seconds), body, output)
            return
    _print(tables.recommendations(answers), tables.as_answer(answers), output)


@app.command()
def check(
    study: StudyArgument,
    with_engine: Annotated[
        bool, typer.Option("--with-engine", help="Also ask the installed vLLM.")
    ] = False,
    live_k: Annotated[
        bool,
        typer.Option(
            "--live-k",
            help="Also start engines: may one engine measure several k of a draft here?",
        ),
    ] = False,
    storage: StorageOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Say whether a study can run here, without starting anything. Exit code 3 if it cannot.

    With --live-k engines are started two at a time: one whose k is changed while it runs against
    plain ones of the smallest and the largest k. What that shows is kept for later studies.
    """
    from studies.loop import check as preflight  # noqa: PLC0415
    from studies.sources import find_study  # noqa: PLC0415
    from studies.space import enumerate_settings  # noqa: PLC0415

    settings = _settings(storage)
    spec = find_study(study, settings)
    report = preflight(spec, settings, with_engine=with_engine)
    count = len(enumerate_settings(spec))
    body: dict[str, object] = {"study": spec.name, "settings": count}
    body |= {"problems": report.problems, "warnings": report.warnings}
    table = tables.report(spec.name, count, report)
    if live_k and not report.problems:
        found = _check_live_k(spec, settings)
        body["live_k"] = [trust.body() for trust in found]
        table = Group(table, tables.live_k(found))
    _print(table, body, output)
    if report.problems:
        raise typer.Exit(3)


@app.command()
def recommend(
    study: NameArgument = None, storage: StorageOption = None, output: OutputOption = Output.TABLE
) -> None:
    """Show the best configuration for each load, with its evidence."""
    with _open(_settings(storage)) as store:
        answers = tables.finished(store, study)
    _print(tables.recommendations(answers), tables.as_answer(answers), output)


@app.command()
def verify(
    study: NameArgument = None,
    load: Annotated[
        Load | None,
        typer.Option(
            "--load",
            parser=Load.of,
            metavar="LOAD",
            help="Only the answer at this load, for example concurrency=4.",
        ),
    ] = None,
    storage: StorageOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Measure a study's answers again: do they still hold?

    For after an upgrade of vLLM, the driver or the model, and for CI. Starts what is recommended
    beside the baseline, for few pairs. Exit code 0: every answer holds; 5: one is lost; 6: one has
    changed and none is lost. The study itself stays as it is.
    """
    from studies.verify import verify as run  # noqa: PLC0415 - Optuna takes a second to import
    from tuner.verdict import exit_code  # noqa: PLC0415
    from tuner.verify_table import verifications, verifications_body  # noqa: PLC0415

    settings = _settings(storage)
    with _open(settings) as store:
        answers = tables.finished(store, study)
        answers = answers if load is None else [tables.at_load(answers, load)]
        spec = store.study(answers[0].study).spec
        with _shown(spec, "the study's answers stay as they were") as observe:
            found = run(answers, store, settings, observe)
    _print(verifications(found), verifications_body(found), output)
    raise typer.Exit(exit_code(found))


@app.command()
def export(
    study: NameArgument = None,
    format_: Annotated[str, typer.Option("--format", help="Form of the export: sh.")] = "sh",
    path: Annotated[
        Path | None, typer.Option("-o", "--out", help="File to write; stdout if left out.")
    ] = None,
    load: LoadOption = None,
    storage: StorageOption = None,
) -> None:
    """Write what starts the recommended configuration exactly as it was measured."""
    from tuner.export import export as render  # noqa: PLC0415

    with _open(_settings(storage)) as store:
        answer = tables.at_load(tables.finished(store, study), load)
    text = render(answer, format_)
    if path is None:
        sys.stdout.write(text)
        return
    path.write_text(text, encoding="utf-8")
    path.chmod(path.stat().st_mode | 0o111)
    _say(f"wrote {path}: start the server with {path.absolute()} (HOST and PORT can be set)")


@app.command()
def studies(storage: StorageOption = None, output: OutputOption = Output.TABLE) -> None:
    """List the studies in the store."""
    with _open(_settings(storage)) as store:
        records = store.studies()
    _print(tables.studies(records), tables.studies_body(records), output)


@app.command()
def trials(
    study: NameArgument = None, storage: StorageOption = None, output: OutputOption = Output.TABLE
) -> None:
    """List a study's settings: what each came to, or why it failed."""
    from studies.trials import trials as find  # noqa: PLC0415

    settings = _settings(storage)
    with _open(settings) as store:
        found = find(store, tables.named(store, study), settings)
    _print(tables.trials(found), {"trials": [trial.body() for trial in found]}, output)


@app.command()
def serve(
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8765, storage: StorageOption = None
) -> None:
    """Serve the API on 127.0.0.1; its description is at /docs."""
    import uvicorn  # noqa: PLC0415

    from api.app import create_app  # noqa: PLC0415

    settings = _settings(storage)
    with _open(settings):
        pass  # says what is wrong with the storage before anything listens
    uvicorn.run(create_app(settings.storage_url, settings.data_dir), host="127.0.0.1", port=port)


@db.command("upgrade")
def db_upgrade(storage: StorageOption = None) -> None:
    """Create the database's tables, or bring them to this version's schema."""
    from studies.projection import make_optuna_tables  # noqa: PLC0415

    url = _settings(storage).storage_url
    upgrade(url, also=make_optuna_tables)
    _say(f"the schema is at revision {check_schema(url)}")


@db.command("check")
def db_check(storage: StorageOption = None) -> None:
    """Say whether the database has this version's schema."""
    _say(f"the schema is at revision {check_schema(_settings(storage).storage_url)}")


def main() -> None:
    """Entry point: runs a command, turns the tuner's errors into a sentence and an exit code."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        app()
    except TunerError as error:
        _say(str(error))
        sys.exit(error.exit_code)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    """SIGTERM ends a command as Ctrl-C does: engines stopped, exit code 130."""
    raise KeyboardInterrupt


def _check_live_k(spec: StudySpec, settings: Settings) -> list[Trust]:
    from studies.live_k_check import check_study  # noqa: PLC0415 - Optuna takes a second to import
    from studies.projection import make_optuna_tables  # noqa: PLC0415

    opened = open_store(settings.storage_url, settings.data_dir, also=make_optuna_tables)
    what_is_kept = "the methods that were checked whole are kept"
    with opened as store, _shown(spec, what_is_kept) as observe:
        return check_study(spec, store, settings, observe)


@contextmanager
def _shown(spec: StudySpec, what_is_kept: str) -> Iterator[Observer]:
    """Long work as it goes on; where it is interrupted, says what is kept of it."""
    from tuner.display import progress  # noqa: PLC0415 - Optuna takes a second to import
    from tuner.interrupts import interruptible  # noqa: PLC0415

    with progress(Console(stderr=True), spec) as show:
        try:
            with interruptible(show) as observe:
                yield observe
        except KeyboardInterrupt:
            _say(f"interrupted, engines stopped; {what_is_kept}")
            raise


def _settings(storage: str | None) -> Settings:
    settings = Settings()
    return settings.model_copy(update={"storage": storage}) if storage else settings


def _open(settings: Settings) -> Store:
    return Store.open(settings.storage_url, settings.data_dir)


def _print(table: RenderableType, body: object, output: Output) -> None:
    if output is Output.JSON:
        sys.stdout.write(json.dumps(body, indent=2, allow_nan=False) + "\n")
    else:
        Console().print(table)


def _say(text: str) -> None:
    typer.echo(text, err=True)
