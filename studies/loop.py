"""The state machine of a study: preflight, baseline, screen, explore, confirm, done.

Every stage asks the store what is missing and measures only that, so a study can be left anywhere
and taken up again, and a study that is done costs a look.
"""

from __future__ import annotations

import time
from pathlib import Path

from studies.answer import DISTURBED, answers
from studies.bench import Bench
from studies.clock import Clock
from studies.confirm import confirm
from studies.events import Answered, Event, Observer, StageEntered, Warned
from studies.evidence import forecast, smoothed
from studies.explore import explore
from studies.ledger import Ledger
from studies.run import Run
from studies.schedule import with_schedule
from studies.screen import screen
from studies.screen_text import baseline_runner, record_answers, recorded
from studies.screening import SCREENED
from studies.space import enumerate_settings
from studies.traffic import require_sound_traffic
from tuner import demo
from tuner.answers import Recommendation
from tuner.engine.command import engine_command
from tuner.engine.device import disturbances
from tuner.engine.host import emulates_bfloat16, host_facts
from tuner.engine.probe import probe
from tuner.engine.reap import reap
from tuner.errors import PreflightError
from tuner.load.prompts import load_prompts, workload_sha256
from tuner.preflight import Report, check_engine, check_study, target_digest
from tuner.records import OFF, Context, Purpose, Screen, Setting, Stage
from tuner.settings import Settings
from tuner.spec import Load, StudySpec
from tuner.store import Store


def check(spec: StudySpec, settings: Settings, *, with_engine: bool) -> Report:
    """Preflight alone: starts nothing. ``with_engine`` also asks what the interpreter has."""
    missing = demo.missing(spec, settings.models_dir)
    report = Report()
    if missing:
        report = Report(warnings=(f"to be built before the first start: {', '.join(missing)}",))
    else:
        report = check_study(demo.located(spec, settings.models_dir))
    if not with_engine:
        return report
    facts = probe(spec.engine, engine_python(spec, settings))
    installed = check_engine(spec, facts, emulates_bfloat16=emulates_bfloat16())
    return Report(report.problems + installed.problems, report.warnings + installed.warnings)


def optimize(
    spec: StudySpec,
    store: Store,
    settings: Settings,
    observe: Observer,
    *,
    until: Stage = Stage.DONE,
) -> list[Recommendation]:
    """Runs a study to its answers, or goes on with it; returns one recommendation per load.

    ``until`` SCREEN it stops before anything but the baseline is started, and returns none.

    Raises PreflightError before anything is stored or started; BaselineError when the baseline's
    server fails; UsageError when another process is at work on the same study.
    """
    located, python = prepare(spec, settings, observe)
    with store.study_lock(spec.name):
        reap(settings.data_dir / "engines")
        before = store.save_study(spec)
        context = study_context(located, python)
        digest = store.set_context(spec.name, context)
        if before.stage is Stage.DONE and before.context == digest:
            return store.recommendations(spec.name)
        clock = Clock(store, spec.name)
        run = Run(
            ledger=Ledger(store, located, enumerate_settings(located), digest),
            context=context,
            data_dir=settings.data_dir,
            python=python,
            prompts=load_prompts(spec.workload),
            clock=clock,
            observe=_timed(clock, observe),
        )
        try:
            return _work(run, spec.target.model, until)
        finally:
            clock.save()


def prepare(spec: StudySpec, settings: Settings, observe: Observer) -> tuple[StudySpec, Path]:
    """Preflight, and the quickstart's models built.

    Returns the study with its models located and the interpreter that runs vLLM. Raises
    PreflightError.
    """
    observe(StageEntered(Stage.PREFLIGHT, "checking the study, the models and the engine", 0.0))
    report = check(spec, settings, with_engine=True)
    _require(report)
    for warning in report.warnings:
        observe(Warned(warning))
    python = engine_python(spec, settings)
    demo.build(python, settings.models_dir, demo.missing(spec, settings.models_dir))
    located = demo.located(spec, settings.models_dir)
    _require(check_study(located))
    return located, python


