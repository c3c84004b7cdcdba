"""The engines of one stage: the baseline, and one candidate at a time, measured in pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from types import TracebackType
from typing import Self

from studies.arm import Arm, Taken, started
from studies.events import RoundMeasured, Warned
from studies.run import Run
from tuner.engine.server import Server
from tuner.errors import BaselineError, EngineError, Failure, IncomparableError, RoundError
from tuner.load.plan import Deck
from tuner.measure.comparability import require_comparable
from tuner.measure.statistics import log_ratio
from tuner.records import OFF, Measurement, Purpose, Setting
from tuner.spec import Load

Wanted = tuple[Load, int]
"""A load and the number of the pair wanted there."""

Missing = Callable[[], Sequence[Wanted]]
"""What is still to be measured, asked again after each batch; empty ends it."""


MOST_REFUSED = 3
"""Pairs of one stage that may be dropped because they can't be compared."""


class Bench:
    """Starts engines, measures rounds and pairs, and stores what came of them.

    Where both fit on the device (``run.side_by_side``) the baseline is up beside each candidate and
    rounds alternate A B B A. Else starts alternate A B A: the baseline measures a batch of rounds,
    the candidate the same, and the baseline once more. Either way the baseline is started once and
    kept for as long as nothing else needs its place. A pair is stored whole or not at all. Leaving
    the context stops every engine.
    """

    def __init__(self, run: Run, purpose: Purpose) -> None:
        self._run = run
        self._purpose = purpose
        self._kept = ExitStack()
        self._baseline: Arm | None = None
        self._beside: list[str] = []
        self._refused = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._kept.__exit__(kind, error, trace)

    def measure_baseline(self, loads: Sequence[Load], purpose: Purpose) -> list[Measurement]:
        """One round of the baseline alone at each load. Raises BaselineError if it fails."""
        found = []
        with _blaming_baseline():
            arm = self._baseline_up()
            for load in loads:
                taken = arm.measure(arm.deck.plan(load, self._run.spec.workload), 0)
                found.append(arm.record(taken, purpose, pair=0, order=0))
                self._store(found[-1])
        return found

    def record_answers(self, load: Load, requests: int) -> None:
        """One round of the baseline for its text: so many prompts, each once."""
        workload = self._run.spec.workload.model_copy(update={"requests": requests})
        with _blaming_baseline():
            arm = self._baseline_up()
            deck = Deck(self._run.prompts, f"{arm.start.id}/{Purpose.SCREEN}")
            taken = arm.measure(deck.plan(load, workload), 0)
            self._store(arm.record(taken, Purpose.SCREEN, pair=0, order=0))

    @contextmanager
    def baseline_server(self) -> Iterator[Server]:
        """The baseline, started if it is not up. What fails in here is the baseline's fault."""
        with _blaming_baseline():
            yield self._baseline_up().server

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
        with _blaming_baseline():
            self._baseline_up()
        with started(self._run, setting, self._purpose) as candidate:
            while wanted := missing():
                for load, pair in wanted:
                    self.measure_pair(candidate, load, pair)

    def measure_pair(self, candidate: Arm, load: Load, pair: int) -> None:
        """A pair of the baseline and a candidate that is up, stored for the candidate's purpose.

        Raises EngineError where the candidate fails, BaselineError where the baseline does.
        """
        self.measure_beside([candidate], load, pair)

    def measure_beside(self, candidates: Sequence[Arm], load: Load, pair: int) -> None:
        """A pair of each candidate, all up: they share a round of the baseline amidst theirs.

        Every other pair is measured in reverse. Raises as measure_pair.
        """
        with _blaming_baseline():
            baseline = self._baseline_up()
        beside = [candidate.start.id for candidate in candidates]
        if self._beside != beside:
            self._beside = beside
            baseline.cool()
        plan = candidates[0].deck.plan(load, self._run.spec.workload)
        middle = len(candidates) // 2
        arms = [*candidates[:middle], baseline, *candidates[middle:]]
        taken: dict[str, Taken] = {}
        for arm in reversed(arms) if pair % 2 else arms:
            with _blaming_baseline() if arm is baseline else nullcontext():
                taken[arm.start.id] = arm.measure(plan, pair)
        order = list(taken)
        at = order.index(baseline.start.id)
        for candidate in candidates:
            first = 0 if at < order.index(candidate.start.id) else 1
            self._store_pair(
                (baseline, taken[order[at]]), (candidate, taken[candidate.start.id]), pair, first
            )

    def _in_turn(self, setting: Setting, wanted: Sequence[Wanted]) -> None:
        """One engine at a time: A B A, every time the same rounds."""
        workload = self._run.spec.workload
        with _blaming_baseline():
            before = self._baseline_up()
            plans = [before.deck.plan(load, workload) for load, _ in wanted]
            numbered = [(plan, pair) for plan, (_, pair) in zip(plans, wanted, strict=True)]
            firsts = [before.measure(plan, pair) for plan, pair in numbered]
        self.stop_baseline()
        with started(self._run, setting, self._purpose) as candidate:
            taken = [candidate.measure(plan, pair) for plan, pair in numbered]
        with _blaming_baseline():
            after = self._baseline_up()
            seconds = [after.measure(plan, pair) for plan, pair in numbered]
        for (_, pair), a, b, again in zip(numbered, firsts, taken, seconds, strict=True):
            self._store_pair((before, a), (candidate, b), pair, 0, (after, again))

    def _baseline_up(self) -> Arm:
        if self._baseline is None:
            self._baseline = self._kept.enter_context(started(self._run, OFF, self._purpose))
        return self._baseline

    def stop_baseline(self) -> None:
        """Frees the device; the baseline is started again when it is next needed."""
        self._baseline = None
        self._kept.close()

    def _store_pair(
        self,
        baseline: tuple[Arm, Taken],
        candidate: tuple[Arm, Taken],
        pair: int,
        first: int,
        again: tuple[Arm, Taken] | None = None,
    ) -> None:
        """``first`` is 0 where the baseline was measured first, else 1.

        A pair whose arms were not offered the same, or which does not tell the objective (answers
        that arrived in one piece have no TPOT), is dropped with a warning, to be measured again;
        raises IncomparableError or RoundError where that goes on.
        """
        purpose = candidate[0].start.purpose
        a = _record(*baseline, purpose, pair, first)
        b = _record(*candidate, purpose, pair, 1 - first)
        try:
            require_comparable(a, b, baseline[0].version, candidate[0].version)
            log_ratio(a.figures, b.figures, self._run.spec.objective)
        except (IncomparableError, RoundError) as refusal:
            self._refused += 1
            if self._refused > MOST_REFUSED:
                raise
            self._run.observe(Warned(f"a pair was dropped: {refusal}"))
            return
        rows = [replace(a, beside=b.id)]
        if again is not None:
            rows.append(_record(*again, purpose, pair, 2))
        rows.insert(1, replace(b, beside=a.id, again=rows[1].id if again else None))
        self._store(*rows)

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


def _record(arm: Arm, taken: Taken, purpose: Purpose, pair: int, order: int) -> Measurement:
    return arm.record(taken, purpose, pair=pair, order=order)
