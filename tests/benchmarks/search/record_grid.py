"""Records the grid: ``python -m tests.benchmarks.search.record_grid``, two hours on two cores.

Every setting of ``grid.yaml`` has one plain engine start beside the baseline, with PAIRS pairs at
each load. Before that, answers of the baseline are recorded for the screen; after it, the best
settings are started again for a held-out truth, and each draft once with k changed live. It can be
stopped at any time and goes on where it was; what was measured lies in build/bench/grid.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from studies.bench import Bench, Wanted
from studies.clock import Clock
from studies.events import EngineReady, Event, Failed, RoundMeasured
from studies.explore import record_failure
from studies.ledger import Ledger, missing_pairs
from studies.loop import engine_python, study_context
from studies.projection import make_optuna_tables
from studies.run import Run
from studies.screen import screen
from studies.screen_text import baseline_runner, record_answers, recorded
from studies.space import enumerate_settings
from tests.benchmarks.search.grid_file import write_grid
from tests.benchmarks.search.held_out import best_settings
from tuner import demo
from tuner.display import describe
from tuner.engine.reap import reap
from tuner.load.prompts import load_prompts
from tuner.records import Purpose, Setting
from tuner.settings import Settings
from tuner.spec_file import load_study
from tuner.store import Store, open_store

FOLDER = Path("build/bench/grid")
STUDY = Path(__file__).with_name("grid.yaml")
PAIRS = 3
HELD_OUT_PAIRS = 4
BEST = 5
"""Settings that are measured again."""


def say(event: Event) -> None:
    if isinstance(event, EngineReady | RoundMeasured | Failed) and (line := describe(event)):
        print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


def grid_run(store: Store, settings: Settings, models_dir: Path) -> Run:
    spec = load_study(STUDY)
    python = engine_python(spec, settings)
    demo.build(python, models_dir, demo.missing(spec, models_dir))
    located = demo.located(spec, models_dir)
    store.save_study(spec)
    context = study_context(located, python)
    digest = store.set_context(spec.name, context)
    return Run(
        ledger=Ledger(store, located, enumerate_settings(located), digest),
        context=context,
        data_dir=settings.data_dir,
        python=python,
        prompts=load_prompts(spec.workload),
        clock=Clock(store, spec.name),
        observe=say,
    )


def missing(run: Run, setting: Setting, purpose: Purpose, pairs: int) -> list[Wanted]:
    wanted = []
    for load in run.spec.loads:
        have = run.ledger.pairs(setting, load, purpose)
        wanted += [(load, pair) for pair in missing_pairs(have, pairs)]
    return wanted


def measure(run: Run, purpose: Purpose, settings: Sequence[Setting], pairs: int) -> None:
    """One plain start for each setting that lacks pairs."""
    with Bench(run, purpose) as bench:
        for setting in settings:
            if setting in run.ledger.failures():
                continue
            wanted: Callable[[], list[Wanted]] = partial(missing, run, setting, purpose, pairs)
            if failure := bench.measure_pairs(setting, wanted):
                record_failure(run, setting, failure)
                print(f"{setting.label} failed: {failure}")


def record_text(run: Run) -> None:
    with Bench(run, Purpose.SCREEN) as bench:
        record_answers(run, bench)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.search.record_grid")
    parser.add_argument("--keep", action="store_true", help="write the dated result too")
    keep = parser.parse_args().keep
    models_dir = Settings().models_dir
    folder = FOLDER.absolute()
    settings = Settings(data_dir=folder, storage=f"sqlite:///{folder}/grid.db")
    with open_store(settings.storage_url, settings.data_dir, also=make_optuna_tables) as store:
        reap(settings.data_dir / "engines")
        run = grid_run(store, settings, models_dir)
        candidates = [setting for setting in run.ledger.settings if not setting.is_off]
        record_text(run)
        screen(run, recorded(run), baseline_runner(run))
        measure(run, Purpose.EXPLORE, candidates, PAIRS)
        measure(run, Purpose.CONFIRM, best_settings(run, BEST), HELD_OUT_PAIRS)
        write_grid(run, keep=keep)


if __name__ == "__main__":
    main()
