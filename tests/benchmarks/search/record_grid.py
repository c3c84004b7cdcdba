"""Records the grid: ``python -m tests.benchmarks.search.record_grid``, four hours on two cores.

Every setting of ``grid.yaml`` has one plain engine start beside the baseline, with PAIRS pairs at
each load; TOGETHER settings share the baseline's rounds. Before that, answers of the baseline are
recorded for the screen; after it, the best settings are started again for a held-out truth, and
each draft once more with k changed live.

It can be stopped at any time and goes on where it was: what was measured lies in build/bench/grid,
and is written to the result whenever it stops, from which a checkout without that folder goes on.

The model has a core for itself, everything else the others: vLLM's engine polls while the model
computes, and on two cores that made pairs scatter by 6 to 15 %.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from studies.arm import Arm, started
from studies.bench import Bench, Wanted
from studies.clock import Clock
from studies.events import EngineReady, Event, Failed, RoundMeasured
from studies.explore import record_failure
from studies.ledger import EXPLORE_PAIRS, Ledger
from studies.live_k import Live, groups, live_started
from studies.loop import engine_python, study_context
from studies.projection import make_optuna_tables
from studies.run import Run
from studies.screen import screen
from studies.screen_text import baseline_runner, record_answers, recorded
from studies.space import enumerate_settings
from tests.benchmarks.search.grid_file import (
    Body,
    conditions,
    earlier,
    grid,
    merged,
    pairs_of,
    portable,
    write_grid,
)
from tests.benchmarks.search.held_out import best_settings
from tuner import demo
from tuner.display import describe
from tuner.engine.reap import reap
from tuner.errors import EngineError
from tuner.load.prompts import load_prompts
from tuner.records import Purpose, Setting
from tuner.settings import Settings
from tuner.spec import Load
from tuner.spec_file import load_study
from tuner.store import Store, open_store

FOLDER = Path("build/bench/grid")
STUDY = Path(__file__).with_name("grid.yaml")
PAIRS = 3
HELD_OUT_PAIRS = 10
BEST = 6
"""Settings that are measured again."""
TOGETHER = 4
"""Candidates that share the baseline's rounds; each engine takes 4 GB."""

OTHER_CORES = set(range(1, os.cpu_count() or 2))
"""But the first, which grid.yaml gives to the model."""


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


@dataclass(frozen=True)
class Recording:
    """A grid under way, together with what an earlier file holds."""

    run: Run
    models_dir: Path
    before: Body | None

    def so_far(self) -> Body:
        return merged(grid(self.run, self.models_dir), self.before)

    def record_all(self) -> None:
        candidates = [s for s in self.run.ledger.settings if not s.is_off]
        if not self.before or not self.before["screens"]:
            self.record_screens()
        self.measure(Purpose.EXPLORE, candidates, PAIRS)
        best = best_settings(self.so_far(), BEST)
        self.measure(
            Purpose.CONFIRM, [s for s in candidates if self.named(s) in best], HELD_OUT_PAIRS
        )
        self.measure_with_live_k(candidates)

    def record_screens(self) -> None:
        with Bench(self.run, Purpose.SCREEN) as bench:
            record_answers(self.run, bench)
        screen(self.run, recorded(self.run), baseline_runner(self.run))

    def measure(self, purpose: Purpose, settings: Sequence[Setting], pairs: int) -> None:
        """One plain start for each setting that lacks pairs, TOGETHER of them up at a time."""
        failed = self.run.ledger.failures()
        left = [s for s in settings if s not in failed and self.missing(s, purpose, pairs)]
        with Bench(self.run, purpose) as bench:
            for first in range(0, len(left), TOGETHER):
                self.measure_together(bench, purpose, left[first : first + TOGETHER], pairs)

    def measure_together(
        self, bench: Bench, purpose: Purpose, settings: Sequence[Setting], pairs: int
    ) -> None:
        with ExitStack() as up:
            arms: dict[Setting, Arm] = {}
            for setting in settings:
                try:
                    arms[setting] = up.enter_context(started(self.run, setting, purpose))
                except EngineError as error:
                    record_failure(self.run, setting, error.failure)
                    print(f"{setting.label} failed: {error.failure}")
            self.measure_arms(bench, purpose, arms, pairs)

    def measure_with_live_k(self, settings: Sequence[Setting]) -> None:
        """One start for each draft, as many pairs of each k as exploring takes."""
        with Bench(self.run, Purpose.LIVE_K) as bench:
            left = [group for group in groups(settings) if any(map(self.lacks_live, group))]
            for first in range(0, len(left), TOGETHER):
                self.measure_live_together(bench, left[first : first + TOGETHER])

    def measure_live_together(self, bench: Bench, of: Sequence[Sequence[Setting]]) -> None:
        """The drafts go through their k together."""
        with ExitStack() as up:
            lives: list[tuple[Sequence[Setting], Live]] = []
            for group in of:
                try:
                    lives.append((group, up.enter_context(live_started(self.run, group))))
                except EngineError as error:
                    print(f"live k of {group[0].proposer} failed: {error.failure}")
            for k in sorted({setting.k for group, _ in lives for setting in group}):
                arms: dict[Setting, Arm] = {}
                for setting, live in [(s, live) for group, live in lives for s in group]:
                    if setting.k == k and self.lacks_live(setting):
                        live.stand_for(setting)
                        arms[setting] = live.arm
                self.measure_arms(bench, Purpose.LIVE_K, arms, EXPLORE_PAIRS)

    def lacks_live(self, setting: Setting) -> bool:
        return bool(self.missing(setting, Purpose.LIVE_K, EXPLORE_PAIRS))

    def measure_arms(
        self, bench: Bench, purpose: Purpose, arms: Mapping[Setting, Arm], pairs: int
    ) -> None:
        """The pairs that settings still lack, of their engines which are up."""
        wanted = {setting: self.missing(setting, purpose, pairs) for setting in arms}
        for load in self.run.spec.loads:
            for pair in range(pairs):
                if found := [arms[s] for s in arms if (load, pair) in wanted[s]]:
                    bench.measure_beside(found, load, pair)

    def missing(self, setting: Setting, purpose: Purpose, pairs: int) -> list[Wanted]:
        return [
            (load, pair)
            for load in self.run.spec.loads
            for pair in range(len(self.done(setting, load, purpose)), pairs)
        ]

    def done(self, setting: Setting, load: Load, purpose: Purpose) -> set[str]:
        """Pairs of this machine and of the earlier file, each once."""
        here = {pair.candidate.id for pair in self.run.ledger.pairs(setting, load, purpose)}
        if self.before is None:
            return here
        before = pairs_of(self.before, self.named(setting), load, purpose)
        return here | {pair["id"] for pair in before}

    def named(self, setting: Setting) -> Body:
        return portable(setting.speculative_config, self.models_dir) or {}


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
        os.sched_setaffinity(0, OTHER_CORES)  # after the host was asked how many it has
        recording = Recording(run, models_dir, earlier(conditions(run.spec, run.context)))
        try:
            recording.record_all()
        except KeyboardInterrupt:
            print("stopped: the same command goes on from here")
        finally:
            write_grid(recording.so_far(), keep=keep)


if __name__ == "__main__":
    main()
