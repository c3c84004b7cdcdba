"""The command line. Thin: parse, call, print.

JSON goes to stdout alone, everything else to stderr. Exit codes: 0 done, 2 usage, 3 the study
cannot run, 4 the engine failed, 5 nothing met the constraints, 130 interrupted.
"""

from __future__ import annotations

import json
import signal
import sys
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console, RenderableType

from tuner import tables
from tuner.errors import TunerError
from tuner.settings import Settings
from tuner.spec import Load
from tuner.store import Store, open_store, upgrade
from tuner.store import check as check_schema

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
    study: StudyArgument, storage: StorageOption = None, output: OutputOption = Output.TABLE
) -> None:
    """Run a study to its answer, or go on with one that was interrupted.

    Starts real vLLM servers and measures them: the baseline, then candidates beside it, then the
    best one and the baseline afresh. Ctrl-C stops everything cleanly; the same command goes on
    where it stopped. Try `tuner optimize quickstart`.
    """
    from studies.loop import optimize as run  # noqa: PLC0415 - Optuna takes a second to import
    from studies.projection import make_optuna_tables  # noqa: PLC0415
    from studies.sources import find_study  # noqa: PLC0415
    from tuner.display import progress  # noqa: PLC0415

    settings = _settings(storage)
    spec = find_study(study, settings)
    opened = open_store(settings.storage_url, settings.data_dir, also=make_optuna_tables)
    with opened as store, progress(Console(stderr=True), spec) as observe:
        try:
            answers = run(spec, store, settings, observe)
        except KeyboardInterrupt:
            _say(f"interrupted, engines stopped; `tuner optimize {study}` goes on from here")
            raise
    _print(tables.recommendations(answers), tables.as_answer(answers), output)


@app.command()
def check(
    study: StudyArgument,
    with_engine: Annotated[
        bool, typer.Option("--with-engine", help="Also ask the installed vLLM.")
    ] = False,
    storage: StorageOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Say whether a study can run here, without starting anything. Exit code 3 if it cannot."""
    from studies.loop import check as preflight  # noqa: PLC0415
    from studies.sources import find_study  # noqa: PLC0415
    from studies.space import enumerate_settings  # noqa: PLC0415

    settings = _settings(storage)
    spec = find_study(study, settings)
    report = preflight(spec, settings, with_engine=with_engine)
    count = len(enumerate_settings(spec))
    body = {"study": spec.name, "settings": count, "problems": report.problems}
    _print(tables.report(spec.name, count, report), body | {"warnings": report.warnings}, output)
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
