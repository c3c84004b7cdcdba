import json
from collections import Counter
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect, text

from studies.events import EngineStarting, Event, Explored, Failed, Warned
from studies.loop import check, optimize
from studies.projection import make_optuna_tables
from tests.studies.optuna_studies import loaded
from tuner.engine.fake_text import OWN, word
from tuner.errors import BaselineError, PreflightError, UsageError
from tuner.measure.figures import recompute
from tuner.records import OFF, Purpose, Setting, Stage
from tuner.store import Store, upgrade

SUFFIX = Setting.of({"method": "suffix", "num_speculative_tokens": 4})
NGRAM = Setting.of({"method": "ngram", "num_speculative_tokens": 4})


def ignore(event: Event) -> None:
    """An observer that looks away."""


def started(events: list[Event]) -> list[str]:
    return [e.setting.method for e in events if isinstance(e, EngineStarting)]


@pytest.mark.parametrize("storage_url", ["sqlite", "postgres"], indirect=True)
def test_a_study_ends_in_the_setting_that_pays_and_goes_no_further(
    fake_study, opened, settings, events
):
    spec = fake_study(loads=[{"concurrency": 1}, {"concurrency": 2}])
    answers = optimize(spec, opened, settings, events.append)
    assert [a.load for a in answers] == list(spec.loads)
    for answer in answers:
        assert Setting.of(answer.speculative_config) == SUFFIX
        assert answer.confirmed
        assert answer.speedup.low > 1
        assert answer.acceptance_length > 2
        assert answer.cost.usd_per_million_output_tokens == pytest.approx(
            2.0 / (answer.measured.output_throughput_tok_s * 3600) * 1e6
        )
        assert answer.cost.saving_usd_per_million_output_tokens > 0
        assert answer.launch_command[-2:] == ["--speculative-config", SUFFIX.config]
        assert not {"--host", "--port"} & set(answer.launch_command)
    assert started(events) == ["off", "suffix", "off", "suffix"], "ngram finds nothing to look up"
    assert opened.study("fake").stage is Stage.DONE
    assert opened.recommendations("fake") == answers

    events.clear()
    assert optimize(spec, opened, settings, events.append) == answers
    assert started(events) == []


