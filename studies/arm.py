"""An arm of the bench: a running engine, what was asked of it, and what it measured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from uuid import uuid4

from studies.events import EngineReady, EngineStarting, RoundStarting
from studies.run import Run
from tuner.engine.server import Engine, Server, log_tail
from tuner.errors import EngineError, Failure, FailureKind, RoundError
from tuner.load.plan import Deck, RoundPlan
from tuner.measure.counters import DRAFTS, read_counters
from tuner.measure.measure import Measured, measure_round, probe_request, warm_up
from tuner.records import EngineStart, Measurement, Purpose, Setting
from tuner.spec import Load

WARM_UP_REQUESTS = 4
"""Requests of a warm-up in open loop; in closed loop it is one full batch."""


@dataclass(frozen=True)
class Taken:
    """A measured round, and how much its engine start had answered before."""

    measured: Measured
    plan: RoundPlan
    requests_before: int


@dataclass
class Arm:
    """A live server with the record of its start, the loads it is warm at, and its prompts.

    ``deck`` deals what is new to this start: no prompt twice before all were dealt.
    """

    run: Run
    server: Server
    start: EngineStart
    deck: Deck
    warm: set[Load] = field(default_factory=set)
    answered: int = 0

    @property
    def setting(self) -> Setting:
        return self.start.setting

    @property
    def version(self) -> str | None:
        return self.start.facts.version

    def warm_up(self, load: Load) -> None:
        """Decode at the load and throw it away, once per start (1537 ms, then 58: vllm#39790)."""
        if load in self.warm:
            return
        self.run.observe(RoundStarting(self.setting, load, "warm-up"))
        requests = load.concurrency or WARM_UP_REQUESTS
        workload = self.run.spec.workload.model_copy(update={"requests": requests})
        plan = self.deck.plan(load, workload)
        warm_up(self.server, plan, workload)
        self.answered += len(plan.counted)
        self.warm.add(load)

    def measure(self, plan: RoundPlan, pair: int) -> Taken:
        """A round that counts, warm. Raises EngineError."""
        self.warm_up(plan.load)
        self.run.observe(RoundStarting(self.setting, plan.load, f"pair {pair + 1}"))
        before = self.answered
        measured = measure_round(self.server, plan, self.run.spec.workload)
        self.answered += len(measured.round.samples)
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
def started(run: Run, setting: Setting, purpose: Purpose) -> Iterator[Arm]:
    """A started server that answered one request of the workload's own kind.

    Raises EngineError; the start and what became of it are stored either way.
    """
    command = run.command(setting)
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
            probe_request(server, run.prompts[0], run.spec.workload)
            if setting.is_off:
                _require_no_speculation(server)
            yield Arm(run, server, start, Deck(run.prompts, start_id), answered=1)
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
