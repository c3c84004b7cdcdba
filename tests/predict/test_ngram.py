"""ngram against its definition, written out the slow way; vLLM's own: tests/engine."""

from __future__ import annotations

import time
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.predict.ngram import Ngram, lookup_range
from tuner.predict.replay import Step


def slow_draft(
    text: list[int], runner: str, least: int, most: int, k: int, *, context: int | None
) -> list[int]:
    """The longest piece at the end that stands in the text before, and what followed it there."""
    found: list[int] = []
    for length in range(most, least - 1, -1):
        piece = text[len(text) - length :] if length <= len(text) else None
        starts = [s for s in range(len(text) - length) if text[s : s + length] == piece]
        if starts:
            start = min(starts) if runner == "V1" else max(starts)
            found = text[start + length :][:k]
            break
    if runner == "V2":
        return found + [text[-1]] * (k - len(found))
    return found if context is None else found[: max(context - len(text), 0)]


small_texts = st.lists(st.integers(0, 2), min_size=1, max_size=30)
ranges = st.tuples(st.integers(1, 5), st.integers(0, 3)).map(lambda r: (r[0], r[0] + r[1]))


@given(
    small_texts,
    small_texts,
    st.sampled_from(["V1", "V2"]),
    st.lists(st.tuples(ranges, st.integers(1, 6)), min_size=1, max_size=3),
    st.none() | st.integers(1, 60),
)
def test_what_is_drafted_at_each_place(prompt, answer, runner, settings, context):
    ngram = Ngram(prompt, answer, runner, context)
    text = prompt + answer
    for (least, most), k in settings:
        for known in range(len(prompt), len(text) + 1):
            found = list(ngram.draft(known, least, most, k))
            assert found == slow_draft(text[:known], runner, least, most, k, context=context)


def test_runner_v1_takes_the_earliest_match_and_v2_the_latest():
    prompt, answer = [1, 2, 7, 1, 2, 8, 1, 2], [9]
    assert Ngram(prompt, answer, "V1").draft(8, 2, 2, 1) == (7,)
    assert Ngram(prompt, answer, "V2").draft(8, 2, 2, 1) == (8,)


def test_without_a_match_v1_drafts_nothing_and_v2_the_last_token_again():
    assert Ngram([1, 2, 3], [4], "V1").steps(1, 3, 2) == []
    assert Ngram([1, 2, 3], [4, 5], "V1").steps(1, 3, 2) == [Step(0, 0)]
    assert Ngram([1, 2, 3], [4, 4, 5], "V2").steps(1, 3, 2) == [Step(2, 1)]


def test_an_answer_that_repeats_its_prompt_is_met_k_tokens_at_a_time():
    prompt = list(range(20))
    answer = list(range(20))
    # The prefill gives 0, which stands at the prompt's beginning.
    assert Ngram(prompt, answer, "V1").steps(1, 4, 4)[:3] == [Step(4, 4)] * 3


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, (5, 5)),
        ({"prompt_lookup_max": 4}, (4, 4)),
        ({"prompt_lookup_min": 2}, (2, 2)),
        ({"prompt_lookup_min": 2, "prompt_lookup_max": 6}, (2, 6)),
    ],
)
def test_bounds_are_completed_as_vllm_does(config, expected):
    assert lookup_range(config) == expected


def test_many_settings_over_thousands_of_tokens_take_seconds():
    random = Random(3)
    texts = [[random.randrange(50) for _ in range(400)] for _ in range(40)]
    began = time.process_time()
    for text in texts:
        ngram = Ngram(text[:250], text[250:], "V1")
        for least in (1, 2, 3):
            for k in (1, 2, 3, 4, 6, 8):
                ngram.steps(least, 5, k)
    assert time.process_time() - began < 10  # 108,000 tokens replayed
