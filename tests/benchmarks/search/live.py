"""Ours and TPE once each on real engines: ``python -m tests.benchmarks.search.live``.

Both explore the recorded grid's study with the same number of engine starts at most; ours stops by
itself. It can be stopped and taken up again: what was measured lies in build/bench/search-live.
An hour or more on two cores.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from studies.events import Event
from studies.loop import optimize
from studies.projection import make_optuna_tables
from tests.benchmarks.dated import write
from tests.benchmarks.search.grid_file import check_runner, conditions, portable
from tests.benchmarks.search.record_grid import STUDY
from tests.benchmarks.search.world import World, load_world
from tuner import demo
from tuner.display import describe
from tuner.records import OFF, Purpose, Setting
from tuner.settings import Settings
from tuner.spec_file import load_study
from tuner.store import Store, open_store

FOLDER = Path("build/bench/search-live")
STARTS = 8
SEARCHES = ("predicted", "tpe")


def say(event: Event) -> None:
    if line := describe(event):
        print(line, flush=True)


def explored(store: Store, name: str) -> list[tuple[Setting, float]]:
    """Every candidate's engine start that exploring made, in order, with its seconds."""
    rounds = store.measurements(study=name)
    found = []
    for start in store.engine_starts(name):
        ends = [m.measured_at for m in rounds if m.engine_start == start.id]
        if start.purpose in {Purpose.EXPLORE, Purpose.LIVE_K} and not start.setting.is_off and ends:
            found.append((start.setting, (max(ends) - start.started_at).total_seconds()))
    return found


def starts_to_near(world: World, settings: Sequence[Setting]) -> int | None:
    """After how many starts, the baseline's counted, one near the best of each load was measured.

    By the recorded grid's truth; None if never.
    """
    counts = range(len(settings) + 1)
    return next((1 + n for n in counts if world.is_near([OFF, *settings[:n]])), None)


def run(search: str, settings: Settings, world: World | None) -> dict[str, Any]:
    spec = load_study(STUDY)
    budget = spec.budget.model_copy(update={"engine_starts": STARTS})
    spec = spec.model_copy(update={"name": f"live-{search}", "search": search, "budget": budget})
    with open_store(settings.storage_url, settings.data_dir, also=make_optuna_tables) as store:
        answers = optimize(spec, store, settings, say)
        starts = explored(store, spec.name)
        every = store.engine_starts(spec.name)
        check_runner(every)
        under = conditions(spec, store.context(every[-1].context))
    settled = [_by_the_grid(setting, settings) for setting, _ in starts]
    return {
        "conditions": under,
        "starts_to_near_by_the_grid": world and starts_to_near(world, settled),
        "starts_when_done": 1 + len(starts),
        "explored": [{"setting": s.label, "seconds": seconds} for s, seconds in starts],
        "recommended": [
            {
                "load": answer.load.key,
                "setting": Setting.of(answer.speculative_config).label,
                "speedup": answer.speedup.model_dump(),
                "regret_by_the_grid": world
                and world.regret(
                    _by_the_grid(Setting.of(answer.speculative_config), settings), answer.load
                ),
            }
            for answer in answers
        ],
    }


def _by_the_grid(setting: Setting, settings: Settings) -> Setting:
    """As the recorded grid names it."""
    return Setting.of(portable(setting.speculative_config, settings.models_dir))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.search.live")
    parser.add_argument("--grid", type=Path, help="a recorded grid, for the regret")
    parser.add_argument("--keep", action="store_true", help="write the dated result too")
    given = parser.parse_args()
    world = load_world(given.grid) if given.grid else None
    found = {}
    for search in SEARCHES:
        folder = (FOLDER / search).absolute()
        settings = Settings(data_dir=folder, storage=f"sqlite:///{folder}/tuner.db")
        models = Settings().models_dir
        folder.mkdir(parents=True, exist_ok=True)
        if not settings.models_dir.exists():
            settings.models_dir.symlink_to(models, target_is_directory=True)
        demo.build(settings.default_engine_python, models, demo.NAMES)
        found[search] = run(search, settings, world)
    write("search-live", {"most_starts": STARTS, "searches": found}, keep=given.keep)


if __name__ == "__main__":
    main()
