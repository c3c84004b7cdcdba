"""What the store promises, over SQLite and PostgreSQL alike."""

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest

from tests import factories
from tests.factories import DRAFT, NGRAM, NOON
from tuner.errors import (
    Failure,
    FailureKind,
    NotFoundError,
    RoundError,
    StorageError,
    TunerError,
    UsageError,
)
from tuner.records import (
    OFF,
    Estimate,
    Purpose,
    Screen,
    SettingFailure,
    Stage,
    StartedFacts,
)
from tuner.spec import Load
from tuner.store import Store

# Studies


def test_new_study_stands_at_preflight(store):
    spec = factories.study_spec()
    before = datetime.now(UTC)
    saved = store.save_study(spec)
    assert saved == store.study("chat")
    assert (saved.spec, saved.stage, saved.context, saved.spent_s) == (
        spec,
        Stage.PREFLIGHT,
        None,
        0.0,
    )
    assert before <= saved.created_at == saved.updated_at <= datetime.now(UTC)


def test_same_spec_again_changes_nothing(store):
    store.save_study(factories.study_spec())
    store.set_stage("chat", Stage.EXPLORE)
    stood = store.study("chat")
    assert store.save_study(factories.study_spec()) == stood


def test_changed_spec_goes_back_to_preflight_and_keeps_the_rest(store):
    start = factories.add_start(store)
    store.add_spent("chat", 60)
    store.set_stage("chat", Stage.DONE)
    before = store.study("chat")
    changed = factories.study_spec(precision=0.02)
    after = store.save_study(changed)
    assert after == replace(
        before, spec=changed, stage=Stage.PREFLIGHT, updated_at=after.updated_at
    )
    assert after.updated_at > before.updated_at
    assert store.engine_starts("chat") == [start]


def test_spec_keeps_the_order_of_engine_args(store):
    args = {"max_model_len": 2048, "dtype": "float32", "a": 1e23}
    spec = factories.study_spec(engine={"args": args})
    stored = store.save_study(spec).spec
    assert stored == spec
    assert list(stored.engine.args) == list(args)


def test_studies_newest_update_first(store):
    for name in ("first", "second", "third"):
        store.save_study(factories.study_spec(name=name))
    store.set_stage("first", Stage.BASELINE)
    assert [study.name for study in store.studies()] == ["first", "third", "second"]


def test_spent_time_adds_up(store):
    store.save_study(factories.study_spec())
    store.add_spent("chat", 1.5)
    store.add_spent("chat", 2.25)
    assert store.study("chat").spent_s == 3.75


@pytest.mark.parametrize("seconds", [-1.0, math.nan, math.inf])
def test_unsound_time_is_refused(store, seconds):
    store.save_study(factories.study_spec())
    with pytest.raises(StorageError, match="study chat: time spent"):
        store.add_spent("chat", seconds)
    assert store.study("chat").spent_s == 0.0


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.study("chap"),
        lambda store: store.set_stage("chap", Stage.DONE),
        lambda store: store.add_spent("chap", 1),
        lambda store: store.set_context("chap", factories.context()),
        lambda store: store.recommendations("chap"),
        lambda store: store.save_recommendations("chap", []),
    ],
)
def test_unknown_study_names_the_known_ones(store, call):
    for name in ("chat", "code"):
        store.save_study(factories.study_spec(name=name))
    with pytest.raises(NotFoundError, match="no study chap in the store; there are chat, code"):
        call(store)


def test_context_is_stored_once(store):
    context = factories.context()
    for name in ("chat", "code"):
        store.save_study(factories.study_spec(name=name))
        assert store.set_context(name, context) == context.digest
        assert store.study(name).context == context.digest
    assert store.context(context.digest) == context


def test_a_context_is_stored_without_a_study_that_stands_in_it(store):
    here, elsewhere = factories.context(), factories.context(target_digest="beef")
    store.save_study(factories.study_spec())
    store.set_context("chat", here)
    assert store.add_context(elsewhere) == store.add_context(elsewhere) == elsewhere.digest
    assert store.context(elsewhere.digest) == elsewhere
    assert store.study("chat").context == here.digest


def test_unknown_context(store):
    with pytest.raises(NotFoundError, match="no context feed"):
        store.context("feed")


