"""What a search meets when it is replayed: recorded pairs, redrawn; their times; and the truth."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from statistics import fmean, stdev
from typing import Any

from studies.evidence import pair_sd
from studies.ledger import EXPLORE_PAIRS
from tests.benchmarks.search.grid_file import settings_of
from tuner.measure.sequential import FIRST_PAIRS, Decision, decide
from tuner.predict.baseline_steps import LoadCost, verify_cost
from tuner.predict.forecast import Seen
from tuner.records import OFF, Estimate, Screen, Setting
from tuner.spec import Load

PRECISION = 0.05
"""A study's, where it says nothing else."""

NEAR = 0.03
"""How far below the best a setting may be to be near it, beside the record's own error."""


@dataclass(frozen=True)
class Drawn:
    """One recorded pair: the log speed-up, and the candidate's own account of its steps."""

    log_ratio: float
    tokens_per_decode_step: float
    draft_coverage: float | None
    steps: float

    @property
    def log_step_ratio(self) -> float:
        return math.log(self.tokens_per_decode_step) - self.log_ratio


Pairs = Mapping[tuple[Setting, Load], Sequence[Drawn]]


@dataclass(frozen=True)
class World:
    """Recorded pairs by setting and load, and what everything took.

    ``truth`` is each setting's log speed-up by load, held out for the best; ``error`` the standard
    error of the best ones'. ``live`` holds the pairs that were measured with k changed live.
    """

    settings: tuple[Setting, ...]
    loads: tuple[Load, ...]
    pairs: Pairs
    live: Pairs
    truth: Mapping[tuple[Setting, Load], float]
    error: float
    screens: Mapping[Setting, Screen]
    costs: Mapping[Load, LoadCost]
    start_s: float
    pair_s: float
    baseline_s: float
    device: str = "cpu"
    confirming: Pairs = field(default_factory=dict)

    def best(self, load: Load) -> float:
        return max(0.0, *(self.truth[s, load] for s in self.settings if (s, load) in self.truth))

    def regret(self, setting: Setting, load: Load) -> float:
        """How much slower than the best a setting is at a load, as a log."""
        return self.best(load) - (0.0 if setting == OFF else self.truth[setting, load])

    def is_near(self, settings: Iterable[Setting]) -> bool:
        """Whether at every load one of them is as fast as the best, but for NEAR and the error."""
        measured = tuple(settings)
        return all(
            any(self.regret(setting, load) <= NEAR + self.error for setting in measured)
            for load in self.loads
        )

    def has_live(self, setting: Setting) -> bool:
        return all((setting, load) in self.live for load in self.loads)

    def draw(
        self, setting: Setting, load: Load, *, pairs: int, random: Random, live: bool
    ) -> list[Drawn]:
        """Pairs of one engine start, drawn with replacement from those recorded."""
        recorded = (self.live if live else self.pairs)[setting, load]
        return [random.choice(recorded) for _ in range(pairs)]

    def confirm(self, setting: Setting, load: Load, random: Random) -> tuple[Decision, int]:
        """What confirming finds, and how many pairs it takes."""
        source = self.confirming.get((setting, load)) or self.pairs[setting, load]
        drawn: list[float] = []
        while True:
            drawn.append(random.choice(source).log_ratio)
            found = decide(drawn, PRECISION)
            if len(drawn) >= FIRST_PAIRS and found.stopped_because:
                return found, len(drawn)

    def rescreened(self, random: Random) -> dict[Setting, Screen]:
        """Screens over other answers: moved by their own error, all k of a proposer alike."""
        moved: dict[str, float] = defaultdict(lambda: random.gauss(0, 1))
        return {s: _moved(screen, moved[s.proposer]) for s, screen in self.screens.items()}

    @property
    def whole_s(self) -> float:
        """What measuring every setting once takes, as plainly as exploring does."""
        pairs = EXPLORE_PAIRS * len(self.loads)
        return self.baseline_s + len(self.settings) * (self.start_s + pairs * self.pair_s)

    @property
    def live_beside_plain(self) -> Estimate:
        """By how much the log speed-up is another where k was changed live, over all settings.

        Drafts went through their k together and share the baseline's rounds: they count as one.
        """
        sharing: dict[tuple[bool, int, Load], list[float]] = defaultdict(list)
        for (setting, load), drawn in self.live.items():
            plain = fmean(d.log_ratio for d in self.pairs[setting, load])
            live = fmean(d.log_ratio for d in drawn)
            sharing[setting.has_no_draft_model, setting.k, load].append(live - plain)
        differences = [fmean(together) for together in sharing.values()]
        mean = fmean(differences)
        margin = 1.96 * stdev(differences) / math.sqrt(len(differences))
        return Estimate(mean, mean - margin, mean + margin)

    @property
    def pair_sd(self) -> float:
        """Of one pair's step ratio, pooled over all that was recorded."""
        return pooled_sd([[d.log_step_ratio for d in drawn] for drawn in self.pairs.values()])


def seen(pairs: Pairs) -> list[Seen]:
    """As a study takes them whose only pairs these are."""
    sd = pair_sd([[d.log_step_ratio for d in drawn] for drawn in pairs.values()])
    return [_seen(*key, drawn, sd) for key, drawn in pairs.items()]


def _seen(setting: Setting, load: Load, drawn: Sequence[Drawn], sd_of_a_pair: float) -> Seen:
    coverages = [d.draft_coverage for d in drawn if d.draft_coverage is not None]
    return Seen(
        setting=setting,
        load=load,
        step_ratio=math.exp(fmean(d.log_step_ratio for d in drawn)),
        sd=sd_of_a_pair / math.sqrt(len(drawn)),
        tokens_per_decode_step=fmean(d.tokens_per_decode_step for d in drawn),
        draft_coverage=fmean(coverages) if coverages else None,
        steps=sum(d.steps for d in drawn),
    )


