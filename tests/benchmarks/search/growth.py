"""Spaces of many drafts, simulated: the model fitted to the grid, disturbed by its residuals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from random import Random
from statistics import fmean

from tests.benchmarks.search.world import Drawn, World, seen
from tuner.predict.forecast import Forecast, geometric_tokens
from tuner.records import Estimate, Screen, Setting

KS = (1, 2, 3, 4, 6, 8)
ACCEPTANCE = (0.3, 0.9)
COST = (0.05, 0.4)
"""Ranges that a simulated draft's acceptance and size are drawn from, evenly."""

PAIRS = 6
SCREEN_ERROR = 0.02


def grown(world: World, drafts: int, seed: int) -> World:
    """A world of so many drafts and nothing else."""
    random = Random(seed)
    recorded = seen(world.pairs)
    fitted = Forecast(world.screens, world.costs, recorded)
    residuals = _residuals(world, fitted)
    screens = {}
    for number in range(drafts):
        chance, cost = random.uniform(*ACCEPTANCE), random.uniform(*COST)
        for k in KS:
            setting = _draft(number, k)
            tokens = geometric_tokens(chance, k)
            low, high = tokens * (1 - 2 * SCREEN_ERROR), tokens * (1 + 2 * SCREEN_ERROR)
            estimate = Estimate(tokens, max(1.0, low), high)
            screens[setting] = Screen(setting, "simulated", estimate, None, 1.0, draft_cost=cost)
    model = Forecast(screens, world.costs, recorded)
    truth, pairs = {}, {}
    for screen, load in product(screens.values(), world.loads):
        found = model.speedup(screen.setting, load).mean + random.choice(residuals)
        truth[screen.setting, load] = found
        pairs[screen.setting, load] = _drawn(world, screen, found, random)
    return replace(
        world,
        settings=tuple(screens),
        screens=screens,
        truth=truth,
        pairs=pairs,
        live=pairs,
        confirming={},
        error=0.0,
    )


def _draft(number: int, k: int) -> Setting:
    return Setting.of(
        {"method": "draft_model", "model": f"draft-{number:02d}", "num_speculative_tokens": k}
    )


def _residuals(world: World, fitted: Forecast) -> list[float]:
    """How far the truth lies off the fitted speed-ups, for drafts, the noise of both included."""
    found = [
        value - fitted.speedup(setting, load).mean
        for (setting, load), value in world.truth.items()
        if not setting.has_no_draft_model
    ]
    middle = fmean(found)
    return [value - middle for value in found]


def _drawn(world: World, screen: Screen, log_speedup: float, random: Random) -> Sequence[Drawn]:
    tokens = screen.tokens_per_decode_step
    assert tokens is not None
    return [
        Drawn(random.gauss(log_speedup, world.pair_sd), tokens.value, 1.0, 100)
        for _ in range(PAIRS)
    ]