# Engine starts


def test_engine_start_is_written_before_and_after(store):
    factories.add_study(store)
    before = factories.engine_start(startup_s=None, facts=StartedFacts(), log_tail="")
    store.add_engine_start(before)
    assert store.engine_starts("chat") == [before]
    failure = Failure(FailureKind.OUT_OF_MEMORY, "no memory", -9)
    after = replace(before, startup_s=3.25, failure=failure, log_tail="killed")
    store.update_engine_start(after)
    assert store.engine_starts("chat") == [after]


def test_engine_starts_oldest_first_and_of_one_study(store):
    for name in ("chat", "code"):
        factories.add_study(store, name=name)
    late = factories.engine_start(started_at=NOON + timedelta(hours=1))
    early = factories.engine_start()
    for start in (late, early, factories.engine_start(study="code")):
        store.add_engine_start(start)
    assert store.engine_starts("chat") == [early, late]


def test_unknown_engine_start_is_not_updated(store):
    factories.add_study(store)
    with pytest.raises(NotFoundError, match="no engine start ghost"):
        store.update_engine_start(factories.engine_start(id="ghost"))


def test_engine_start_of_an_unknown_study_is_refused(store):
    with pytest.raises(StorageError, match="contradicts what is stored"):
        store.add_engine_start(factories.engine_start())


# Measurements


def test_pair_reads_back(store):
    start = factories.add_start(store)
    pair = factories.pair(engine_start=start.id, warnings=("few requests",))
    store.add_measurements(pair)
    assert store.measurements() == list(pair)


def test_half_a_pair_is_refused(store):
    start = factories.add_start(store)
    _, candidate = factories.pair(engine_start=start.id)
    with pytest.raises(StorageError, match="contradicts what is stored"):
        store.add_measurements([candidate])
    assert store.measurements() == []


def test_pair_with_a_fault_is_stored_not_at_all(store):
    start = factories.add_start(store)
    baseline, candidate = factories.pair(engine_start=start.id)
    with pytest.raises(StorageError):
        store.add_measurements([baseline, replace(candidate, engine_start="ghost")])
    assert store.measurements() == []


def test_same_measurement_twice_is_refused(store):
    start = factories.add_start(store)
    alone = factories.measurement(engine_start=start.id)
    store.add_measurements([alone])
    with pytest.raises(StorageError, match="contradicts what is stored"):
        store.add_measurements([alone])
    assert store.measurements() == [alone]


def test_measurements_match_everything_given_and_come_oldest_first(store):
    start = factories.add_start(store)
    factories.add_study(store, name="code")
    other = factories.context(workload_sha256="cd" * 32)
    store.set_context("code", other)
    plain = factories.measurement(engine_start=start.id, measured_at=NOON + timedelta(hours=1))
    unlike = {
        "study": replace(plain, id="a", study="code"),
        "context": replace(plain, id="b", context=other.digest),
        "setting": replace(plain, id="c", setting=DRAFT),
        "load": replace(plain, id="d", load=Load(concurrency=1)),
        "purpose": replace(plain, id="e", purpose=Purpose.CONFIRM),
    }
    earlier = replace(plain, id="f", measured_at=NOON)
    store.add_measurements([plain, earlier, *unlike.values()])
    for name, measurement in unlike.items():
        assert store.measurements(**{name: getattr(measurement, name)}) == [measurement]
        same = store.measurements(**{name: getattr(plain, name)})
        assert measurement not in same
        assert same[0] == earlier
        assert len(same) == 6
    everything = {name: getattr(plain, name) for name in unlike}
    assert store.measurements(**everything) == [earlier, plain]


@pytest.mark.parametrize(
    "unsound",
    [
        {"figures": factories.figures(tpot_ms_p50=math.nan)},
        {"counters": factories.counters(accepted_at_position=(1, -1))},
    ],
)
def test_unsound_measurement_is_refused_with_its_pair(store, unsound):
    start = factories.add_start(store)
    baseline, candidate = factories.pair(engine_start=start.id)
    with pytest.raises(RoundError) as refused:
        store.add_measurements([baseline, replace(candidate, **unsound)])
    assert refused.value.failure.kind is FailureKind.BAD_COUNTERS
    assert store.measurements() == []


