"""Verifying: the stored answers against the baseline once more, in few and fresh pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from studies.answer import arm_of
from studies.bench import Bench, Wanted
from studies.clock import Clock
from studies.events import Failed, Observer, StageEntered, Verified, Warned
from studies.ledger import ATTEMPTS, Ledger, Pair
from studies.loop import prepare, study_context
from studies.paired import compare, is_settled, wanted_pairs
from studies.run import Run
from studies.same_text import same_text
from studies.space import enumerate_settings
from tuner.answers import Recommendation, Verification
from tuner.engine.device import disturbances
from tuner.engine.reap import reap
from tuner.load.prompts import load_prompts
from tuner.measure.sequential import Decision
from tuner.recommend import Challenger
from tuner.records import OFF, Context, Purpose, Setting, Stage
from tuner.settings import Settings
from tuner.spec import Load
from tuner.store import Store
from tuner.verdict import Again, Claim, Paired, Unmeasured, claim, verification


@dataclass(frozen=True)
class Fresh:
    """A claim and its pairs of this verification.

    They are numbered from ``first``, above all that were ever measured to verify in this context.
    """

    run: Run
    claim: Claim
    first: int

    @property
    def load(self) -> Load:
        return self.claim.answer.load

    @property
    def pairs(self) -> list[Pair]:
        found = self.run.ledger.pairs(self.claim.setting, self.load, Purpose.VERIFY)
        return [pair for pair in found if pair.number >= self.first]

    @property
    def wanted(self) -> list[int]:
        return wanted_pairs(self.run, self.pairs, first=self.first, may_stop=self.may_stop)

    def may_stop(self, decision: Decision) -> bool:
        """As confirming may, with one exception.

        An interval that also holds what was measured then refutes nothing, however narrow: a
        recommended setting is not called lost with it before the limit of pairs.
        """
        if self.claim.is_on and decision.stopped_because == "precise":
            return not decision.low <= math.log(self.claim.speedup.value) <= decision.high
        return is_settled(decision)


def verify(
    answers: Sequence[Recommendation], store: Store, settings: Settings, observe: Observer
) -> list[Verification]:
    """Measures current answers of one study again, each as it would be started now.

    What the study is about may have changed since: rounds are stored in the context found now,
    and the study's own stage, context and answers stay as they are. One verification per answer.

    Raises PreflightError before anything is started; BaselineError when the baseline's server
    fails; UsageError when another process is at work on the study.
    """
    record = store.study(answers[0].study)
    located, python = prepare(record.spec, settings, observe)
    with store.study_lock(record.name):
        reap(settings.data_dir / "engines")
        context = study_context(located, python)
        run = Run(
            ledger=Ledger(store, located, enumerate_settings(located), store.add_context(context)),
            context=context,
            data_dir=settings.data_dir,
            python=python,
            prompts=load_prompts(located.workload),
            clock=Clock(store, record.name),
            observe=observe,
        )
        then = store.context(record.context) if record.context else context
        observe(StageEntered(Stage.DONE, "its answers against the baseline, measured again", 0.0))
        return _verify(run, answers, then)


def _verify(run: Run, answers: Sequence[Recommendation], then: Context) -> list[Verification]:
    notes = disturbances()
    for text in notes:
        run.observe(Warned(text))
    again: dict[Load, Again] = {answer.load: None for answer in answers}
    claims = [claimed for answer in answers if (claimed := claim(answer))]
    with Bench(run, Purpose.VERIFY) as bench:
        for setting in dict.fromkeys(claimed.setting for claimed in claims):
            of_setting = [claimed for claimed in claims if claimed.setting == setting]
            again |= _measured_again(run, bench, setting, of_setting)
    found = [
        verification(answer, then, run.context, again[answer.load], notes) for answer in answers
    ]
    for each in found:
        run.observe(Verified(each))
    return found


def _measured_again(
    run: Run, bench: Bench, setting: Setting, claims: Sequence[Claim]
) -> dict[Load, Again]:
    """Every load at which answers claim something of this setting, measured on one start of it."""
    fresh = [Fresh(run, claimed, _next_pair(run, claimed)) for claimed in claims]
    failed = _measure(run, bench, setting, fresh)
    found: dict[Load, Again] = {}
    for each in fresh:
        unsettled = failed is not None and each.wanted
        found[each.load] = failed if unsettled else _paired(bench, each)
    return found


def _next_pair(run: Run, claimed: Claim) -> int:
    earlier = run.ledger.pairs(claimed.setting, claimed.answer.load, Purpose.VERIFY)
    return earlier[-1].number + 1 if earlier else 0


def _measure(
    run: Run, bench: Bench, setting: Setting, fresh: Sequence[Fresh], attempts: int = ATTEMPTS
) -> Unmeasured | None:
    """Measures until every load is settled; a failure that may be the machine's is tried again."""
    failure = bench.measure_pairs(setting, partial(_missing, fresh))
    if failure is None:
        return None
    failed = Unmeasured(failure, run.store.engine_starts(run.spec.name)[-1])
    final = failure.kind.deterministic or attempts == 1
    run.observe(Failed(setting, failure, final=final))
    return failed if final else _measure(run, bench, setting, fresh, attempts - 1)


def _missing(fresh: Sequence[Fresh]) -> list[Wanted]:
    return [(each.load, pair) for each in fresh for pair in each.wanted]


def _paired(bench: Bench, fresh: Fresh) -> Paired:
    """The comparison at one load, stored, and both arms."""
    run, setting = fresh.run, fresh.claim.setting
    comparison, seen = compare(run, fresh.pairs, fresh.may_stop)
    if comparison.low > 0:  # the text of a setting that is not faster decides nothing
        comparison = replace(comparison, sameness=same_text(run, bench, setting, seen))
    run.store.save_comparisons(run.spec.name, [comparison])
    return Paired(
        baseline=arm_of(run, OFF, [m for pair in seen for m in pair.baselines]),
        challenger=Challenger(arm_of(run, setting, [pair.candidate for pair in seen]), comparison),
    )
