import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.predict.baseline_steps import LoadCost
from tuner.predict.forecast import Forecast, Seen, acceptance_rate, geometric_tokens
from tuner.records import Estimate, Screen, Setting
from tuner.spec import Load

ALONE, FOUR = Load(concurrency=1), Load(concurrency=4)
VERIFY = {ALONE: LoadCost(0.1), FOUR: LoadCost(0.25)}


def draft(k: int, name: str = "small", method: str = "draft_model") -> Setting:
    return Setting.of({"method": method, "model": name, "num_speculative_tokens": k})


def ngram(k: int) -> Setting:
    return Setting.of({"method": "ngram", "num_speculative_tokens": k})


def screen(setting: Setting, tokens: float, *, cost: float | None = 0.2, coverage: float = 1.0):
    estimate = Estimate(tokens, tokens * 0.97, tokens * 1.03)
    return Screen(setting, "context", estimate, None, coverage, draft_cost=cost)


def seen(setting: Setting, tokens: float, ratio: float, load: Load = ALONE) -> Seen:
    return Seen(setting, load, ratio, 0.02, tokens, 1.0, 400)


def test_speedup_is_tokens_per_step_over_step_time() -> None:
    forecast = Forecast({draft(2): screen(draft(2), 2.2)}, VERIFY, [seen(draft(2), 2.2, 1.7)])
    assert forecast.speedup(draft(2), ALONE).value == pytest.approx(2.2 / 1.7, rel=0.02)
    assert forecast.step_time(draft(2), ALONE).value == pytest.approx(1.7, rel=0.02)


def test_the_screen_ranks_two_drafts_of_one_size_before_any_start() -> None:
    screens = {s: screen(s, t) for s, t in ((draft(3, "good"), 2.9), (draft(3, "bad"), 1.4))}
    forecast = Forecast(screens, VERIFY, [])
    good, bad = (forecast.speedup(s, ALONE) for s in screens)
    assert good.mean - bad.mean == pytest.approx(math.log(2.9 / 1.4))
    assert good.value > 1 > bad.value


def test_a_method_that_drafts_seldom_pays_seldom() -> None:
    often, seldom = ngram(8), draft(8, "x", "ngram")
    screens = {often: screen(often, 1.5, cost=0.0), seldom: screen(seldom, 1.5, coverage=0.2)}
    forecast = Forecast(screens, VERIFY, [])
    assert forecast.step_time(seldom, FOUR).value < forecast.step_time(often, FOUR).value


def test_a_step_costs_what_was_drafted_not_what_could_have_been() -> None:
    """Suffix drafts as far as it is sure, mostly far less than its k."""
    suffix, two = draft(8, "x", "suffix"), ngram(2)
    drafting = replace(screen(suffix, 1.7, coverage=0.75), drafted_per_decode_step=2.0)
    forecast = Forecast({suffix: drafting, two: screen(two, 1.7)}, VERIFY, [])
    assert forecast.step_time(suffix, FOUR).mean == forecast.step_time(two, FOUR).mean


HELD_UP = {ALONE: LoadCost(0.1), FOUR: LoadCost(0.25, prefill=0.25)}


def test_other_requests_prefills_are_not_made_faster() -> None:
    """Three quarters of the time are decoding; the rest stays, and a draft reads prompts too."""
    setting = draft(4)
    forecast = Forecast({setting: screen(setting, 4.0, cost=0.2)}, HELD_UP, [])
    step = forecast.step_time(setting, FOUR).value
    expected = 4.0 / (0.75 * step + 0.25 * 4.0 * 1.2)
    assert forecast.speedup(setting, FOUR).value == pytest.approx(expected)
    assert expected < 4.0 / step


def test_a_measured_step_is_freed_of_the_prefills_between_steps() -> None:
    """Two drafts of one size and k take one step; the better one meets more prefills per step."""
    good, bad = draft(4, "good"), draft(4, "bad")
    screens = {good: screen(good, 4.0), bad: screen(bad, 1.5)}
    between = 0.75 * 2.4 + 0.25 * 1.5 * 1.2
    held_up = Forecast(screens, HELD_UP, [seen(bad, 1.5, between, FOUR)])
    alone = Forecast(screens, VERIFY, [seen(bad, 1.5, 2.4, FOUR)])
    for setting in (good, bad):
        step = held_up.step_time(setting, FOUR).value
        assert step == pytest.approx(alone.step_time(setting, FOUR).value, rel=0.01)
    assert held_up.speedup(good, FOUR).value < alone.speedup(good, FOUR).value


@given(st.floats(0.05, 8), st.floats(1, 9), st.floats(0, 0.95), st.none() | st.floats(0, 2))
def test_at_break_even_tokens_nothing_is_gained_or_lost(ratio, tokens, prefill, cost) -> None:
    setting = draft(8)
    costs = {ALONE: LoadCost(0.1, prefill)}
    measured = [seen(setting, tokens, ratio)]
    forecast = Forecast({setting: screen(setting, tokens, cost=cost)}, costs, measured)
    needed = forecast.break_even_tokens(setting, ALONE)
    assert math.isfinite(forecast.speedup(setting, ALONE).mean)
    if needed is None:
        assert forecast.speedup(setting, ALONE).value < 1
        return
    drag = prefill * needed * (1 + (0.1 if cost is None else cost))
    step = forecast.step_time(setting, ALONE).value
    assert (1 - prefill) * step + drag == pytest.approx(needed)


def test_measured_acceptance_corrects_the_screen_at_every_k() -> None:
    screens = {draft(k): screen(draft(k), t) for k, t in ((1, 1.7), (3, 2.6))}
    lower = [seen(draft(1), 1.7 * 0.9, 1.4)]
    corrected = Forecast(screens, VERIFY, lower).tokens_per_decode_step(draft(3))
    assert 2.6 * 0.9 < corrected.value < 2.6 * 0.99


def test_what_cannot_be_replayed_is_guessed_until_a_start_tells() -> None:
    head = [draft(k, "head", "eagle3") for k in (1, 4)]
    screens = {s: Screen(s, "context", reason="eagle3 can't be replayed") for s in head}
    guess = Forecast(screens, VERIFY, []).tokens_per_decode_step(head[1])
    assert guess.sd > 0.2
    taught = Forecast(screens, VERIFY, [seen(head[0], 1.8, 1.2)]).tokens_per_decode_step(head[1])
    assert taught.value == pytest.approx(geometric_tokens(0.8, 4))
    assert taught.sd < guess.sd


@given(st.floats(0, 1), st.integers(1, 16))
def test_acceptance_rate_turns_back_into_tokens(chance, k) -> None:
    assert geometric_tokens(acceptance_rate(geometric_tokens(chance, k), k), k) == pytest.approx(
        geometric_tokens(chance, k)
    )


def test_acceptance_rate_stays_a_chance() -> None:
    assert acceptance_rate(0.7, 3) == 0.0
    assert acceptance_rate(9.0, 3) == 1.0