def test_times_are_utc_whatever_zone_they_were_written_in(store):
    start = factories.add_start(store, started_at=NOON.astimezone(timezone(timedelta(hours=5.5))))
    stored = store.engine_starts("chat")[0].started_at
    assert stored == start.started_at
    assert stored.tzinfo is UTC


def test_time_without_a_zone_is_refused(store):
    factories.add_study(store)
    with pytest.raises(StorageError, match="has no time zone"):
        store.add_engine_start(factories.engine_start(started_at=NOON.replace(tzinfo=None)))


# Failures


def test_failures_of_a_context_over_studies(store):
    start = factories.add_start(store)
    here, elsewhere = factories.context(), factories.context(workload_sha256="cd" * 32)
    store.save_study(factories.study_spec(name="code"))
    store.set_context("code", elsewhere)
    crashed = SettingFailure(
        NGRAM, here.digest, Failure(FailureKind.WORKER_CRASHED, "gone\0", 1), start.id, NOON
    )
    refused = SettingFailure(
        DRAFT, here.digest, Failure(FailureKind.BAD_SPECULATIVE_CONFIG, "no"), None, NOON
    )
    for failure in (crashed, refused, replace(crashed, context=elsewhere.digest)):
        store.add_failure(failure)
    assert store.failures(here.digest) == [crashed, refused]


# Screens


def test_screens_of_a_context_read_back_and_replace_former_ones(store):
    factories.add_study(store)
    elsewhere = store.add_context(factories.context(workload_sha256="cd" * 32))
    ngram, there = factories.screen(), factories.screen(context=elsewhere)
    refused = Screen(DRAFT, factories.context().digest, measurements=("m1",), reason="no\0")
    store.save_screens([ngram, refused, there])
    assert store.screens(ngram.context) == {NGRAM: ngram, DRAFT: refused}

    better = factories.screen(tokens_per_decode_step=Estimate(2.5), by_kind={}, draft_coverage=None)
    store.save_screens([better])
    assert store.screens(ngram.context) == {NGRAM: better, DRAFT: refused}
    assert store.screens(elsewhere) == {NGRAM: there}
    assert store.screens("unknown") == {}


def test_no_screens_are_no_mistake(store):
    store.save_screens([])
    assert store.screens(factories.context().digest) == {}


@pytest.mark.parametrize(
    "unsound",
    [
        {"tokens_per_decode_step": Estimate(math.nan)},
        {"by_kind": {"chat": Estimate(1.0, 0.5, math.inf)}},
        {"draft_cost": math.inf},
    ],
)
def test_screen_that_is_not_a_number_is_refused_with_all_others(store, unsound):
    factories.add_study(store)
    with pytest.raises(StorageError, match="screen of ngram"):
        store.save_screens([factories.screen(setting=DRAFT), factories.screen(**unsound)])
    assert store.screens(factories.context().digest) == {}


# Comparisons


def test_comparison_replaces_only_its_own_kind(store):
    factories.add_study(store)
    old = factories.comparison()
    others = [
        factories.comparison(setting=DRAFT),
        factories.comparison(load=Load(concurrency=1)),
        factories.comparison(purpose=Purpose.CONFIRM, low=None, high=None, stopped_because="\0"),
    ]
    store.save_comparisons("chat", [old, *others])
    new = factories.comparison(log_ratio=0.25, pairs=())
    store.save_comparisons("chat", [new])
    assert store.comparisons("chat") == [*others, new]
    assert store.comparisons("chat", Purpose.CONFIRM) == [others[2]]
    assert store.comparisons("code") == []


@pytest.mark.parametrize("name", ["log_ratio", "low", "high", "confidence"])
def test_comparison_that_is_not_a_number_is_refused(store, name):
    factories.add_study(store)
    with pytest.raises(StorageError, match=f"{name} is nan"):
        store.save_comparisons("chat", [factories.comparison(**{name: math.nan})])


# Recommendations


def test_recommendations_come_in_the_order_of_the_studys_loads(store):
    factories.add_study(store)
    alone = factories.recommendation(load=Load(concurrency=1), speculative_config=None)
    busy = factories.recommendation(load=Load(concurrency=4))
    store.save_recommendations("chat", [alone, busy])
    assert store.recommendations("chat") == [busy, alone]


