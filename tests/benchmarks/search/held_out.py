"""Which settings of the grid are measured once more, on other prompts: the held-out truth."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from tests.benchmarks.search.grid_file import Body, pairs_of
from tuner.records import Purpose
from tuner.spec import Load

Config = dict[str, Any]


def best_settings(body: Body, count: int) -> list[Config]:
    """The best of each load in turn, each once."""
    by_load = [_ranked(body, Load.of(key)) for key in body["loads"]]
    turns = [config for of_rank in zip(*by_load, strict=True) for config in of_rank]
    once = [config for place, config in enumerate(turns) if config not in turns[:place]]
    return once[:count]


def _ranked(body: Body, load: Load) -> list[Config]:
    explored = [
        (config, pairs_of(body, config, load, Purpose.EXPLORE)) for config in body["settings"]
    ]
    ratios = [(fmean(p["log_ratio"] for p in pairs), config) for config, pairs in explored if pairs]
    return [config for _, config in sorted(ratios, key=lambda each: -each[0])]
