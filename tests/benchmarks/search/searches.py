"""The searches that are compared, each as it would go over a recorded world."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from statistics import fmean

import optuna
from optuna.samplers import RandomSampler, TPESampler

from studies.confirm import finalist, runner_up, standing
from studies.evidence import smoothed
from studies.ledger import CONTENDER_PAIRS, EXPLORE_PAIRS, Outcome
from studies.sampler import UnexploredSampler, distributions, full_parameters
from studies.search import SCREEN_BEST, contends, promising, screen_best
from tests.benchmarks.search.world import Drawn, World, seen
from tuner.predict.forecast import Forecast
from tuner.predict.gain import WORTH_A_START, rank
from tuner.records import OFF, Screen, Setting
from tuner.spec import Load


@dataclass(frozen=True)
class Step:
    """What a search measures next: on a plain start of its own, or with k changed live.

    ``starts`` is False on the live engine that the step before it left up.
    """

    setting: Setting
    live: bool = False
    starts: bool = True


@dataclass
class Study:
    """What a simulated study knows so far."""

    world: World
    random: Random
    screens: Mapping[Setting, Screen]
    pairs: dict[tuple[Setting, Load], list[Drawn]]
    outcomes: dict[Setting, Outcome]

    @classmethod
    def begin(cls, world: World, seed: int) -> Study:
        random = Random(seed)
        off = Outcome(OFF, dict.fromkeys(world.loads, 0.0))
        return cls(world, random, world.rescreened(random), {}, {OFF: off})

    @property
    def forecast(self) -> Forecast:
        return Forecast(self.screens, self.world.costs, seen(self.pairs))

    @property
    def space(self) -> tuple[Setting, ...]:
        return (OFF, *self.world.settings)

    @property
    def unexplored(self) -> list[Setting]:
        return [setting for setting in self.world.settings if setting not in self.outcomes]

    @property
    def promising(self) -> list[Setting]:
        return promising(self.forecast, self.outcomes, self.space, self.world.loads)

    def measure(self, step: Step) -> int:
        """As exploring does: more pairs where a setting contends. Returns how many it took."""
        setting = step.setting
        draw = partial(self.world.draw, setting, random=self.random, live=step.live)
        for load in self.world.loads:
            self.pairs[setting, load] = draw(load, pairs=EXPLORE_PAIRS)
        self._know(setting)
        for load in [load for load in self.world.loads if self._contends(setting, load)]:
            self.pairs[setting, load] += draw(load, pairs=CONTENDER_PAIRS - EXPLORE_PAIRS)
        self._know(setting)
        return sum(len(self.pairs[setting, load]) for load in self.world.loads)

    def _know(self, setting: Setting) -> None:
        ratios = {
            load: fmean(d.log_ratio for d in self.pairs[setting, load]) for load in self.world.loads
        }
        self.outcomes[setting] = Outcome(setting, ratios)

    def _contends(self, setting: Setting, load: Load) -> bool:
        ratios = {s: outcome.log_ratios[load] for s, outcome in self.outcomes.items()}
        return contends(ratios.pop(setting), ratios.values())


Search = Callable[[Study], Iterator[Step]]
"""Names what to measure next, as long as it wants more; it looks at the study after each."""


def ours(study: Study) -> Iterator[Step]:
    while wanted := study.promising:
        yield Step(wanted[0])


def ours_live(study: Study) -> Iterator[Step]:
    """One start of a draft measures its k one after the other, while any could still win."""
    while wanted := study.promising:
        first = wanted[0]
        group = [s for s in wanted if s.proposer == first.proposer and study.world.has_live(s)]
        live = first in group and len(group) > 1
        yield Step(first, live=live)
        while live and (left := [setting for setting in study.promising if setting in group]):
            yield Step(left[0], live=True, starts=False)


def without_screen(study: Study) -> Iterator[Step]:
    study.screens = {
        setting: replace(
            screen, tokens_per_decode_step=None, draft_coverage=None, drafted_per_decode_step=None
        )
        for setting, screen in study.screens.items()
    }
    yield from ours(study)


def without_model(study: Study) -> Iterator[Step]:
    """In the order of the first forecast, which no measurement changes."""
    first = study.forecast
    for gain in rank(first, (), study.world.settings, study.world.loads):
        best = max(outcome.score for outcome in study.outcomes.values())
        if len(study.outcomes) > 1 and fmean(gain.by_load.values()) < WORTH_A_START + best:
            return
        yield Step(gain.setting)


def screen_top3(study: Study) -> Iterator[Step]:
    first = study.forecast
    for _ in range(SCREEN_BEST):
        wanted = screen_best(first, study.outcomes, study.space, study.world.loads)
        if wanted:
            yield Step(wanted[0])


def tpe(study: Study) -> Iterator[Step]:
    yield from _optuna(study, TPESampler(n_startup_trials=4, seed=study.random.randrange(2**31)))


def at_random(study: Study) -> Iterator[Step]:
    yield from _optuna(study, RandomSampler(seed=study.random.randrange(2**31)))


def whole_grid(study: Study) -> Iterator[Step]:
    for setting in study.world.settings:
        yield Step(setting)


def _optuna(study: Study, inner: optuna.samplers.BaseSampler) -> Iterator[Step]:
    """Until every setting was started: Optuna has no rule of its own to stop by."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    view = optuna.create_study(direction="maximize")
    space = distributions(study.space)
    while left := study.unexplored:
        view.sampler = UnexploredSampler(study.space, left, inner)
        asked = view.ask(space)
        setting = next(s for s in left if full_parameters(s, space) == asked.params)
        yield Step(setting)
        view.tell(asked, study.outcomes[setting].score)