def test_new_recommendations_supersede_all_former_ones(store):
    factories.add_study(store)
    alone = factories.recommendation(load=Load(concurrency=1))
    busy = factories.recommendation(load=Load(concurrency=4))
    store.save_recommendations("chat", [alone, busy])
    better = factories.recommendation(load=Load(concurrency=4), hardware="another")
    store.save_recommendations("chat", [better])
    assert store.recommendations("chat") == [better]
    store.save_recommendations("chat", [])
    assert store.recommendations("chat") == [better]


def test_recommendations_for_a_target_are_current_and_confirmed(store):
    for name in ("chat", "code", "more"):
        factories.add_study(store, name=name)
    former = factories.recommendation(hardware="former")
    chat = factories.recommendation()
    code = factories.recommendation(study="code")
    store.save_recommendations("chat", [former])
    store.save_recommendations("chat", [chat])
    store.save_recommendations("code", [code])
    unconfirmed = factories.recommendation(study="more", confirmed=False)
    elsewhere = factories.recommendation(study="more", target="another", load=Load(concurrency=1))
    store.save_recommendations("more", [unconfirmed, elsewhere])
    assert store.recommendations_for("/models/target") == [chat, code]
    assert store.recommendations_for("another") == [elsewhere]
    assert store.recommendations_for("unknown") == []


def test_recommendation_of_another_study_is_refused(store):
    factories.add_study(store)
    with pytest.raises(StorageError, match="study code"):
        store.save_recommendations("chat", [factories.recommendation(study="code")])


def test_infinite_speedup_is_refused(store):
    factories.add_study(store)
    speedup = factories.recommendation().speedup.model_copy(update={"high": math.inf})
    with pytest.raises(StorageError, match=r"speedup\.high is inf"):
        store.save_recommendations("chat", [factories.recommendation(speedup=speedup)])


# Events


def test_events_oldest_first(store):
    factories.add_study(store)
    before = datetime.now(UTC)
    store.add_event("chat", "started", {"by": "a worker\0"})
    store.add_event("chat", "stopped", {"seconds": 1.5, "warnings": []})
    when = [event[0] for event in store.events("chat")]
    assert [event[1:] for event in store.events("chat")] == [
        ("started", {"by": "a worker\0"}),
        ("stopped", {"seconds": 1.5, "warnings": []}),
    ]
    assert before <= when[0] <= when[1] <= datetime.now(UTC)


def test_events_of_a_kind_over_all_studies(store):
    factories.add_study(store)
    factories.add_study(store, name="other")
    store.add_event("chat", "seen", {"n": 1})
    store.add_event("chat", "else", {"n": 2})
    store.add_event("other", "seen", {"n": 3})
    assert [body for _, body in store.events_of_kind("seen")] == [{"n": 1}, {"n": 3}]
    assert store.events_of_kind("unseen") == []
    assert store.events_of_kind("seen")[0][0] == store.events("chat")[0][0]


def test_event_with_nan_is_refused(store):
    factories.add_study(store)
    with pytest.raises(StorageError, match=r"seconds\[1\] is nan"):
        store.add_event("chat", "odd", {"seconds": [1.0, math.nan]})


# Opening and locking


def test_second_store_sees_what_the_first_wrote(store, tmp_path):
    factories.add_study(store)
    with Store.open(store.url, tmp_path) as second:
        assert second.studies() == store.studies()


def test_study_is_locked_once(store, tmp_path):
    for name in ("chat", "code"):
        factories.add_study(store, name=name)
    with Store.open(store.url, tmp_path) as second, store.study_lock("chat"):
        with pytest.raises(UsageError, match="study chat is being worked on"):
            second.study_lock("chat").__enter__()
        with second.study_lock("code"):
            store.set_stage("chat", Stage.EXPLORE)
    with store.study_lock("chat"):
        pass


def test_lock_is_free_after_an_error(store):
    factories.add_study(store)
    with pytest.raises(TunerError, match="mine"), store.study_lock("chat"):
        raise TunerError("mine")
    with store.study_lock("chat"):
        pass


def test_off_is_a_setting_like_any_other(store):
    start = factories.add_start(store, setting=OFF)
    assert store.engine_starts("chat")[0].setting == OFF == start.setting