def pooled_sd(groups: Sequence[Sequence[float]]) -> float:
    squares = sum((value - fmean(group)) ** 2 for group in groups for value in group)
    return math.sqrt(squares / max(1, sum(len(group) - 1 for group in groups)))


def _moved(screen: Screen, deviations: float) -> Screen:
    found = screen.tokens_per_decode_step
    if found is None or found.low is None or found.high is None:
        return screen
    factor = math.exp(deviations * math.log(found.high / found.low) / 2 / 1.96)
    value, low, high = (max(1.0, v * factor) for v in (found.value, found.low, found.high))
    return replace(screen, tokens_per_decode_step=Estimate(value, low, high))


def load_world(path: Path) -> World:
    """The recorded grid. Raises SystemExit where the grid is not whole."""
    world = recorded_world(path)
    every = settings_of(json.loads(path.read_text()))
    if left := [setting.label for setting in every if setting not in world.settings]:
        raise SystemExit(f"{path}: not recorded yet: {', '.join(left)}")
    return world


def recorded_world(path: Path) -> World:
    """What there is of a grid: the settings with pairs at every load."""
    body = json.loads(path.read_text())
    loads = tuple(Load.of(key) for key in body["loads"])
    explored, held_out, live = (_pairs(body, name) for name in ("explore", "confirm", "live_k"))
    settings = tuple(
        setting
        for setting in settings_of(body)
        if all((setting, load) in explored for load in loads)
    )
    explored = {key: drawn for key, drawn in explored.items() if key[0] in settings}
    truth = {key: fmean(d.log_ratio for d in drawn) for key, drawn in explored.items()}
    truth |= {key: fmean(d.log_ratio for d in drawn) for key, drawn in held_out.items()}
    pairs = [pair for pair in body["pairs"] if pair["purpose"] == "explore"]
    startups = [s["startup_s"] for s in body["starts"] if s["setting"] and s["startup_s"]]
    return World(
        settings=settings,
        loads=loads,
        pairs=explored,
        live=live,
        truth=truth,
        error=_error(truth, held_out, loads),
        screens=_screens(body),
        costs=_costs(body, loads),
        start_s=fmean(startups),
        pair_s=fmean(p["baseline"]["seconds"] + p["candidate"]["seconds"] for p in pairs),
        baseline_s=_baseline_s(body),
        confirming=held_out,
    )


def _error(
    truth: Mapping[tuple[Setting, Load], float], held_out: Pairs, loads: Sequence[Load]
) -> float:
    """Of the best at each load: what does worse may scatter as it likes."""
    at_load = [[key for key in truth if key[1] == load] for load in loads]
    best = [max(keys, key=lambda key: truth[key]) for keys in at_load]
    drawn = [[d.log_ratio for d in held_out[key]] for key in best if key in held_out]
    return pooled_sd(drawn) / math.sqrt(min((len(found) for found in drawn), default=1))


def _costs(body: Mapping[str, Any], loads: Sequence[Load]) -> dict[Load, LoadCost]:
    """A study has measured each load before it explores. Older records have no decode-only steps:
    there each is as long as a token takes, and no share of it is known to be prefill.
    """
    steps: dict[float, list[float]] = defaultdict(list)
    prefill: dict[Load, list[float]] = defaultdict(list)
    at_loads = [{"load": p["load"], **p["baseline"]} for p in body["pairs"]]
    told = [m for m in [*body["baseline"], *at_loads] if m.get("decode_only_ms")]
    for measured in told or [*body["baseline"], *at_loads]:
        load = Load.of(measured["load"])
        step = measured.get("decode_only_ms") or measured["tpot_ms_p50"]
        steps[float(load.concurrency or 1)].append(step)
        prefill[load].append(measured.get("prefill_share", 0.0))
    times = {concurrency: fmean(found) for concurrency, found in steps.items()}
    return {
        load: LoadCost(verify_cost(load.concurrency or 1, times, "cpu"), fmean(prefill[load]))
        for load in loads
    }


def _baseline_s(body: Mapping[str, Any]) -> float:
    """The start of the baseline, its recorded answers included."""
    found = [s["seconds"] for s in body["starts"] if s["purpose"] == "screen" and s["seconds"]]
    return fmean(found) if found else 0.0


def _pairs(body: Mapping[str, Any], purpose: str) -> dict[tuple[Setting, Load], list[Drawn]]:
    found: dict[tuple[Setting, Load], list[Drawn]] = defaultdict(list)
    for pair in body["pairs"]:
        if pair["purpose"] == purpose:
            arm = pair["candidate"]
            tokens = arm["tokens_per_decode_step"] or 1.0
            found[Setting.of(pair["setting"]), Load.of(pair["load"])].append(
                Drawn(
                    pair["log_ratio"],
                    tokens,
                    arm["draft_coverage"],
                    sum(arm["output_tokens"]) / tokens,
                )
            )
    return dict(found)


def _screens(body: Mapping[str, Any]) -> dict[Setting, Screen]:
    return {
        (setting := Setting.of(row["setting"])): Screen(
            setting=setting,
            context="grid",
            tokens_per_decode_step=row["tokens_per_decode_step"]
            and Estimate(*row["tokens_per_decode_step"]),
            draft_coverage=row["draft_coverage"],
            drafted_per_decode_step=row.get("drafted_per_decode_step"),
            draft_cost=row["draft_cost"],
            tokens=row["tokens"],
            reason=row["reason"],
        )
        for row in body["screens"]
    }
