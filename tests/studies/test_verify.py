"""Answers of a study over the fake, measured again after its engine became another.

The engine's script is a file, so that what it says can change while the study stays as it is: as
an upgrade of vLLM would have it.
"""

import math
from dataclasses import replace

import pytest

from studies.events import EngineStarting, Failed, Verified
from studies.loop import optimize
from studies.verify import Fresh, verify
from tests.studies.stored_answers import ALONE, NGRAM, PAIR, SUFFIX, off, on
from tuner.answers import EngineName
from tuner.errors import BaselineError, UsageError
from tuner.measure.sequential import FIRST_PAIRS, Decision
from tuner.records import OFF, Purpose, Setting, Stage
from tuner.spec import Load
from tuner.store import Store
from tuner.verdict import claim

SLOW = {"step_ms_per_k": 15.0}


def ignore(event) -> None:
    """An observer that looks away."""


def started(events) -> list[str]:
    return [e.setting.method for e in events if isinstance(e, EngineStarting)]


def test_an_answer_that_is_as_it_was_holds(answered, opened, settings):
    events = []
    [found] = verify(answered(on()), opened, settings, events.append)
    assert found.outcome == "holds"
    assert found.speedup.low > 1
    assert found.stored_speedup.value == 3.0
    assert found.measured.rounds == found.baseline.rounds == found.pairs >= FIRST_PAIRS
    assert started(events) == ["off", "suffix"]
    assert [e.verification for e in events if isinstance(e, Verified)] == [found]
    rows = {m.id: m for m in opened.measurements(study="fake")}
    assert set(found.evidence.measurements) == set(rows)
    assert {m.purpose for m in rows.values()} == {Purpose.VERIFY}
    [comparison] = opened.comparisons("fake", Purpose.VERIFY)
    assert math.exp(comparison.log_ratio) == pytest.approx(found.speedup.value)
    assert comparison.sameness is not None


def test_what_optimize_found_is_verified_as_it_stands(scripted, opened, settings):
    spec = scripted(candidates=[{"method": "suffix", "k": 4}])
    [answer] = optimize(spec, opened, settings, ignore)
    before = opened.study("fake"), opened.comparisons("fake", Purpose.CONFIRM)
    [found] = verify([answer], opened, settings, ignore)
    claimed = claim(answer)
    assert found.outcome in {"holds", "changed"}
    assert found.stored_speedup == claimed.speedup
    assert Setting.of(found.verified_config) == claimed.setting
    assert (opened.study("fake"), opened.comparisons("fake", Purpose.CONFIRM)) == before
    assert opened.recommendations("fake") == [answer]
    assert not set(found.evidence.measurements) & set(answer.evidence.measurements)


def test_a_setting_that_became_slower_than_off_is_lost_and_nothing_of_the_study_changes(
    answered, opened, settings, upgrade_to
):
    answers = answered(on())
    before = opened.study("fake")
    upgrade_to(**SLOW)
    [found] = verify(answers, opened, settings, ignore)
    assert found.outcome == "lost"
    assert found.speedup.high < 1
    assert found.reason.startswith("worse than off")
    assert found.sameness is None  # nobody asks for the text of what is slower
    assert opened.study("fake") == before
    assert opened.recommendations("fake") == answers
    assert opened.events("fake") == []


def test_a_setting_that_gains_clearly_less_than_it_did_has_changed(answered, opened, settings):
    [found] = verify(answered(on(speedup=(40.0, 38.0, 42.0))), opened, settings, ignore)
    assert found.outcome == "changed"
    assert found.speedup.low > 1
    assert "clearly less" in found.reason


def test_off_still_is_off_where_its_best_candidate_still_does_not_pay(
    answered, opened, settings, upgrade_to
):
    answers = answered(off())
    upgrade_to(**SLOW)
    [found] = verify(answers, opened, settings, ignore)
    assert found.outcome == "holds"
    assert found.speculative_config is None
    assert Setting.of(found.verified_config) == SUFFIX
    assert found.speedup.high < 1


def test_off_has_changed_where_its_best_candidate_pays_now(answered, opened, settings):
    [found] = verify(answered(off()), opened, settings, ignore)
    assert found.outcome == "changed"
    assert "now better than off" in found.reason


def test_off_without_a_candidate_starts_nothing_and_says_so(answered, opened, settings):
    events = []
    alone = off().model_copy(update={"considered": []})
    [found] = verify(answered(alone), opened, settings, events.append)
    assert (found.outcome, found.pairs, found.speedup) == ("holds", 0, None)
    assert "none to measure" in found.reason
    assert started(events) == []


@pytest.mark.parametrize("case", [(on(), "lost"), (off(), "holds")])
def test_a_setting_that_no_longer_starts_says_why(answered, opened, settings, upgrade_to, case):
    answer, outcome = case
    events = []
    answers = answered(answer)
    upgrade_to(faults=[{"method": "suffix", "kind": "out_of_memory"}])
    [found] = verify(answers, opened, settings, events.append)
    assert found.outcome == outcome
    assert "out of memory" in found.reason
    assert started(events) == ["off", "suffix"]
    assert found.speedup is found.measured is None
    [failed] = [s for s in opened.engine_starts("fake") if s.failure]
    assert found.evidence.engine_starts == [failed.id]
    assert opened.failures(opened.study("fake").context) == []