def engine_python(spec: StudySpec, settings: Settings) -> Path:
    """The interpreter that runs vLLM: the study's, else the installation's."""
    return spec.engine.python or settings.default_engine_python


def _work(run: Run, target: str, until: Stage) -> list[Recommendation]:
    with Bench(run, Purpose.EXPLORE) as bench:
        _measure_baseline(run, bench)
        screens = _screen(run, bench)
        if until is Stage.SCREEN:
            return []
        _enter(run, Stage.EXPLORE, f"{len(run.ledger.settings) - 1} settings to choose from")
        outcomes = explore(run, bench, screens)
        scheduled = with_schedule(run, screens, outcomes)
        if scheduled is not run:
            run = scheduled
            outcomes = explore(run, bench, screens)
    _enter(run, Stage.CONFIRM, "finalists and baseline, started afresh and measured in pairs")
    with Bench(run, Purpose.CONFIRM) as bench:
        now = forecast(run.ledger, screens, run.context.host.device)
        comparisons = confirm(run, bench, smoothed(now, outcomes, run.spec.loads))
    found = answers(run, target, comparisons, outcomes)
    run.store.save_recommendations(run.spec.name, found)
    _enter(run, Stage.DONE, "")
    run.observe(Answered(tuple(found)))
    return found


def _measure_baseline(run: Run, bench: Bench) -> None:
    """Its rounds at every load, and the answers that the screen replays."""
    _enter(run, Stage.BASELINE, "the target as it is, without speculation")
    if missing := _unmeasured(run):
        _look_at_device(run)
        require_sound_traffic(run, bench)
        bench.measure_baseline(missing, Purpose.BASELINE)
    record_answers(run, bench)


def _screen(run: Run, bench: Bench) -> dict[Setting, Screen]:
    """Every setting replayed. Where a GPU would be shared with the drafts, no engine holds it."""
    _enter(run, Stage.SCREEN, "every setting replayed over the baseline's answers, none started")
    if run.context.host.device != "cpu":
        bench.stop_baseline()
    began = time.monotonic()
    screens = screen(run, recorded(run), baseline_runner(run))
    took = {"settings": len(screens), "seconds": time.monotonic() - began}
    run.store.add_event(run.spec.name, SCREENED, took)
    return screens


def _unmeasured(run: Run) -> list[Load]:
    """Loads at which the baseline has no round of its own yet."""
    measured = run.store.measurements(
        context=run.ledger.context, setting=OFF, purpose=Purpose.BASELINE
    )
    return [load for load in run.spec.loads if load not in {m.load for m in measured}]


def _look_at_device(run: Run) -> None:
    """What else is at work here is said, and kept for the answer's warnings."""
    for text in disturbances():
        run.store.add_event(run.spec.name, DISTURBED, {"text": text})
        run.observe(Warned(text))


def _enter(run: Run, stage: Stage, note: str) -> None:
    run.store.set_stage(run.spec.name, stage)
    run.observe(StageEntered(stage, note, run.clock.spent_s))


def _require(report: Report) -> None:
    if report.problems:
        raise PreflightError(list(report.problems))


def study_context(spec: StudySpec, python: Path) -> Context:
    """What the study's measurements depend on, as it is found here and now."""
    facts = probe(spec.engine, python)
    command = engine_command(spec.engine, spec.target, OFF, facts, python)
    return Context(
        target=spec.target.model,
        target_digest=target_digest(spec.target),
        host=host_facts(),
        engine=facts,
        baseline_argv=command.argv,
        env=command.env,
        workload_sha256=workload_sha256(spec.workload),
    )


def _timed(clock: Clock, observe: Observer) -> Observer:
    """Saves the working time at every event, then passes it on."""

    def watch(event: Event) -> None:
        clock.save()
        observe(event)

    return watch
