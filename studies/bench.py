"""The engines of one stage: the baseline, and one candidate at a time, measured in pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import TracebackType
from typing import Self
from uuid import uuid4

from studies.events import EngineReady, EngineStarting, RoundMeasured, RoundStarting
from studies.run import Run
from tuner.engine.server import Engine, Server, log_tail
from tuner.errors import BaselineError, EngineError, Failure
from tuner.load.prompts import Prompt, round_prompts
from tuner.measure.measure import Measured, measure_round, probe_request, warm_up
from tuner.records import OFF, EngineStart, Measurement, Purpose, Setting
from tuner.spec import Load

Wanted = tuple[Load, int]
"""A load and the number of the pair wanted there."""

Missing = Callable[[], Sequence[Wanted]]
"""What is still to be measured, asked again after each batch; empty ends it."""


@dataclass
class Arm:
    """A live server with the record of its start, and the loads it is warm at."""

    server: Server
    start: EngineStart
    warm: set[Load] = field(default_factory=set)

    @property
    def setting(self) -> Setting:
        return self.start.setting


Taken = tuple[Arm, Measured]
"""A round and the arm it was measured on."""


class Bench:
    """Starts engines, measures rounds and pairs, and stores what came of them.

    The baseline is started once and kept up for the stage where both fit on the device
    (``run.side_by_side``); else each candidate's pairs have the baseline started before it. A pair
    is stored whole or not at all. Leaving the context stops every engine.
    """

    def __init__(self, run: Run, purpose: Purpose) -> None:
        self._run = run
        self._purpose = purpose
        self._kept = ExitStack()
        self._baseline: Arm | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._kept.__exit__(kind, error, trace)

    def measure_baseline(self, loads: Sequence[Load], purpose: Purpose) -> None:
        """One round of the baseline alone at each load. Raises BaselineError if it fails."""
        with self._baseline_arm() as arm, _blaming_baseline():
            for load in loads:
                self._warm(arm, load)
                measured = self._measure(arm, load, self._prompts(arm, load, 0), 0)
                alone = self._record(arm, measured, load, pair=0, order=0)
                self._store(replace(alone, purpose=purpose))

    def measure_pairs(self, setting: Setting, missing: Missing) -> Failure | None:
        """Measures what is missing against the baseline, and again until nothing is.

        Returns why the candidate failed, or None. Raises BaselineError when it was the baseline.
        """
        if not missing():
            return None  # nothing is started for what is there
        try:
            if self._run.side_by_side:
                self._interleaved(setting, missing)
            else:
                while wanted := missing():
                    self._in_turn(setting, wanted)
        except EngineError as error:
            return error.failure
        return None

    def _interleaved(self, setting: Setting, missing: Missing) -> None:
        """Both up; who goes first alternates (A B B A), so that a drift favours neither."""
        with self._baseline_arm() as baseline, self._start(setting) as candidate:
            while wanted := missing():
                for load, pair in wanted:
                    prompts = self._prompts(candidate, load, pair)
                    self._warm_baseline(baseline, load)
                    self._warm(candidate, load)
                    first = pair % 2
                    if first == 0:
                        a = self._measure_baseline(baseline, load, prompts, pair)
                        b = self._measure(candidate, load, prompts, pair)
                    else:
                        b = self._measure(candidate, load, prompts, pair)
                        a = self._measure_baseline(baseline, load, prompts, pair)
                    self._store_pair((baseline, a), (candidate, b), load, pair, first)

    def _in_turn(self, setting: Setting, wanted: Sequence[Wanted]) -> None:
        """One engine at a time: all of the baseline's rounds, then all of the candidate's."""
        rounds = []
        with self._baseline_arm() as baseline:
            for load, pair in wanted:
                prompts = self._prompts(baseline, load, pair)
                self._warm_baseline(baseline, load)
                a = self._measure_baseline(baseline, load, prompts, pair)
                rounds.append((load, pair, prompts, a))
        with self._start(setting) as candidate:
            for load, pair, prompts, a in rounds:
                self._warm(candidate, load)
                b = self._measure(candidate, load, prompts, pair)
                self._store_pair((baseline, a), (candidate, b), load, pair, 0)

    @contextmanager
    def _baseline_arm(self) -> Iterator[Arm]:
        if not self._run.side_by_side:
            with ExitStack() as stack:
                with _blaming_baseline():
                    arm = stack.enter_context(self._start(OFF))
                yield arm
            return
        if self._baseline is None:
            with _blaming_baseline():
                self._baseline = self._kept.enter_context(self._start(OFF))
        yield self._baseline

    @contextmanager
    def _start(self, setting: Setting) -> Iterator[Arm]:
        """A started server that answered one request of the workload's own kind."""
        run = self._run
        command = run.command(setting)
        start_id = uuid4().hex[:12]
        log_path = run.data_dir / "logs" / f"{start_id}.log"
        log_path.parent.mkdir(parents=True, exist_ok=True)
        start = EngineStart(
            id=start_id,
            study=run.spec.name,
            context=run.ledger.context,
            setting=setting,
            purpose=self._purpose,
            argv=command.argv,
            env=command.env,
            started_at=datetime.now(UTC),
            log_path=str(log_path.relative_to(run.data_dir)),
        )
        run.store.add_engine_start(start)
        run.observe(EngineStarting(setting, self._purpose))
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
                yield Arm(server, start)
        except EngineError as error:
            start = replace(start, failure=error.failure, log_tail=log_tail(log_path))
            run.store.update_engine_start(start)
            raise

    def _prompts(self, arm: Arm, load: Load, pair: int) -> list[Prompt]:
        """Fresh prompts, the same for both arms of a pair: the seed names one arm's own start."""
        count = max(self._run.spec.workload.requests, load.concurrency)
        seed = f"{arm.start.id}/{load.concurrency}/{pair}"
        return round_prompts(self._run.prompts, count=count, seed=seed)

    def _warm(self, arm: Arm, load: Load) -> None:
        """One full batch at the load, once per start."""
        if load in arm.warm:
            return
        self._run.observe(RoundStarting(arm.setting, load, "warm-up"))
        seed = f"{arm.start.id}/{load.concurrency}/warm-up"
        prompts = round_prompts(self._run.prompts, count=load.concurrency, seed=seed)
        warm_up(arm.server, prompts, load, self._run.spec.workload)
        arm.warm.add(load)

    def _warm_baseline(self, arm: Arm, load: Load) -> None:
        with _blaming_baseline():
            self._warm(arm, load)

    def _measure_baseline(
        self, arm: Arm, load: Load, prompts: Sequence[Prompt], pair: int
    ) -> Measured:
        with _blaming_baseline():
            return self._measure(arm, load, prompts, pair)

    def _measure(self, arm: Arm, load: Load, prompts: Sequence[Prompt], pair: int) -> Measured:
        self._run.observe(RoundStarting(arm.setting, load, f"pair {pair + 1}"))
        return measure_round(arm.server, prompts, load, self._run.spec.workload)

    def _store_pair(
        self, baseline: Taken, candidate: Taken, load: Load, pair: int, first: int
    ) -> None:
        """``first`` is 0 where the baseline was measured first, else 1."""
        a = self._record(*baseline, load, pair=pair, order=first)
        b = self._record(*candidate, load, pair=pair, order=1 - first)
        self._store(replace(a, beside=b.id), replace(b, beside=a.id))

    def _record(
        self, arm: Arm, measured: Measured, load: Load, *, pair: int, order: int
    ) -> Measurement:
        measurement_id = uuid4().hex[:12]
        path, sha256 = self._run.store.save_samples(measurement_id, measured.round)
        return Measurement(
            id=measurement_id,
            study=self._run.spec.name,
            context=self._run.ledger.context,
            engine_start=arm.start.id,
            setting=arm.setting,
            load=load,
            purpose=self._purpose,
            pair=pair,
            order=order,
            beside=None,
            figures=measured.figures,
            counters=measured.counters,
            measured_at=datetime.now(UTC),
            warnings=measured.warnings,
            samples_path=path,
            samples_sha256=sha256,
        )

    def _store(self, *measurements: Measurement) -> None:
        self._run.store.add_measurements(measurements)
        for measurement in measurements:
            self._run.observe(RoundMeasured(measurement))


@contextmanager
def _blaming_baseline() -> Iterator[None]:
    """A failure in here is the baseline's and counts against no candidate."""
    try:
        yield
    except EngineError as error:
        raise BaselineError(error.failure) from error
