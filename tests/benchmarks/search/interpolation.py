"""Two measured k of a draft predict the rest: ``python -m tests.benchmarks.search.interpolation``.

For every draft and load of each recorded grid, whole or not, the model sees two k of that draft at
that load alone, and predicts the speed-up at the others, whose own recorded interval must be under
4 % to judge it. All recorded pairs count: of plain starts, held out, and with k changed live.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean, median
from typing import Any

from tests.benchmarks.dated import RESULTS, write
from tests.benchmarks.search.world import World, pooled_sd, recorded_world, seen
from tuner.predict.forecast import Forecast
from tuner.records import Setting
from tuner.spec import Load

MEASURED = (2, 6)
SURE = 0.04
"""Half of a point's own 95 % interval, as a share; a wider one can't judge a prediction."""


def pooled(world: World) -> World:
    """With all that was recorded of a setting as its pairs."""
    further = (world.confirming, world.live)
    pairs = {
        key: [*drawn, *(pair for of in further for pair in of.get(key, ()))]
        for key, drawn in world.pairs.items()
    }
    return replace(world, pairs=pairs)


def predictions(world: World) -> Iterator[dict[str, Any]]:
    drafts: dict[str, list[Setting]] = defaultdict(list)
    for setting in world.settings:
        if not setting.has_no_draft_model:
            drafts[setting.proposer].append(setting)
    with_both = [of for of in drafts.values() if {s.k for s in of} >= set(MEASURED)]
    for of_draft in with_both:
        for load in world.loads:
            measured = {(s, load): world.pairs[s, load] for s in of_draft if s.k in MEASURED}
            forecast = Forecast(world.screens, world.costs, seen(measured))
            for setting in of_draft:
                if setting.k not in MEASURED:
                    yield _compared(world, forecast, setting, load)


def _compared(world: World, forecast: Forecast, setting: Setting, load: Load) -> dict[str, Any]:
    drawn = world.pairs[setting, load]
    measured = fmean(d.log_ratio for d in drawn)
    found = forecast.speedup(setting, load)
    half = 1.96 * _pair_sd(world, setting, load) / math.sqrt(len(drawn))
    low, high = found.bounds()
    return {
        "setting": setting.label,
        "load": load.key,
        "predicted": found.value,
        "low": low,
        "high": high,
        "measured": math.exp(measured),
        "error": abs(math.expm1(found.mean - measured)),
        "own_half_width": half,
        "counts": half < SURE,
    }


def _pair_sd(world: World, setting: Setting, load: Load) -> float:
    """Of one pair, over all k of the draft at the load: a worse draft depends more on the text."""
    return pooled_sd(
        [
            [d.log_ratio for d in drawn]
            for (other, at), drawn in world.pairs.items()
            if other.proposer == setting.proposer and at == load
        ]
    )


def _errors(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    errors = [each["error"] for each in found]
    if not errors:
        return {"points": 0}
    return {"points": len(errors), "median_error": median(errors), "worst_error": max(errors)}


def _told(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        "sure": _errors([each for each in found if each["counts"]]),
        "all, their own noise included": _errors(found),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.search.interpolation")
    parser.add_argument("--keep", action="store_true", help=f"write a dated copy to {RESULTS}")
    keep = parser.parse_args().keep
    grids = {}
    for path in sorted(RESULTS.glob("grid-*.json")):
        print(path.name)
        found = list(predictions(pooled(recorded_world(path))))
        for each in found:
            mark = " " if each["counts"] else "?"
            print(
                f"{mark} {each['setting']:40} {each['load']:14} predicted {each['predicted']:.3f}"
                f" measured {each['measured']:.3f} error {each['error']:.1%}"
            )
        conditions = json.loads(path.read_text())["conditions"]
        grids[path.name] = {"conditions": conditions, **_told(found), "predictions": found}
    told = _told([each for grid in grids.values() for each in grid["predictions"]])
    print(told)
    write("interpolation", {"measured_k": MEASURED, **told, "grids": grids}, keep=keep)


if __name__ == "__main__":
    main()
