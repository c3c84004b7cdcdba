"""How many engine starts a search needs: ``python -m tests.benchmarks.search``, some minutes.

Every search is replayed over the recorded grid with redrawn rounds, 200 seeds each. With
``--growth``, over spaces of 4 to 32 drafts on simulated surfaces.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tests.benchmarks.dated import RESULTS, write
from tests.benchmarks.search.grid_file import surest
from tests.benchmarks.search.growth import grown
from tests.benchmarks.search.searches import SEARCHES, Trace, run
from tests.benchmarks.search.world import NEAR, World, load_world

SEEDS = 200
GROWTH_SEEDS = 40
DRAFTS = (4, 8, 16, 32)
GROWN_SEARCHES = ("ours", "ours, live k", "screen, then top three", "random")
"""TPE, which proposes again and again what was explored, would take hours over 200 settings."""
OUT_OF_100 = 95


def summary(world: World, traces: Sequence[Trace]) -> dict[str, Any]:
    whole = world.whole_s
    never = len(world.settings) + 2
    starts = [never if t.starts_to_near is None else t.starts_to_near for t in traces]
    seconds = [whole if t.seconds_to_near is None else t.seconds_to_near for t in traces]
    return {
        "median_engine_starts": median(starts),
        "p95_engine_starts": _percentile(starts),
        "never_near_share": sum(t.starts_to_near is None for t in traces) / len(traces),
        "starts_when_done": median(t.starts_when_done for t in traces),
        "p95_starts_when_done": _percentile([t.starts_when_done for t in traces]),
        "regret_when_done_p95": _percentile([t.regret for t in traces]),
        "near_when_done_share": sum(t.regret <= NEAR + world.error for t in traces) / len(traces),
        "seconds_ratio_to_grid": median(seconds) / whole,
        "seconds_when_done_ratio_to_grid": median(t.seconds_when_done for t in traces) / whole,
    }


def compare(
    of_seed: Callable[[int], World], names: Sequence[str], seeds: int
) -> dict[str, dict[str, Any]]:
    """Each seed's world is as large as the others'."""
    worlds = [of_seed(seed) for seed in range(seeds)]
    found = {}
    for name in names:
        traces = [run(SEARCHES[name], world, seed) for seed, world in enumerate(worlds)]
        found[name] = summary(worlds[0], traces)
        print(f"  {name:26} " + "  ".join(f"{k} {v:.3g}" for k, v in found[name].items()))
    return found


def _percentile(values: Sequence[float]) -> float:
    return float(np.percentile(values, OUT_OF_100, method="higher"))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.search")
    parser.add_argument(
        "--grid", type=Path, help="default: the recorded grid with the surest truth"
    )
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--growth", action="store_true", help="simulated spaces of many drafts")
    parser.add_argument("--keep", action="store_true", help=f"write a dated copy to {RESULTS}")
    given = parser.parse_args()
    path = given.grid or surest()
    world = load_world(path)
    conditions = json.loads(path.read_text())["conditions"] | {"grid": path.name}
    machine = path.stem.removeprefix("grid-")
    if given.growth:
        spaces = {}
        for drafts in DRAFTS:
            print(f"{drafts} drafts, simulated")
            spaces[str(drafts)] = compare(
                partial(grown, world, drafts), GROWN_SEARCHES, min(given.seeds, GROWTH_SEEDS)
            )
        write(
            "growth",
            {"simulated": True, "conditions": conditions, "drafts": spaces},
            keep=given.keep,
            machine=machine,
        )
        return
    names = [name for name in SEARCHES if name != "ours, live k" or world.live]
    searches = compare(lambda _: world, names, given.seeds)
    body = {
        "conditions": conditions,
        "seeds": given.seeds,
        "near": f"within {NEAR:.0%} and the grid's own error of {world.error:.1%}",
        "searches": searches,
    }
    if world.live:
        body["live_beside_plain"] = asdict(world.live_beside_plain)
    write("search", body, keep=given.keep, machine=machine)


if __name__ == "__main__":
    main()
