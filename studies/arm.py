"""An arm of the bench: a running engine, what was asked of it, and what it measured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from uuid import uuid4

from studies.events import EngineReady, EngineStarting, RoundStarting
from studies.run import Run
from tuner.engine.command import EngineCommand
from tuner.engine.server import Engine, Server, log_tail
from tuner.errors import EngineError, Failure, FailureKind, RoundError
from tuner.load.plan import Deck, RoundPlan
from tuner.measure.counters import DRAFTS, read_counters
from tuner.measure.measure import Measured, measure_round, probe_request, warm_up
from tuner.records import EngineStart, Measurement, Purpose, Setting
from tuner.spec import Load

WARM_UP_REQUESTS = 4
"""Requests of a warm-up in open loop; in closed loop it is a full batch, of two at least."""


@dataclass(frozen=True)
class Taken:
    """A measured round, and how much its engine start had answered before."""

    measured: Measured
    plan: RoundPlan
    requests_before: int


@dataclass
class Arm:
    """A live server with the record of its start, the loads it is warm at, and its prompts.

    ``deck`` deals what is new to this start: no prompt twice before all were dealt. Where k is
    changed live, ``stands_for`` is the setting that the engine drafts as now.
    """

    run: Run
    server: Server
    start: EngineStart
    deck: Deck
    stands_for: Setting | None = None
    warm: set[tuple[Setting, Load]] = field(default_factory=set)
    answered: int = 0

    @property
    def setting(self) -> Setting:
        return self.stands_for or self.start.setting

    @property
    def version(self) -> str | None:
        return self.start.facts.version

    def warm_up(self, load: Load) -> None:
        """Decode at the load and throw it away, once (1537 ms, then 58: vllm#39790)."""
        if (self.setting, load) in self.warm:
            return
        self.run.observe(RoundStarting(self.setting, load, "warm-up"))
        requests = max(load.concurrency or WARM_UP_REQUESTS, 2)
        workload = self.run.spec.workload.model_copy(update={"requests": requests})
        plan = self.deck.plan(load, workload)
        warm_up(self.server, plan, workload)
        self.answered += len(plan.counted)
        self.warm.add((self.setting, load))

    def cool(self) -> None:
        """It was idle while another engine started: the next round needs a warm-up again."""
        self.warm.clear()

    def measure(self, plan: RoundPlan, pair: int) -> Taken:
        """A round that counts, warm. Raises EngineError."""
        self.warm_up(plan.load)
        self.run.observe(RoundStarting(self.setting, plan.load, f"pair {pair + 1}"))
        before = self.answered
        measured = measure_round(self.server, plan, self.run.spec.workload)
        self.answered += len(measured.round.samples)
        if self.stands_for is not None:
            measured = _as_if_plain(measured, self.stands_for.k)
        return Taken(measured, plan, before)

    def record(self, taken: Taken, purpose: Purpose, *, pair: int, order: int) -> Measurement:
        """The round as a row; its samples are saved."""
        measurement_id = uuid4().hex[:12]
        path, sha256 = self.run.store.save_samples(measurement_id, taken.measured.round)
        return Measurement(
            id=measurement_id,
            study=self.run.spec.name,
            context=self.run.ledger.context,
            engine_start=self.start.id,
            setting=self.setting,
            load=taken.plan.load,
            purpose=purpose,
            pair=pair,
            order=order,
            beside=None,
            figures=taken.measured.figures,
            counters=taken.measured.counters,
            measured_at=datetime.now(UTC),
            warnings=taken.measured.warnings,
            samples_path=path,
            samples_sha256=sha256,
            plan_sha256=taken.plan.sha256,
            requests_before=taken.requests_before,
            repeated_prompts=taken.plan.repeated,
        )


@contextmanager
def started(
    run: Run, setting: Setting, purpose: Purpose, command: EngineCommand | None = None
) -> Iterator[Arm]:
    """A started server that answered one request of the workload's own kind.

    ``command`` is another than the setting's plain one. Raises EngineError; the start and what
    became of it are stored either way.
    """
    with stored_start(run, setting, purpose, command or run.command(setting)) as (server, start):
        probe_request(server, run.prompts[0], run.spec.workload)
        if setting.is_off:
            _require_no_speculation(server)
        deck = Deck(run.prompts, start.id, order=f"{run.spec.name}/{purpose}")
        yield Arm(run, server, start, deck, answered=1)


@contextmanager
def stored_start(
    run: Run, setting: Setting, purpose: Purpose, command: EngineCommand
) -> Iterator[tuple[Server, EngineStart]]:
    """A started server, and the row of its start. Raises EngineError.

    What fails while it is up is stored as the start's failure too.
    """
    start_id = uuid4().hex[:12]
    log_path = run.data_dir / "logs" / f"{start_id}.log"
    log_path.parent.mkdir(parents=True, exist_ok=True)
    start = EngineStart(
        id=start_id,
        study=run.spec.name,
        context=run.ledger.context,
        setting=setting,
        purpose=purpose,
        argv=command.argv,
        env=command.env,
        started_at=datetime.now(UTC),
        log_path=str(log_path.relative_to(run.data_dir)),
    )
    run.store.add_engine_start(start)
    run.observe(EngineStarting(setting, purpose))
    engine = Engine(
        command,
        log_path=log_path,
        run_dir=run.data_dir / "engines",
        startup_timeout_s=run.spec.engine.startup_timeout_s,
    )
    try:
        with engine as server:
            start = replace(
                start,
                startup_s=server.startup_s,
                facts=server.facts,
                log_tail=log_tail(log_path),
            )
            run.store.update_engine_start(start)
            run.observe(EngineReady(setting, server.startup_s, server.facts))
            yield server, start
    except EngineError as error:
        start = replace(start, failure=error.failure, log_tail=log_tail(log_path))
        run.store.update_engine_start(start)
        raise


def _require_no_speculation(server: Server) -> None:
    """Off is no speculative config at all, not one that drafts nothing (vllm#49548).

    Raises RoundError where the server counts drafts all the same: a config file that is named in
    engine.args, or engine.command, can bring a speculative config that no argument of ours shows.
    """
    if DRAFTS in read_counters(server.base_url):
        message = (
            "it speculates: engine.args.config or engine.command brings a speculative config;"
            " remove it there, it belongs under candidates"
        )
        raise RoundError(Failure(FailureKind.BAD_SPECULATIVE_CONFIG, message))


def _as_if_plain(measured: Measured, k: int) -> Measured:
    """Without the positions that only an engine with a larger k counts.

    Raises RoundError where more than k tokens a step were drafted.
    """
    counters, figures = measured.counters, measured.figures
    if counters.draft_tokens > k * counters.drafts:
        drafted = counters.draft_tokens / counters.drafts
        message = f"k={k} was set live, and {drafted:.2f} tokens were drafted per step"
        raise RoundError(Failure(FailureKind.BAD_COUNTERS, message))
    at = figures.acceptance_at_position
    return replace(
        measured,
        counters=replace(counters, accepted_at_position=counters.accepted_at_position[:k]),
        figures=replace(figures, acceptance_at_position=at and at[:k]),
    )