SEARCHES: Mapping[str, Search] = {
    "ours": ours,
    "ours, live k": ours_live,
    "ours without the screen": without_screen,
    "ours without the model": without_model,
    "screen, then top three": screen_top3,
    "TPE": tpe,
    "random": at_random,
    "whole grid": whole_grid,
}


@dataclass(frozen=True)
class Trace:
    """One search in one world. Starts count the baseline's; None where it never came near.

    ``starts_to_near``: until a near-best setting had been measured at every load.
    ``starts_when_done``: when the search wanted no more, together with the runners-up that
    confirming started; the finalists, which every search has, are left out. ``regret``: of what was
    recommended, the largest over the loads, as a share of the best speed.
    """

    starts_to_near: int | None
    seconds_to_near: float | None
    starts_when_done: int
    seconds_when_done: float
    regret: float
    recommended: Mapping[Load, Setting]


def run(search: Search, world: World, seed: int) -> Trace:
    study = Study.begin(world, seed)
    starts, seconds = 1, world.baseline_s
    near: tuple[int, float] | None = (starts, seconds) if world.is_near(study.outcomes) else None
    for step in search(study):
        pairs = study.measure(step)
        starts += step.starts
        seconds += step.starts * world.start_s + pairs * world.pair_s
        if near is None and world.is_near(study.outcomes):
            near = starts, seconds
    recommended: dict[Load, Setting] = {}
    for load in world.loads:
        recommended[load], runners_up = _recommended(study, load)
        starts += len(runners_up)
        seconds += sum(world.start_s + pairs * world.pair_s for pairs in runners_up)
    regret = max(world.regret(setting, load) for load, setting in recommended.items())
    return Trace(
        starts_to_near=near and near[0],
        seconds_to_near=near and near[1],
        starts_when_done=starts,
        seconds_when_done=seconds,
        regret=regret,
        recommended=recommended,
    )


def _recommended(study: Study, load: Load) -> tuple[Setting, list[int]]:
    """What is confirmed as faster, else off; and the pairs of a runner-up, if there was one."""
    known = smoothed(study.forecast, study.outcomes, study.world.loads)
    first = finalist(known, load)
    if first is None:
        return OFF, []
    found, _ = study.world.confirm(first, load, study.random)
    confirmed, further = {first: found}, []
    if second := runner_up(known, load, first, found):
        confirmed[second], pairs = study.world.confirm(second, load, study.random)
        further.append(pairs)
    winner = max(confirmed, key=lambda setting: standing(confirmed[setting]))
    is_faster, _ = standing(confirmed[winner])
    return winner if is_faster else OFF, further