def test_only_confirm_pairs_are_evidence_and_their_rows_recompute_the_answer(
    fake_study, opened, settings
):
    answers = optimize(fake_study(), opened, settings, ignore)
    rows = {m.id: m for m in opened.measurements(study="fake")}
    for answer in answers:
        used = [rows[i] for i in answer.evidence.measurements]
        assert {m.purpose for m in used} == {Purpose.CONFIRM}
        assert Counter(m.setting for m in used) == {OFF: len(used) // 2, SUFFIX: len(used) // 2}
        for m in used:
            assert recompute(m, opened.load_samples(m.samples_path)) == m.figures
            other = rows[m.beside]
            assert other.beside == m.id
            assert other.plan_sha256 == m.plan_sha256
            assert counted_prompts(opened, m) == counted_prompts(opened, other)


def counted_prompts(store, measurement) -> list[str]:
    samples = store.load_samples(measurement.samples_path)
    return sorted(s.prompt_id for s in samples if s.counted)


def test_off_wins_where_nothing_pays(fake_study, opened, settings):
    """Acceptance is not speed: a draft that is nearly always right can still cost more than it
    saves (vllm#39680)."""
    spec = fake_study(
        {"acceptance": {"suffix": 0.966}, "step_ms_per_k": 30.0},
        candidates=[{"method": "suffix", "k": 1}],
    )
    [answer] = optimize(spec, opened, settings, ignore)
    assert answer.speculative_config is None
    assert answer.confirmed
    [loser] = answer.considered
    assert loser.speedup.high < 1
    assert "--speculative-config" not in answer.launch_command


def test_a_setting_that_cannot_run_is_a_fact_with_a_reason_and_is_never_tried_again(
    fake_study, opened, settings, events
):
    faults = [{"method": "suffix", "kind": "out_of_memory"}]
    spec = fake_study({"faults": faults, "acceptance": {"ngram": 0.9}})
    [answer] = optimize(spec, opened, settings, events.append)
    assert Setting.of(answer.speculative_config) == NGRAM
    assert any("suffix" in text and "out of memory" in text for text in answer.warnings)
    assert started(events).count("suffix") == 1
    wider = spec.model_copy(
        update={"candidates": (*spec.candidates, spec.candidates[1].model_copy(update={"k": (2,)}))}
    )
    events.clear()
    optimize(wider, opened, settings, events.append)
    assert "suffix" not in started(events)
    explored = [e.setting for e in events if isinstance(e, Explored) and not e.before]
    assert [s.k for s in explored] == [2]


def test_a_failure_of_the_machine_is_tried_again(fake_study, opened, settings, events, tmp_path):
    faults = [{"method": "suffix", "kind": "die_under_load", "after_requests": 3, "times": 1}]
    script = {"faults": faults, "state_dir": str(tmp_path / "state")}
    answers = optimize(fake_study(script), opened, settings, events.append)
    assert Setting.of(answers[0].speculative_config) == SUFFIX
    [failed] = [e for e in events if isinstance(e, Failed)]
    assert not failed.final
    assert started(events).count("suffix") == 3


def test_a_setting_that_keeps_failing_is_given_up_and_the_rest_goes_on(
    fake_study, opened, settings, events
):
    faults = [{"method": "suffix", "kind": "die_under_load", "after_requests": 2}]
    spec = fake_study({"faults": faults, "acceptance": {"ngram": 0.9}})
    answers = optimize(spec, opened, settings, events.append)
    assert Setting.of(answers[0].speculative_config) == NGRAM
    assert started(events).count("suffix") == 2


def test_when_every_candidate_fails_the_answer_is_off_with_the_reasons(
    fake_study, opened, settings, events
):
    """Sampling that vLLM refuses while it speculates fails every candidate (vllm#42744)."""
    spec = fake_study(
        workload={"output_tokens": 8, "requests": 2, "sampling": {"temperature": 1, "min_p": 0.1}}
    )
    for answer in optimize(spec, opened, settings, events.append):
        assert answer.speculative_config is None
        assert answer.confirmed
        assert sum("could not be measured" in text for text in answer.warnings) == 2
        assert answer.measured.rounds == 1
    assert any("min_p" in e.text for e in events if isinstance(e, Warned))


def test_a_baseline_that_fails_ends_the_study_and_blames_no_candidate(fake_study, opened, settings):
    spec = fake_study({"faults": [{"method": "off", "kind": "kv_cache_too_small"}]})
    with pytest.raises(BaselineError, match="kv cache too small"):
        optimize(spec, opened, settings, ignore)
    assert opened.failures(opened.study("fake").context) == []


def test_engines_that_do_not_fit_side_by_side_take_turns(fake_study, opened, settings, events):
    spec = fake_study()
    engine = spec.engine.model_copy(update={"side_by_side": False})
    spec = spec.model_copy(update={"engine": engine, "candidates": spec.candidates[:1]})
    [answer] = optimize(spec, opened, settings, events.append)
    assert Setting.of(answer.speculative_config) == SUFFIX
    assert started(events) == ["off", "suffix", "off"] * 2
    rows = {m.id: m for m in opened.measurements(study="fake", purpose=Purpose.CONFIRM)}
    for candidate in [m for m in rows.values() if m.setting == SUFFIX]:
        before, after = rows[candidate.beside], rows[candidate.again]
        assert before.setting == after.setting == OFF
        assert before.measured_at < candidate.measured_at < after.measured_at
        assert before.plan_sha256 == candidate.plan_sha256 == after.plan_sha256
        assert before.engine_start != after.engine_start
    assert answer.baseline.rounds == 2 * answer.measured.rounds


def test_a_draft_that_corrupts_its_text_is_not_recommended_however_fast(
    fake_study, opened, settings
):
    """Speculation promises the target's own text."""
    spec = fake_study(
        {"corruption": {"suffix": 0.3}, "divergence": 0.05},
        candidates=[{"method": "suffix", "k": 4}],
        workload={"output_tokens": 32, "requests": 4},
    )
    [answer] = optimize(spec, opened, settings, ignore)
    assert answer.speculative_config is None
    assert answer.sameness.worse
    [loser] = answer.considered
    assert loser.speedup.low > 1
    assert "off target" in loser.reason
    [comparison] = opened.comparisons("fake", Purpose.CONFIRM)
    assert comparison.sameness.worse
    assert len(comparison.sameness.candidate) == len(comparison.sameness.baseline) > 0


def test_prompts_of_random_tokens_are_refused_before_anything_is_measured(
    fake_study, opened, settings, tmp_path
):
    """Acceptance over random tokens means nothing (vllm#52536)."""
    words = [word(number * 7919 % OWN) for number in range(400)]
    prompts = [" ".join(words[start : start + 40]) for start in range(0, 400, 40)]
    path = tmp_path / "random.jsonl"
    path.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))
    spec = fake_study(workload={"path": str(path), "output_tokens": 8, "requests": 2})
    with pytest.raises(PreflightError, match="random tokens"):
        optimize(spec, opened, settings, ignore)
    assert opened.measurements(study="fake") == []
    with pytest.raises(PreflightError, match="random tokens"):
        optimize(spec, opened, settings, ignore)


