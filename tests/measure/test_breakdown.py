from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.measure.answers import answered, cut_off, speculated
from tuner.measure.breakdown import Slice, breakdown
from tuner.records import Estimate, RequestSample


def interval(log_ratios: Sequence[float]) -> Estimate:
    return Estimate(fmean(log_ratios), min(log_ratios), max(log_ratios))


def found(*pairs: tuple[list[RequestSample], list[RequestSample]]) -> dict[str, Slice]:
    return {one.name: one for one in breakdown(pairs, interval)}


def answer(prompt_id: str, step_ms: float, kind: str = "chat", tokens: int = 9) -> RequestSample:
    return answered([1] * 5, step_ms=step_ms, prompt_id=prompt_id, kind=kind, prompt_tokens=tokens)


def test_each_kind_has_its_own_speed_up() -> None:
    """Twice as fast on code, slower on chat: the mean of both would say neither."""
    baseline = [answer("a", 20.0, "chat"), answer("b", 20.0, "code"), answer("c", 30.0, "code")]
    candidate = [answer("a", 25.0, "chat"), answer("b", 10.0, "code"), answer("c", 15.0, "code")]

    slices = found((baseline, candidate))

    assert list(slices) == ["chat", "code", "<=64"]
    assert slices["chat"].log_ratio is not None
    assert slices["chat"].log_ratio.value == pytest.approx(math.log(20 / 25))
    assert slices["code"].log_ratio is not None
    assert slices["code"].log_ratio.value == pytest.approx(math.log(2))
    assert slices["code"].requests == 2
    assert slices["code"].baseline_tpot_ms_p50 == pytest.approx(25.0)
    assert slices["code"].candidate_tpot_ms_p50 == pytest.approx(12.5)


def test_the_same_acceptance_pays_less_at_long_prompts() -> None:
    """1.45 times at short and 1.04 times at long context."""
    lengths = {
        "short": (64, 1.45),
        "longer": (65, 1.3),
        "long": (4096, 1.1),
        "longest": (5000, 1.0),
    }
    baseline = [answer(name, 20.0, tokens=tokens) for name, (tokens, _) in lengths.items()]
    candidate = [
        answer(name, 20.0 / gain, tokens=tokens) for name, (tokens, gain) in lengths.items()
    ]

    slices = found((baseline, candidate))

    gains = {
        name: math.exp(one.log_ratio.value)
        for name, one in slices.items()
        if one.by == "prompt_tokens" and one.log_ratio is not None
    }
    assert gains == pytest.approx({"<=64": 1.45, "<=256": 1.3, "<=4096": 1.1, ">4096": 1.0})
    assert list(gains) == ["<=64", "<=256", "<=4096", ">4096"]


def test_the_interval_is_over_pairs_not_over_requests() -> None:
    """One number a pair: the mean over the prompts that the slice has there."""
    pairs = [
        ([answer("a", 20.0), answer("b", 20.0)], [answer("a", 10.0), answer("b", 20.0)]),
        ([answer("c", 20.0)], [answer("c", 5.0)]),
    ]

    log_ratio = found(*pairs)["chat"].log_ratio

    assert log_ratio is not None
    assert log_ratio.low == pytest.approx(math.log(2) / 2)
    assert log_ratio.high == pytest.approx(math.log(4))


def test_a_pair_without_the_slice_says_nothing_of_it() -> None:
    pairs = [
        ([answer("a", 20.0, "code")], [answer("a", 10.0, "code")]),
        ([answer("b", 20.0, "chat")], [answer("b", 40.0, "chat")]),
    ]

    estimates = {name: one.log_ratio for name, one in found(*pairs).items()}

    values = {name: estimate.value for name, estimate in estimates.items() if estimate}
    assert values == pytest.approx({"code": math.log(2), "chat": -math.log(2), "<=64": 0.0})


def test_the_same_prompt_is_compared_with_itself_whatever_the_order() -> None:
    baseline = [answer("a", 10.0), answer("b", 40.0), answer("a", 20.0)]
    candidate = [answer("b", 40.0), answer("a", 10.0), answer("a", 20.0)]

    log_ratio = found((baseline, candidate))["chat"].log_ratio
    fewer = found((baseline, [answer("a", 10.0)]))["chat"].log_ratio

    assert log_ratio == fewer == Estimate(0.0, 0.0, 0.0)


def test_only_what_both_arms_counted_and_answered() -> None:
    failed = RequestSample("b", "chat", 0.0, error="500: no")
    padding = answered([1] * 5, prompt_id="c", counted=False)
    baseline = [answer("a", 20.0), answer("b", 20.0), padding, cut_off([1], prompt_id="d")]
    candidate = [answer("a", 10.0), failed, padding, answer("e", 10.0)]

    assert found((baseline, candidate))["chat"].requests == 1


def test_acceptance_is_the_slices_own() -> None:
    code = speculated([2, 2], prompt_id="a", kind="code")
    chat = speculated([0, None, 0, None], prompt_id="b", kind="chat")
    baseline = [answer("a", 20.0, "code"), answer("b", 20.0, "chat")]

    slices = found((baseline, [code, chat]))

    lengths = {name: one.acceptance_length for name, one in slices.items() if one.by == "kind"}
    per_step = {name: one.tokens_per_decode_step for name, one in slices.items()}
    assert lengths == {"chat": Estimate(1.0), "code": Estimate(3.0)}
    assert (per_step["chat"], per_step["code"]) == (Estimate(1.0), Estimate(3.0))


def test_what_cannot_be_told_is_none() -> None:
    one_token = answered([1], prompt_id="a", prompt_tokens=None)

    (only,) = breakdown([([one_token], [one_token])], interval)

    assert only == Slice("kind", "chat", 1, None, None, None, None, None)
    assert breakdown([], interval) == ()


@given(
    st.lists(st.tuples(st.floats(1, 1e3), st.floats(1, 1e3), st.integers(1, 9000)), max_size=9),
)
def test_every_answer_is_in_one_slice_of_each_sort(
    answers: list[tuple[float, float, int]],
) -> None:
    baseline = [answer(str(n), slow, tokens=t) for n, (slow, _, t) in enumerate(answers)]
    candidate = [answer(str(n), fast, tokens=t) for n, (_, fast, t) in enumerate(answers)]

    slices = breakdown([(baseline, candidate)], interval)

    for by in ("kind", "prompt_tokens"):
        assert sum(one.requests for one in slices if one.by == by) == len(answers)
