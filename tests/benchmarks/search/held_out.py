"""Which settings of the grid are measured once more, on other prompts: the held-out truth."""

from __future__ import annotations

from statistics import fmean

from studies.run import Run
from tuner.records import Setting
from tuner.spec import Load


def best_settings(run: Run, count: int) -> list[Setting]:
    """The best of each load in turn, each once."""
    by_load = [_ranked(run, load) for load in run.spec.loads]
    turns = [setting for of_rank in zip(*by_load, strict=True) for setting in of_rank]
    return list(dict.fromkeys(turns))[:count]


def _ranked(run: Run, load: Load) -> list[Setting]:
    ratios = {
        setting: fmean(pair.log_ratio(run.spec.objective) for pair in pairs)
        for setting in run.ledger.settings
        if not setting.is_off and (pairs := run.ledger.explored_pairs(setting, load))
    }
    return sorted(ratios, key=lambda setting: -ratios[setting])
