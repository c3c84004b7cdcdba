"""The grid's recorder: candidates that are up together share the baseline's rounds."""

from contextlib import ExitStack

from studies.arm import started
from studies.bench import Bench
from studies.events import RoundStarting
from tests.benchmarks.search.beside import measure_beside
from tuner.records import OFF, Purpose


def test_candidates_share_the_rounds_of_the_baseline_which_stand_in_their_middle(make_run, events):
    run = make_run(candidates=[{"method": "suffix", "k": [2, 4, 6]}])
    load = run.spec.loads[0]
    settings = [setting for setting in run.ledger.settings if not setting.is_off]
    with Bench(run, Purpose.EXPLORE) as bench, ExitStack() as up:
        bench.baseline()
        arms = [up.enter_context(started(run, setting, Purpose.EXPLORE)) for setting in settings]
        for pair in range(2):
            plan = arms[0].deck.plan(load, run.spec.workload)
            measure_beside(bench, plan, arms, pair)
    first, second, third = settings
    rounds = [e.setting for e in events if isinstance(e, RoundStarting) and e.what != "warm-up"]
    assert rounds == [first, OFF, second, third, third, second, OFF, first]
    pairs = [run.ledger.pairs(setting, load, Purpose.EXPLORE) for setting in settings]
    assert [len(of_setting) for of_setting in pairs] == [2, 2, 2]
    for of_round in zip(*pairs, strict=True):
        assert len({pair.baseline.figures.tpot_ms_p50 for pair in of_round}) == 1
        assert len({pair.candidate.figures.tpot_ms_p50 for pair in of_round}) == 3
    assert [pair.baseline.order for pair in (of_setting[0] for of_setting in pairs)] == [1, 0, 0]
