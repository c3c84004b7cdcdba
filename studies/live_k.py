"""Live k: one engine start measures several k of a draft, where that was found to be sound.

The engine's scheduler is told between rounds how many tokens to draft. What it measures counts for
the plain settings it stands for, with a purpose of its own: it helps to choose what is confirmed,
and is never confirmed itself. The baseline is always a plain engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from studies.arm import Arm, started
from studies.bench import Bench
from studies.events import LiveKCompared
from studies.run import Run
from tuner.engine.live_k import LiveK, live_command, live_setting
from tuner.errors import EngineError, Failure, FailureKind, RoundError, UsageError
from tuner.load.plan import Deck
from tuner.measure.agreement import Agreement, agreement
from tuner.measure.measure import Measured, probe_request
from tuner.records import EngineStart, Purpose, Setting, StartedFacts
from tuner.spec import Load
from tuner.vllm import SCHEDULE

METHODS = frozenset({"draft_model", "eagle", "eagle3", "ngram"})
"""vLLM's runner V1 drafts as many tokens as its scheduler says with these; suffix and medusa insist
on the k of their config."""

TRUST = "live_k_trust"
"""Kind of the events that keep what a check of live k came to."""

Wanted = tuple[Setting, Load, int]
"""A setting, a load, and the number of the pair wanted there."""

Missing = Callable[[], Sequence[Wanted]]
"""What is still to be measured, asked again after each batch; empty ends it."""


def groups(settings: Sequence[Setting]) -> list[tuple[Setting, ...]]:
    """Settings that one live engine can stand for: they differ in k alone. Two at least, by k."""
    alike: dict[Setting, list[Setting]] = {}
    for setting in settings:
        if _can_be_live(setting):
            config = setting.speculative_config or {}
            alike.setdefault(Setting.of({**config, "num_speculative_tokens": 0}), []).append(
                setting
            )
    found = (tuple(sorted(group, key=lambda setting: setting.k)) for group in alike.values())
    return [group for group in found if len(group) > 1]


def _can_be_live(setting: Setting) -> bool:
    """A draft that makes its tokens in one pass is laid out for its largest k."""
    config = setting.speculative_config or {}
    plain = SCHEDULE not in config and not config.get("parallel_drafting")
    return plain and setting.method in METHODS


def measure_live(
    run: Run, bench: Bench, settings: Sequence[Setting], missing: Missing
) -> Failure | None:
    """Measures what is missing of settings of one group, with one engine beside the baseline.

    Returns why that engine failed, or None. The failure is the live engine's: a plain one may well
    run. Raises BaselineError when it was the baseline; UsageError where the two are not up side by
    side (``run.side_by_side``): measure those settings with plain engines.
    """
    _require_side_by_side(run)
    if not missing():
        return None
    try:
        with live_started(run, settings) as live:
            while wanted := missing():
                for setting, load, pair in wanted:
                    live.stand_for(setting)
                    bench.measure_pair(live.arm, load, pair)
    except EngineError as error:
        return error.failure
    return None


@dataclass
class Live:
    """A running engine that stands for several settings in turn, each with prompts of its own.

    They are dealt in the order in which exploring deals them to a plain engine.
    """

    arm: Arm
    control: LiveK
    decks: Mapping[Setting, Deck]

    def stand_for(self, setting: Setting) -> None:
        """Has the engine draft as the setting does; returns when it was seen to. Between rounds.

        Raises EngineError.
        """
        if self.arm.stands_for == setting:
            return
        run = self.arm.run
        self.control.set(setting.k)
        probe_request(self.arm.server, run.prompts[0], run.spec.workload)
        self.arm.answered += 1
        if self.control.in_force != setting.k:
            message = f"k={setting.k} was set live, and the engine goes on with another"
            raise RoundError(Failure(FailureKind.UNKNOWN, message))
        self.arm.stands_for = setting
        self.arm.deck = self.decks[setting]


@contextmanager
def live_started(run: Run, settings: Sequence[Setting]) -> Iterator[Live]:
    """A started engine for settings that differ in k alone. Raises EngineError.

    Its start is stored under the config that it really ran.
    """
    setting, spec = live_setting(settings), run.spec
    with LiveK(setting.k) as control:
        command = live_command(
            spec.engine,
            spec.target,
            settings,
            run.context.engine,
            run.python,
            control=control.path,
        )
        with started(run, setting, Purpose.LIVE_K, command) as arm:
            order = f"{spec.name}/{Purpose.EXPLORE}"
            decks = {s: Deck(run.prompts, f"{arm.start.id}/{s.key}", order) for s in settings}
            yield Live(arm, control, decks)


@dataclass(frozen=True)
class Trust:
    """Whether live k may stand for plain engines of a method, and what that rests on.

    It holds for plain engines that run like the one it was checked against: same runner, device
    (``cpu``, or a GPU's name), vLLM version and graph mode. ``at`` has the smallest and the largest
    k, or fewer where an engine failed.
    """

    method: str
    runner: str | None
    device: str
    version: str | None
    graph_mode: str | None
    trusted: bool
    reason: str
    at: tuple[Agreement, ...]
    engine_starts: tuple[str, ...]

    def body(self) -> dict[str, Any]:
        return asdict(self)


def trusted(run: Run, method: str) -> bool | None:
    """What the last check of live k came to for engines like this study's, whoever's it was.

    None where there was none, where nothing is known yet of how this study's engines run, or where
    one was trusted for a narrower range of k.
    """
    plain = [s for s in run.store.engine_starts(run.spec.name) if _is_plain_here(run, s)]
    if not plain:
        return None
    of_method = [start for start in plain if start.setting.method == method]
    like = _like(run, method, (of_method or plain)[-1].facts)
    found = [
        body
        for _, body in run.store.events_of_kind(TRUST)
        if {name: body[name] for name in like} == like
    ]
    if not found:
        return None
    last = found[-1]
    if last["trusted"] and not _covers([at["k"] for at in last["at"]], run, method):
        return None
    return bool(last["trusted"])


def _covers(checked: Sequence[int], run: Run, method: str) -> bool:
    """Whether every k that could be measured live lies between those that were checked."""
    able = [group for group in groups(run.ledger.settings) if group[0].method == method]
    return all(min(checked) <= group[0].k and group[-1].k <= max(checked) for group in able)


def check_live_k(run: Run, settings: Sequence[Setting]) -> list[Trust]:
    """Checks live k against plain engines at the smallest and the largest k; stores what it found.

    The group of each method with the widest range stands for all of that method. Two engines are up
    at once, no baseline.
    Raises UsageError where that is not possible.
    """
    _require_side_by_side(run)
    widest: dict[str, tuple[Setting, ...]] = {}
    for group in sorted(groups(settings), key=lambda group: group[0].k - group[-1].k):
        widest.setdefault(group[0].method, group)
    found = []
    for group in widest.values():
        found.append(_checked(run, group))
        run.store.add_event(run.spec.name, TRUST, found[-1].body())
    return found


def _checked(run: Run, group: Sequence[Setting]) -> Trust:
    at: list[Agreement] = []
    starts: list[EngineStart] = []
    failure = None
    try:
        with live_started(run, group) as live:
            starts.append(live.arm.start)
            for setting in (group[0], group[-1]):
                with started(run, setting, Purpose.LIVE_K) as plain:
                    starts.append(plain.start)
                    at.append(_agreement(live, plain))
    except EngineError as error:
        failure = error.failure
    facts = starts[-1].facts if len(starts) > 1 else StartedFacts()
    return Trust(
        **_like(run, group[0].method, facts),
        trusted=failure is None and all(found.agrees for found in at),
        reason=_reason(at) if failure is None else str(failure),
        at=tuple(at),
        engine_starts=tuple(start.id for start in starts),
    )


def _agreement(live: Live, plain: Arm) -> Agreement:
    """Pairs at the study's first load, first in turns, until they agree, or clearly do not."""
    run, setting = plain.run, plain.setting
    live.stand_for(setting)
    pairs: list[tuple[Measured, Measured]] = []
    while True:
        plan = plain.deck.plan(run.spec.loads[0], run.spec.workload)
        arms = [live.arm, plain] if len(pairs) % 2 == 0 else [plain, live.arm]
        taken = {arm.start.id: arm.measure(plan, len(pairs)).measured for arm in arms}
        pairs.append((taken[live.arm.start.id], taken[plain.start.id]))
        found = agreement(setting.k, pairs)
        run.observe(LiveKCompared(found))
        if found.is_settled:
            return found


def _reason(at: Sequence[Agreement]) -> str:
    """Why it is not trusted; empty where it is."""
    said = []
    for found in at:
        if found.same_step_time is not True:
            said.append(f"step times at k={found.k} differ or are too noisy to tell")
        if not found.same_acceptance:
            said.append(f"acceptance lengths at k={found.k} differ or can't be told")
    return "; ".join(said)


def _is_plain_here(run: Run, start: EngineStart) -> bool:
    known = start.facts.version is not None and start.context == run.ledger.context
    return known and SCHEDULE not in (start.setting.speculative_config or {})


def _like(run: Run, method: str, facts: StartedFacts) -> dict[str, Any]:
    """What must be the same for one check of live k to hold for another engine."""
    host = run.context.host
    return {
        "method": method,
        "runner": facts.runner,
        "device": host.gpus[0] if host.gpus else host.device,
        "version": facts.version,
        "graph_mode": facts.graph_mode,
    }


def _require_side_by_side(run: Run) -> None:
    if not run.side_by_side:
        raise UsageError(
            "k can be changed live only beside a second engine, and two do not fit on the device"
            " here: lower engine.args.gpu_memory_utilization, or set engine.side_by_side"
        )