def test_a_failure_of_the_machine_is_no_verdict(answered, opened, settings, upgrade_to, tmp_path):
    events = []
    answers = answered(on())
    faults = [{"method": "suffix", "kind": "crash", "times": 1}]
    upgrade_to(faults=faults, state_dir=str(tmp_path / "state"))
    [found] = verify(answers, opened, settings, events.append)
    assert found.outcome == "holds"
    [failed] = [e for e in events if isinstance(e, Failed)]
    assert not failed.final
    assert started(events) == ["off", "suffix", "suffix"]


def test_a_setting_whose_text_is_no_longer_the_targets_own_is_lost_however_fast(
    answered, opened, settings, upgrade_to
):
    answers = answered(on(), workload={"output_tokens": 32, "requests": 4})
    upgrade_to(corruption={"suffix": 0.3}, divergence=0.05)
    [found] = verify(answers, opened, settings, ignore)
    assert found.outcome == "lost"
    assert found.speedup.low > 1
    assert "off target" in found.reason


def test_a_baseline_that_fails_blames_no_answer(answered, opened, settings, upgrade_to):
    answers = answered(on())
    upgrade_to(faults=[{"method": "off", "kind": "kv_cache_too_small"}])
    with pytest.raises(BaselineError, match="kv cache too small"):
        verify(answers, opened, settings, ignore)


def test_loads_that_share_a_setting_share_its_start(answered, opened, settings):
    events = []
    other = Load(concurrency=3)
    answers = answered(on(ALONE), off(PAIR, setting=NGRAM), on(other))
    found = verify(answers, opened, settings, events.append)
    assert [v.load for v in found] == [ALONE, PAIR, other]
    assert [Setting.of(v.verified_config) for v in found] == [SUFFIX, NGRAM, SUFFIX]
    assert started(events) == ["off", "suffix", "ngram"]
    assert found[0].outcome == found[2].outcome == "holds"


def test_pairs_of_an_earlier_verification_are_not_used_again(answered, opened, settings):
    answers = answered(on())
    [first], [second] = (verify(answers, opened, settings, ignore) for _ in range(2))
    assert not set(first.evidence.measurements) & set(second.evidence.measurements)
    assert not set(first.evidence.engine_starts) & set(second.evidence.engine_starts)
    numbers = [m.pair for m in opened.measurements(study="fake", setting=SUFFIX)]
    assert numbers == list(range(first.pairs + second.pairs))
    [comparison] = opened.comparisons("fake", Purpose.VERIFY)
    assert {b for pair in comparison.pairs for b in pair} == set(second.evidence.measurements)


def test_what_is_no_longer_as_it_was_is_said_and_kept_apart(answered, opened, settings, upgrade_to):
    then = EngineName(name="vllm", version="0.32.0", runner="V1")
    answers = answered(on().model_copy(update={"engine": then}))
    here = opened.context(opened.study("fake").context)
    elsewhere = replace(here, host=replace(here.host, cpu_model="An older CPU", driver=None))
    opened.set_context("fake", elsewhere)
    before = opened.study("fake")
    upgrade_to(version="0.33.0")
    [found] = verify(answers, opened, settings, ignore)
    assert f"CPU: An older CPU → {here.host.cpu_model}" in found.differences
    assert any("vllm 0.32.0 → " in text and "0.33.0" in text for text in found.differences)
    assert found.engine.version == "0.33.0"
    assert {m.context for m in opened.measurements(study="fake")} == {here.digest}
    assert opened.study("fake") == before


def test_engines_that_do_not_fit_side_by_side_take_turns(answered, opened, settings):
    events = []
    answers = answered(on())
    spec = opened.study("fake").spec
    engine = spec.engine.model_copy(update={"side_by_side": False})
    opened.save_study(spec.model_copy(update={"engine": engine}))
    opened.set_stage("fake", Stage.DONE)
    [found] = verify(answers, opened, settings, events.append)
    assert found.outcome == "holds"
    assert started(events)[:3] == ["off", "suffix", "off"]
    assert found.baseline.rounds == 2 * found.measured.rounds
    rows = opened.measurements(study="fake", setting=OFF)
    assert {m.id for m in rows} <= set(found.evidence.measurements)


def test_two_processes_do_not_work_on_one_study(answered, opened, settings):
    answers = answered(on())
    other = Store.open(settings.storage_url, settings.data_dir)
    with other, other.study_lock("fake"), pytest.raises(UsageError, match="another process"):
        verify(answers, opened, settings, ignore)


@pytest.mark.parametrize(
    ("answer", "stopped", "low", "high", "may_stop"),
    [
        (on(speedup=(1.1, 1.05, 1.15)), "precise", 0.9, 1.2, False),
        (on(speedup=(1.3, 1.2, 1.4)), "precise", 0.9, 1.2, True),
        (on(speedup=(1.1, 1.05, 1.15)), "decided", 1.02, 1.2, True),
        (off(speedup=(1.1, 0.95, 1.25)), "precise", 0.9, 1.2, True),
        (on(), None, 0.5, 2.0, False),
    ],
)
def test_a_recommended_setting_is_not_called_lost_while_its_old_speedup_is_not_excluded(
    answer, stopped, low, high, may_stop
):
    decision = Decision(0.0, math.log(low), math.log(high), 0.95, stopped)
    assert Fresh(None, claim(answer), 0).may_stop(decision) is may_stop
