"""What the store knows of one study: its pairs, its outcomes, its failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from tuner.errors import Failure
from tuner.measure.statistics import log_ratio
from tuner.records import OFF, Measurement, Purpose, Setting
from tuner.spec import Load, Objective, StudySpec
from tuner.store import Store

EXPLORE_PAIRS = 2
"""Pairs per load that exploring measures: A B B A cancels a linear drift."""

CONTENDER_PAIRS = 4
"""Pairs per load of a setting that may be the best there (``search.contends``)."""

ATTEMPTS = 2
"""Starts granted to a setting whose failure may have been the machine's."""


@dataclass(frozen=True)
class Pair:
    """Two arms measured next to each other on the same prompts.

    Where starts alternate, the baseline was measured before the candidate and ``again`` after it.
    """

    baseline: Measurement
    candidate: Measurement
    again: Measurement | None = None

    @property
    def number(self) -> int:
        return self.candidate.pair

    @property
    def ids(self) -> tuple[str, str]:
        return self.baseline.id, self.candidate.id

    @property
    def baselines(self) -> tuple[Measurement, ...]:
        return (self.baseline,) if self.again is None else (self.baseline, self.again)

    def log_ratio(self, objective: Objective) -> float:
        """Against the geometric mean of the baseline's rounds: a linear drift cancels."""
        return fmean(
            log_ratio(measured.figures, self.candidate.figures, objective)
            for measured in self.baselines
        )

    def drift(self, objective: Objective) -> float:
        """How far the baseline's own two rounds lie apart, as an absolute log ratio; 0 for one."""
        if self.again is None:
            return 0.0
        return abs(log_ratio(self.baseline.figures, self.again.figures, objective))


@dataclass(frozen=True)
class Outcome:
    """A finished setting: mean log speed-up at every load, or a failure that is final."""

    setting: Setting
    log_ratios: Mapping[Load, float]
    failure: Failure | None = None

    @property
    def score(self) -> float:
        """Mean log speed-up over the loads: what Optuna is told."""
        return fmean(self.log_ratios.values())


@dataclass(frozen=True)
class Ledger:
    """A study's view of the store. Measurements are looked up by context, whoever asked for them.

    ``spec`` has its models located, ``context`` is the digest of what the study runs in.
    """

    store: Store
    spec: StudySpec
    settings: tuple[Setting, ...]
    context: str

    def pairs(self, setting: Setting, load: Load, purpose: Purpose) -> list[Pair]:
        """Whole pairs of a setting at a load, by number."""
        candidates = self.store.measurements(
            context=self.context, setting=setting, load=load, purpose=purpose
        )
        baselines = self.store.measurements(
            context=self.context, setting=OFF, load=load, purpose=purpose
        )
        by_id = {m.id: m for m in baselines}
        pairs = {
            m.pair: Pair(by_id[m.beside], m, by_id.get(m.again or ""))
            for m in candidates
            if m.beside in by_id
        }
        return [pairs[number] for number in sorted(pairs)]

    def explored_pairs(self, setting: Setting, load: Load) -> list[Pair]:
        """What exploring measured: on a plain start of it, else with k changed live."""
        plain = self.pairs(setting, load, Purpose.EXPLORE)
        return plain or self.pairs(setting, load, Purpose.LIVE_K)

    def outcomes(self) -> dict[Setting, Outcome]:
        """Every finished setting of the space. Off is 0 everywhere by definition."""
        failures = self.failures()
        known = {OFF: Outcome(OFF, dict.fromkeys(self.spec.loads, 0.0))}
        for setting in self.settings:
            if setting in failures:
                known[setting] = Outcome(setting, {}, failures[setting])
            elif not setting.is_off and (ratios := self._explored(setting)):
                known[setting] = Outcome(setting, ratios)
        return known

    def failures(self) -> dict[Setting, Failure]:
        """Settings not to be started again in this context, and why."""
        attempts: dict[Setting, list[Failure]] = {}
        for failed in self.store.failures(self.context):
            attempts.setdefault(failed.setting, []).append(failed.failure)
        return {
            setting: failures[-1]
            for setting, failures in attempts.items()
            if len(failures) >= ATTEMPTS or any(f.kind.deterministic for f in failures)
        }

    def _explored(self, setting: Setting) -> dict[Load, float]:
        """Log speed-ups by load; empty until every load has all its pairs."""
        ratios = {}
        for load in self.spec.loads:
            pairs = self.explored_pairs(setting, load)
            if len(pairs) < EXPLORE_PAIRS:
                return {}
            ratios[load] = fmean(pair.log_ratio(self.spec.objective) for pair in pairs)
        return ratios


def missing_pairs(have: Sequence[Pair], count: int, first: int = 0) -> list[int]:
    """The numbers, ``count`` of them from ``first`` on, that no stored pair has."""
    return sorted(set(range(first, first + count)) - {pair.number for pair in have})
