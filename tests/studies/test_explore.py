"""Exploring over the fake: what is started, what is not, and what the answer says of loads."""

import json
from collections import Counter
from dataclasses import replace

import pytest

from studies.events import EngineStarting, Explored, Screened
from studies.live_k import TRUST
from studies.loop import optimize
from studies.screening import screened
from tests.studies.optuna_studies import loaded
from tuner.errors import NotFoundError
from tuner.predict.forecast import geometric_tokens
from tuner.records import OFF, Estimate, Purpose, Screen, Setting, Stage


def started(events: list) -> list[str]:
    return [e.setting.method for e in events if isinstance(e, EngineStarting)]


def test_until_screen_starts_the_baseline_alone_and_predicts_every_setting(
    fake_study, opened, settings, events
):
    spec = fake_study(
        candidates=[{"method": "ngram", "k": [2, 4]}, {"method": "eagle3", "model": "o/h", "k": 3}]
    )
    opened.save_study(spec)
    with pytest.raises(NotFoundError, match="--until screen"):
        screened(opened, opened.study("fake"), settings)
    assert optimize(spec, opened, settings, events.append, until=Stage.SCREEN) == []
    assert started(events) == ["off"]
    assert opened.study("fake").stage is Stage.SCREEN
    assert len([e for e in events if isinstance(e, Screened)]) == 3
    ngram, _, head = screened(opened, opened.study("fake"), settings)
    assert ngram.screen.tokens_per_decode_step.value >= 1
    assert ngram.predicted[0].break_even_tokens_per_step > 1
    assert ngram.predicted[0].low < ngram.predicted[0].speedup < ngram.predicted[0].high
    assert "eagle3" in head.screen.reason
    assert head.predicted == ()
    json.dumps([row.body() for row in (ngram, head)], allow_nan=False)

    events.clear()
    [answer] = optimize(spec, opened, settings, events.append)
    assert answer.confirmed
    baselines = opened.measurements(study="fake", setting=OFF, purpose=Purpose.BASELINE)
    assert len(baselines) == 1, "the baseline of the first sitting is used again"


def test_no_start_is_spent_where_nothing_could_still_win(fake_study, opened, settings, events):
    """Eight settings of a hopeless lookup, one start: to have the numbers that off wins by."""
    spec = fake_study(
        {"acceptance": {"ngram": 0.05}, "step_ms_per_k": 3.0},
        candidates=[{"method": "ngram", "k": [1, 2, 3, 4, 5, 6, 7, 8]}],
    )
    [answer] = optimize(spec, opened, settings, events.append)
    assert answer.speculative_config is None
    assert answer.considered[0].speedup.high < 1
    assert started(events)[:2] == ["off", "ngram"]
    assert started(events[2:]).count("ngram") <= 3, "explored once or twice, then confirmed"


def test_what_may_be_the_best_is_measured_in_more_pairs_than_what_is_not(
    fake_study, opened, settings
):
    """suffix is twice as fast as nothing and ngram much slower."""
    spec = fake_study({"step_ms_per_k": 1.0}, search="each_method")
    optimize(spec, opened, settings, lambda _: None)
    rounds = opened.measurements(study="fake", purpose=Purpose.EXPLORE)
    pairs = Counter(m.setting.method for m in rounds)
    assert pairs == {"suffix": 4, "ngram": 2, "off": 6}


@pytest.mark.parametrize("search", ["tpe", "random", "screen_best", "each_method"])
def test_other_searches_come_to_an_answer_too(fake_study, opened, settings, events, search):
    spec = fake_study(search=search, budget={"engine_starts": 3})
    [answer] = optimize(spec, opened, settings, events.append)
    assert Setting.of(answer.speculative_config).method == "suffix"
    explored = [e for e in events if isinstance(e, EngineStarting) and e.purpose == "explore"]
    assert sorted(e.setting.method for e in explored) == ["ngram", "off", "suffix"]
    assert len(loaded(settings.storage_url).trials) == 3


def test_a_draft_that_pays_alone_and_not_in_company_gets_its_break_even_load(
    fake_study, opened, settings
):
    spec = fake_study(
        {"acceptance": {"suffix": 0.8}, "step_ms": 10, "step_ms_per_draft_token": 1.5},
        candidates=[{"method": "suffix", "k": 4}],
        loads=[{"concurrency": 1}, {"concurrency": 8}],
    )
    alone, eight = optimize(spec, opened, settings, lambda _: None)
    assert alone.speculative_config is not None
    assert eight.speculative_config is None
    for answer in (alone, eight):
        assert answer.break_even is not None
        assert answer.break_even.on_at == "concurrency=1"
        assert answer.break_even.off_at == "concurrency=8"
        assert 1 < answer.break_even.concurrency < 8
        assert answer.break_even.requests_per_s > 0


def test_where_it_pays_at_every_load_there_is_no_break_even(fake_study, opened, settings):
    answers = optimize(
        fake_study(loads=[{"concurrency": 1}, {"concurrency": 4}]),
        opened,
        settings,
        lambda _: None,
    )
    assert [answer.break_even for answer in answers] == [None, None]


@pytest.mark.parametrize("step_ms_per_k", [0.2, 1.8])
def test_where_live_k_is_trusted_one_start_measures_k_after_k(
    fake_study, opened, settings, events, step_ms_per_k
):
    """Where a token costs little, the largest is measured and k=2 is not worth a round; where it
    costs more than was thought, a smaller one is. What is confirmed is started plainly."""
    spec = fake_study(
        {"acceptance": {"ngram": 0.8}, "step_ms_per_k": step_ms_per_k},
        candidates=[{"method": "ngram", "k": [2, 4, 6]}],
        search="predicted",
    )
    optimize(spec, opened, settings, events.append, until=Stage.SCREEN)
    [baseline] = opened.engine_starts("fake")
    like = {"runner": baseline.facts.runner, "version": baseline.facts.version}
    like |= {"graph_mode": baseline.facts.graph_mode, "device": "cpu", "method": "ngram"}
    opened.add_event("fake", TRUST, like | {"trusted": True, "at": [{"k": 2}, {"k": 6}]})
    screens = opened.screens(opened.study("fake").context)
    opened.save_screens([as_good_as_scripted(screen) for screen in screens.values()])

    events.clear()
    [answer] = optimize(spec, opened, settings, events.append)
    starts = [e for e in events if isinstance(e, EngineStarting) and not e.setting.is_off]
    live, *plain = starts  # a runner-up may be started beside the finalist
    assert live.purpose == Purpose.LIVE_K
    assert live.setting.is_schedule
    assert {each.purpose for each in plain} == {Purpose.CONFIRM}
    assert not any(each.setting.is_schedule for each in plain)
    explored = {e.setting.k for e in events if isinstance(e, Explored)}
    if step_ms_per_k < 1:
        assert 6 in explored
        assert 2 not in explored
        assert answer.speculative_config in [each.setting.speculative_config for each in plain]
    else:
        assert explored & {2, 4}
    assert len(loaded(settings.storage_url).trials) == 1 + len(explored)
    assert [c.setting for c in opened.comparisons("fake")] == [each.setting for each in plain]


def as_good_as_scripted(screen: Screen) -> Screen:
    """The fake accepts by script whatever its text: so would the replay of a text that repeats."""
    tokens = geometric_tokens(0.8, screen.setting.k)
    estimate = Estimate(tokens, 0.98 * tokens, 1.02 * tokens)
    return replace(
        screen,
        tokens_per_decode_step=estimate,
        draft_coverage=1.0,
        drafted_per_decode_step=float(screen.setting.k),
    )