def test_a_prompt_that_does_not_fit_the_engine_is_named_before_anything_is_measured(
    fake_study, opened, settings, tmp_path
):
    path = tmp_path / "long.jsonl"
    lines = [{"prompt": "short"}, {"id": "the-long-one", "prompt": "word " * 90}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    workload = {"path": str(path), "output_tokens": 16, "requests": 2}
    spec = fake_study({"max_model_len": 100}, workload=workload)
    with pytest.raises(PreflightError, match=r"the-long-one.*max_model_len"):
        optimize(spec, opened, settings, ignore)
    assert opened.measurements(study="fake") == []


def test_a_rate_is_a_load_like_a_concurrency(fake_study, opened, settings):
    spec = fake_study(loads=[{"concurrency": 1}, {"request_rate": 10.0}])
    alone, at_rate = optimize(spec, opened, settings, ignore)
    assert str(at_rate.load) == "10 requests/s"
    assert at_rate.measured.requests == 2 * at_rate.measured.rounds
    assert alone.load.concurrency == 1
    assert opened.recommendations("fake") == [alone, at_rate]


def test_recorded_arrivals_are_a_load_too(fake_study, opened, settings, tmp_path):
    path = tmp_path / "log.jsonl"
    lines = [{"prompt": f"tell me of {n}", "timestamp": 100 + n / 10} for n in range(6)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    workload = {"path": str(path), "output_tokens": 8, "requests": 2}
    spec = fake_study(workload=workload, loads=[{"request_rate": "recorded"}])
    [answer] = optimize(spec, opened, settings, ignore)
    assert str(answer.load) == "recorded arrivals"
    assert answer.confirmed


def test_what_a_round_follows_is_part_of_it(fake_study, opened, settings):
    """Suffix remembers earlier answers, so a round says how many there were."""
    optimize(fake_study(), opened, settings, ignore)
    rows = opened.measurements(study="fake", purpose=Purpose.CONFIRM, setting=SUFFIX)
    before = [m.requests_before for m in rows]
    assert before == sorted(set(before))
    assert before[0] >= 1


def test_the_budget_ends_exploring_and_confirming_comes_on_top(
    fake_study, opened, settings, events
):
    spec = fake_study(budget={"engine_starts": 2})
    optimize(spec, opened, settings, events.append)
    assert started(events) == ["off", "suffix", "off", "suffix"]


@pytest.mark.parametrize("storage_url", ["sqlite", "postgres"], indirect=True)
def test_optunas_tables_deleted_the_study_taken_up_again_comes_to_the_same(
    fake_study, opened, settings, events
):
    spec = fake_study()
    answers = optimize(spec, opened, settings, events.append)
    engine = create_engine(settings.storage_url)
    ours = {"tuner_", "sqlite"}
    theirs = [t for t in inspect(engine).get_table_names() if not t.startswith(tuple(ours))]
    assert "studies" in theirs
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            for table in theirs:
                connection.execute(text(f"DROP TABLE {table} CASCADE"))
        else:
            connection.execute(text("PRAGMA foreign_keys = OFF"))
            for table in theirs:
                connection.execute(text(f"DROP TABLE {table}"))
    engine.dispose()
    assert opened.recommendations("fake") == answers
    opened.set_stage("fake", Stage.EXPLORE)
    upgrade(settings.storage_url, also=make_optuna_tables)
    events.clear()
    again = optimize(spec, opened, settings, events.append)
    assert [(a.speculative_config, a.speedup, a.evidence) for a in again] == [
        (a.speculative_config, a.speedup, a.evidence) for a in answers
    ]
    assert started(events) == []
    assert len(loaded(settings.storage_url).trials) == 2


def test_two_processes_do_not_work_on_one_study(fake_study, opened, settings):
    spec = fake_study()
    other = Store.open(settings.storage_url, settings.data_dir)
    with other, other.study_lock("fake"), pytest.raises(UsageError, match="another process"):
        optimize(spec, opened, settings, ignore)


def test_a_study_that_cannot_run_is_refused_before_it_is_stored(fake_study, opened, settings):
    spec = fake_study(target={"model": "/no/such/model"})
    with pytest.raises(PreflightError, match="no folder"):
        optimize(spec, opened, settings, ignore)
    assert opened.studies() == []
    assert check(spec, settings, with_engine=False).problems
    assert not Path("/no/such/model").exists()
