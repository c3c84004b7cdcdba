"""Exploring: one engine start per setting, the next one chosen by what the others showed."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial

from studies.bench import Bench, Wanted
from studies.events import Explored, Failed
from studies.ledger import EXPLORE_PAIRS, Outcome, missing_pairs
from studies.projection import Projection
from studies.run import Run
from tuner.errors import Failure
from tuner.records import Purpose, Setting, SettingFailure


def explore(run: Run, bench: Bench) -> dict[Setting, Outcome]:
    """Measures settings until the space or the budget is used up; returns all that is known."""
    outcomes = run.ledger.outcomes()
    for outcome in outcomes.values():
        _report(run, outcome, before=True)
    optuna_view = Projection.open(run.store.url, run.spec.name, run.ledger.settings, outcomes)
    with optuna_view as projection:
        while (unexplored := _unexplored(run, outcomes)) and _affordable(run, outcomes):
            setting = projection.ask(unexplored)
            failure = bench.measure_pairs(setting, partial(missing, run, setting))
            if failure is not None:
                record_failure(run, setting, failure)
            outcomes = run.ledger.outcomes()
            if setting in outcomes:
                projection.tell(outcomes[setting])
                _report(run, outcomes[setting], before=False)
            elif failure is not None:
                projection.tell_retry(failure)
                run.observe(Failed(setting, failure, final=False))
    return outcomes


def missing(run: Run, setting: Setting) -> list[Wanted]:
    """The pairs exploring still wants of a setting, load by load."""
    wanted = []
    for load in run.spec.loads:
        have = run.ledger.pairs(setting, load, Purpose.EXPLORE)
        wanted += [(load, pair) for pair in missing_pairs(have, EXPLORE_PAIRS)]
    return wanted


def record_failure(run: Run, setting: Setting, failure: Failure) -> None:
    """A fact with a reason. Enough of them, or one that would repeat, end the setting."""
    run.store.add_failure(
        SettingFailure(
            setting=setting,
            context=run.ledger.context,
            failure=failure,
            engine_start=run.store.engine_starts(run.spec.name)[-1].id,
            failed_at=datetime.now(UTC),
        )
    )


def _unexplored(run: Run, outcomes: dict[Setting, Outcome]) -> list[Setting]:
    return [setting for setting in run.ledger.settings if setting not in outcomes]


def _affordable(run: Run, outcomes: dict[Setting, Outcome]) -> bool:
    """Off stands for the baseline's own start; a retried setting is one start of the budget."""
    budget = run.spec.budget
    in_time = budget.minutes is None or run.clock.spent_s < budget.minutes * 60
    return in_time and len(outcomes) < budget.engine_starts


def _report(run: Run, outcome: Outcome, *, before: bool) -> None:
    if outcome.failure is not None:
        run.observe(Failed(outcome.setting, outcome.failure, final=True))
    elif not outcome.setting.is_off:
        run.observe(Explored(outcome.setting, outcome.log_ratios, before))
