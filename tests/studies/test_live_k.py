"""One engine start stands for several k, over the fake server."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from studies.bench import Bench
from studies.events import EngineStarting, LiveKCompared
from studies.ledger import missing_pairs
from studies.live_k import TRUST, Trust, check_live_k, groups, measure_live, trusted
from tests.factories import engine_start
from tuner.engine.live_k import live_setting
from tuner.errors import FailureKind, UsageError
from tuner.measure import agreement
from tuner.measure.agreement import Agreement
from tuner.records import OFF, Estimate, Purpose, Setting, StartedFacts

KS = (1, 4)
DRAFT = {"method": "draft_model", "model": "owner/draft"}
CANDIDATE = {**DRAFT, "k": list(KS)}
STEADY = {"step_ms": 8, "step_ms_per_k": 6, "acceptance": {"draft": 0.6}}


def settings_of(config, *ks):
    return tuple(Setting.of({**config, "num_speculative_tokens": k}) for k in ks)


SETTINGS = settings_of(DRAFT, *KS)


@pytest.fixture
def make_run(make_run):
    """A study of one draft whose k can be changed live."""

    def make(script=None, **changes):
        given = {"candidates": [CANDIDATE], "workload": {"output_tokens": 16, "requests": 2}}
        return make_run(STEADY | (script or {}), **(given | changes))

    return make


def measured(run, pairs=2):
    """Measures that many pairs of each setting at each load."""

    def missing():
        return [
            (setting, load, number)
            for number in range(pairs)
            for setting in SETTINGS
            for load in run.spec.loads
            if number in missing_pairs(run.ledger.pairs(setting, load, Purpose.LIVE_K), pairs)
        ]

    with Bench(run, Purpose.EXPLORE) as bench:
        return measure_live(run, bench, SETTINGS, missing)


def started(events):
    return [e.setting for e in events if isinstance(e, EngineStarting)]


class TestGroups:
    def test_settings_that_differ_in_k_alone_by_k(self):
        other = settings_of({**DRAFT, "model": "owner/other"}, 3, 2)
        ngram = settings_of({"method": "ngram", "prompt_lookup_max": 4}, 2, 8)
        found = groups([OFF, *other, *SETTINGS, *ngram])
        assert found == [other[::-1], SETTINGS, ngram]

    @pytest.mark.parametrize(
        "settings",
        [
            (),
            (OFF,),
            SETTINGS[:1],
            settings_of({"method": "suffix"}, 2, 4),
            settings_of({"method": "medusa", "model": "m"}, 2, 4),
            settings_of({**DRAFT, "parallel_drafting": True}, 2, 4),
            settings_of({**DRAFT, "num_speculative_tokens_per_batch_size": [[1, 8, 2]]}, 2, 4),
            (*settings_of({"method": "ngram"}, 2), *settings_of(DRAFT, 4)),
        ],
    )
    def test_what_no_live_engine_can_stand_for(self, settings):
        assert groups(settings) == []


class TestMeasuring:
    def test_one_start_measures_every_k_in_pairs(self, make_run, events):
        """A step takes 14 ms at k=1 and 32 at k=4; the requests in it take 0.2 more."""
        run = make_run({"acceptance": {"draft": 0.0}})
        assert measured(run) is None
        live = live_setting(SETTINGS)
        assert started(events) == [live, OFF]
        [start, _] = run.store.engine_starts("fake")
        assert (start.setting, start.purpose) == (live, Purpose.LIVE_K)
        assert {m.purpose for m in run.store.measurements()} == {Purpose.LIVE_K}
        for setting in SETTINGS:
            [first, second] = run.ledger.pairs(setting, run.spec.loads[0], Purpose.LIVE_K)
            assert (first.candidate.order, second.candidate.order) == (1, 0)
            for pair in (first, second):
                counters, figures = pair.candidate.counters, pair.candidate.figures
                assert pair.candidate.engine_start == start.id
                assert counters.draft_tokens == setting.k * counters.drafts > 0
                assert len(counters.accepted_at_position) == setting.k
                assert len(figures.acceptance_at_position) == setting.k
                assert figures.tpot_ms_p50 == pytest.approx(8.2 + 6 * setting.k, rel=0.35)
                assert pair.candidate.plan_sha256 == pair.baseline.plan_sha256
        assert measured(run) is None
        assert started(events) == [live, OFF], "what is there starts nothing"

    def test_a_live_engine_that_fails_says_why_and_leaves_no_half_pair(self, make_run):
        fault = {"method": "draft_model", "kind": "die_under_load", "after_requests": 9}
        run = make_run({"faults": [fault]})
        failure = measured(run, pairs=9)
        assert failure.kind is FailureKind.DIED
        rows = run.store.measurements(purpose=Purpose.LIVE_K)
        assert len([m for m in rows if m.setting.is_off]) == len(rows) / 2 > 0
        failed = [s.setting for s in run.store.engine_starts("fake") if s.failure]
        assert failed == [live_setting(SETTINGS)]

    def test_where_starts_alternate_it_is_refused_before_anything_starts(self, make_run, events):
        engine = make_run().spec.engine.model_dump() | {"side_by_side": False}
        run = make_run(engine=engine)
        with pytest.raises(UsageError, match="side_by_side"):
            measured(run)
        with pytest.raises(UsageError, match="side_by_side"):
            check_live_k(run, SETTINGS)
        assert started(events) == []


@pytest.fixture
def noise_allowed(monkeypatch):
    """The fake keeps its time as well as a busy machine lets it."""
    monkeypatch.setattr(agreement, "TOLERANCE", 0.5)


@pytest.mark.usefixtures("noise_allowed")
class TestCheck:
    def test_trust_is_earned_where_both_ends_agree_with_plain_engines(self, make_run, events):
        run = make_run()
        [found] = check_live_k(run, run.ledger.settings)
        assert found.trusted, found
        assert (found.reason, found.method, found.runner) == ("", "draft_model", "V1")
        assert (found.device, found.version, found.graph_mode) == ("cpu", "0.32.0", "none")
        assert [at.k for at in found.at] == list(KS)
        assert all(len(at.step_times) >= 5 for at in found.at)
        assert started(events) == [live_setting(SETTINGS), *SETTINGS]
        assert found.engine_starts == tuple(s.id for s in run.store.engine_starts("fake"))
        assert trusted(run, "draft_model") is True
        assert trusted(run, "ngram") is None
        assert run.store.measurements() == []
        told = [len(e.found.step_times) for e in events if isinstance(e, LiveKCompared)]
        assert told == [n + 1 for at in found.at for n in range(len(at.step_times))]

    def test_an_engine_that_always_pays_for_its_largest_k_is_not_trusted(self, make_run):
        run = make_run({"pays_for_largest_k": True})
        [found] = check_live_k(run, run.ledger.settings)
        assert not found.trusted
        assert found.reason == "step times at k=1 differ or are too noisy to tell"
        assert [at.agrees for at in found.at] == [False, True]
        assert trusted(run, "draft_model") is False

    def test_an_engine_that_fails_is_not_trusted(self, make_run, events):
        """Of two drafts, the one with the wider range of k stands for both."""
        fault = {"method": "draft_model", "k": 4, "kind": "out_of_memory"}
        narrow = {**DRAFT, "model": "owner/other", "k": [2, 3]}
        run = make_run({"faults": [fault]}, candidates=[narrow, CANDIDATE])
        [found] = check_live_k(run, run.ledger.settings)
        assert not found.trusted
        assert "out of memory" in found.reason
        assert found.at == ()
        assert started(events) == [live_setting(SETTINGS)]

    def test_a_study_without_two_k_has_nothing_to_check(self, make_run, events):
        run = make_run(candidates=[{**DRAFT, "k": 3}])
        assert check_live_k(run, run.ledger.settings) == []
        assert started(events) == []


FACTS = StartedFacts("0.32.0", "V1", graph_mode="none")
AT = tuple(Agreement(k, ((20.0, 20.0),), Estimate(0.0), None, None) for k in KS)
EARNED = Trust("draft_model", "V1", "cpu", "0.32.0", "none", True, "", AT, ())


class TestTrusted:
    """Whether what an earlier check came to holds for a study whose engines run like FACTS."""

    @pytest.fixture
    def run(self, make_run):
        run = make_run()
        add_start(run, OFF, FACTS)
        return run

    def test_it_is_none_where_nothing_was_checked(self, run):
        assert trusted(run, "draft_model") is None

    def test_it_is_none_before_it_is_known_how_engines_run(self, make_run):
        run = make_run()
        run.store.add_event("fake", TRUST, EARNED.body())
        assert trusted(run, "draft_model") is None

    def test_another_studys_check_holds_too(self, run, make_run):
        other = make_run(name="other")
        other.store.add_event("other", TRUST, EARNED.body())
        assert trusted(run, "draft_model") is True

    def test_the_last_check_counts(self, run):
        for value in (True, False):
            body = replace(EARNED, trusted=value).body()
            run.store.add_event("fake", TRUST, body)
            assert trusted(run, "draft_model") is value

    @pytest.mark.parametrize(
        "changes",
        [
            {"method": "ngram"},
            {"runner": "V2"},
            {"device": "NVIDIA H200"},
            {"version": "0.33.0"},
            {"graph_mode": "piecewise"},
        ],
    )
    def test_engines_that_run_otherwise_have_to_earn_it_themselves(self, run, changes):
        run.store.add_event("fake", TRUST, replace(EARNED, **changes).body())
        assert trusted(run, "draft_model") is None

    @pytest.mark.parametrize(("ks", "covered"), [([1, 2, 4], True), ([2, 3], True), ([1, 5], None)])
    def test_it_holds_between_the_k_that_were_checked(self, make_run, ks, covered):
        run = make_run(candidates=[{**DRAFT, "k": ks}])
        add_start(run, OFF, FACTS)
        run.store.add_event("fake", TRUST, EARNED.body())
        assert trusted(run, "draft_model") is covered

    def test_the_methods_own_plain_start_tells_how_its_engines_run(self, run):
        """Not the live engine's, which may run otherwise than what it is to stand for."""
        run.store.add_event("fake", TRUST, EARNED.body())
        add_start(run, live_setting(SETTINGS), replace(FACTS, graph_mode="piecewise"))
        assert trusted(run, "draft_model") is True
        add_start(run, SETTINGS[0], replace(FACTS, runner="V2"))
        add_start(run, OFF, FACTS)
        assert trusted(run, "draft_model") is None


def add_start(run, setting, facts):
    start = engine_start(study="fake", context=run.ledger.context, setting=setting, facts=facts)
    run.store.add_engine_start(replace(start, started_at=datetime.now(UTC)))
