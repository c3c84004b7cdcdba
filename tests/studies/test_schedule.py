from statistics import fmean

from studies.ledger import CONTENDER_PAIRS, EXPLORE_PAIRS, Ledger
from studies.loop import optimize
from studies.schedule import ANY_NUMBER, schedule
from studies.search import contends
from studies.space import enumerate_settings
from tests.predict.test_forecast import draft
from tuner.records import Purpose
from tuner.spec import Load
from tuner.vllm import SCHEDULE


def test_each_concurrencys_k_holds_up_to_it_and_the_last_beyond() -> None:
    best = {
        Load(concurrency=16): draft(1),
        Load(concurrency=1): draft(5),
        Load(concurrency=4): draft(3),
    }
    found = schedule(best)
    assert found.k == 5
    config = found.speculative_config or {}
    assert config[SCHEDULE] == [[1, 1, 5], [2, 4, 3], [5, ANY_NUMBER, 1]]
    assert {k: v for k, v in config.items() if k != SCHEDULE} == draft(5).speculative_config


CHANGES = {
    "candidates": [{"method": "eagle3", "model": "owner/head", "k": [1, 5]}],
    "search": "random",
    "budget": {"engine_starts": 4},
    "workload": {"output_tokens": 16, "requests": 4},
}
SCRIPT = {
    "acceptance": {"head": 0.95},
    "step_ms_per_draft_token": 1.2,
}


def test_under_bursts_a_schedule_is_measured_beside_the_best_fixed_k(fake_study, opened, settings):
    """Alone k=5 is best, for eight users k=1: what follows the number of requests may beat both."""
    bursts = {"request_rate": 12.0, "burstiness": 0.2}
    spec = fake_study(SCRIPT, **CHANGES, loads=[{"concurrency": 1}, {"concurrency": 8}, bursts])
    *_, answer = optimize(spec, opened, settings, lambda _: None)
    schedules = {s.setting for s in opened.engine_starts("fake") if s.setting.is_schedule}
    [found] = schedules
    assert found.speculative_config[SCHEDULE] == [[1, 1, 5], [2, ANY_NUMBER, 1]]
    load = spec.loads[-1]
    explored = opened.measurements(study="fake", setting=found, load=load, purpose=Purpose.EXPLORE)
    ledger = Ledger(opened, spec, enumerate_settings(spec), opened.study("fake").context)
    pairs = ledger.pairs(found, load, Purpose.EXPLORE)
    first = fmean(pair.log_ratio(spec.objective) for pair in pairs[:EXPLORE_PAIRS])
    fixed = [o.log_ratios[load] for o in ledger.outcomes().values() if o.failure is None]
    assert len(explored) == (CONTENDER_PAIRS if contends(first, fixed) else EXPLORE_PAIRS)
    confirmed = {c.setting.is_schedule for c in opened.comparisons("fake") if c.load == load}
    assert False in confirmed, "the best fixed k is confirmed whatever the schedule came to"
    if answer.speculative_config and SCHEDULE in answer.speculative_config:
        assert confirmed == {False, True}


def test_at_steady_loads_there_is_no_schedule(fake_study, opened, settings):
    spec = fake_study(SCRIPT, **CHANGES, loads=[{"concurrency": 1}, {"concurrency": 8}])
    optimize(spec, opened, settings, lambda _: None)
    assert not any(start.setting.is_schedule for start in opened.engine_starts("fake"))
