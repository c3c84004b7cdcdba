"""Exploring: engine starts, each chosen by what those before it showed, while any is worth it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

from studies.bench import Bench, Wanted
from studies.events import Explored, Failed, Warned
from studies.evidence import forecast, load_costs
from studies.ledger import CONTENDER_PAIRS, EXPLORE_PAIRS, Outcome, missing_pairs
from studies.live_k import groups, measure_live, trusted
from studies.projection import Projection
from studies.run import Run
from studies.search import contends, each_method, promising, screen_best, unexplored
from tuner.errors import Failure
from tuner.predict.forecast import Forecast
from tuner.records import Purpose, Screen, Setting, SettingFailure
from tuner.spec import Load


def explore(run: Run, bench: Bench, screens: Mapping[Setting, Screen]) -> dict[Setting, Outcome]:
    """Measures settings until no start is worth it, or the budget is used up.

    Returns all that is known, failures included.
    """
    outcomes = run.ledger.outcomes()
    for outcome in outcomes.values():
        _report(run, outcome, before=True)
    search = run.spec.search
    optuna_view = Projection.open(run.store.url, run.spec.name, run.ledger.settings, outcomes)
    with optuna_view as projection:
        while _affordable(run, outcomes) and (wanted := _wanted(run, screens, outcomes)):
            setting = projection.ask(wanted, search)
            _measure_live(run, bench, screens, _live_group(run, setting, wanted))
            failure = bench.measure_pairs(setting, partial(missing, run, setting))
            if failure is not None:
                record_failure(run, setting, failure)
            known, outcomes = outcomes, run.ledger.outcomes()
            if setting in outcomes:
                projection.tell(outcomes[setting])
                projection.catch_up(outcomes)
                for found in outcomes.keys() - known.keys():
                    _report(run, outcomes[found], before=False)
            elif failure is not None:
                projection.tell_retry(failure)
                run.observe(Failed(setting, failure, final=False))
    return outcomes


def _wanted(
    run: Run, screens: Mapping[Setting, Screen], outcomes: Mapping[Setting, Outcome]
) -> list[Setting]:
    """The settings still worth a start, as the study's search sees it; the best first."""
    settings, loads = run.ledger.settings, run.spec.loads
    device = run.context.host.device
    match run.spec.search:
        case "predicted":
            now = forecast(run.ledger, screens, device)
            return promising(now, outcomes, settings, loads)
        case "each_method":
            now = forecast(run.ledger, screens, device)
            return each_method(now, outcomes, settings, loads)
        case "screen_best":
            first = Forecast(screens, load_costs(run.ledger, device), ())
            return screen_best(first, outcomes, settings, loads)
        case "tpe" | "random":
            return unexplored(outcomes, settings)


def _live_group(run: Run, setting: Setting, wanted: Sequence[Setting]) -> tuple[Setting, ...]:
    """The settings that one engine may measure with this one, k changed live; none where not."""
    if run.spec.search != "predicted" or not run.side_by_side:
        return ()
    if not trusted(run, setting.method):
        return ()
    return next((group for group in groups(wanted) if setting in group), ())


def _measure_live(
    run: Run, bench: Bench, screens: Mapping[Setting, Screen], group: Sequence[Setting]
) -> None:
    """One k after the other, while any is worth it. Where it fails, plain engines go on."""

    def next_missing() -> list[tuple[Setting, Load, int]]:
        promising_k = [s for s in _wanted(run, screens, run.ledger.outcomes()) if s in group]
        for setting in [*_begun_live(run, group), *promising_k[:1]]:
            if pairs := missing(run, setting, Purpose.LIVE_K):
                return [(setting, load, pair) for load, pair in pairs]
        return []

    failure = measure_live(run, bench, group, next_missing) if group else None
    if failure is not None:
        run.observe(Warned(f"k could not be changed live, so plain engines are started: {failure}"))


def _begun_live(run: Run, group: Sequence[Setting]) -> list[Setting]:
    return [
        setting
        for setting in group
        if any(run.ledger.pairs(setting, load, Purpose.LIVE_K) for load in run.spec.loads)
    ]


def missing(run: Run, setting: Setting, purpose: Purpose = Purpose.EXPLORE) -> list[Wanted]:
    """The pairs exploring still wants of a setting, load by load; more where it contends.

    None of a plain engine where k was changed live instead.
    """
    wanted = []
    for load in run.spec.loads:
        have = run.ledger.pairs(setting, load, purpose)
        if purpose is Purpose.EXPLORE and not have:
            have = run.ledger.pairs(setting, load, Purpose.LIVE_K)
        wanted += [(load, pair) for pair in missing_pairs(have, EXPLORE_PAIRS)]
    return wanted or _missing_of_a_contender(run, setting, purpose)


def _missing_of_a_contender(run: Run, setting: Setting, purpose: Purpose) -> list[Wanted]:
    """A pair is cheap while the engine is up beside the baseline, and decides who is confirmed."""
    ran = {s: o.log_ratios for s, o in run.ledger.outcomes().items() if o.failure is None}
    if not run.side_by_side or setting not in ran:
        return []
    own = ran.pop(setting)
    wanted = []
    for load in run.spec.loads:
        have = run.ledger.pairs(setting, load, purpose)
        if have and contends(own[load], [other[load] for other in ran.values()]):
            wanted += [(load, pair) for pair in missing_pairs(have, CONTENDER_PAIRS)]
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


def _affordable(run: Run, outcomes: dict[Setting, Outcome]) -> bool:
    """The baseline's own start counts; a retried setting is one start of the budget."""
    budget = run.spec.budget
    in_time = budget.minutes is None or run.clock.spent_s < budget.minutes * 60
    return in_time and _starts(run, outcomes) < budget.engine_starts


def _starts(run: Run, outcomes: Mapping[Setting, Outcome]) -> int:
    """Engine starts that what is known took: one may have measured several settings."""
    ran = {
        pair.candidate.engine_start
        for setting in outcomes
        for load in run.spec.loads
        for pair in run.ledger.explored_pairs(setting, load)
    }
    failed = sum(outcome.failure is not None for outcome in outcomes.values())
    return 1 + len(ran) + failed + _scoring_starts(run)


def _scoring_starts(run: Run) -> int:
    """Starts of drafts that only vLLM could score."""
    starts = run.store.engine_starts(run.spec.name)
    return sum(start.purpose is Purpose.SCREEN for start in starts)


def _report(run: Run, outcome: Outcome, *, before: bool) -> None:
    if outcome.failure is not None:
        run.observe(Failed(outcome.setting, outcome.failure, final=True))
    elif not outcome.setting.is_off:
        run.observe(Explored(outcome.setting, outcome.log_ratios, before))
