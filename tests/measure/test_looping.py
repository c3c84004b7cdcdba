from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.measure.looping import LONGEST_PERIOD, TIMES, looping_share, looping_tokens
from tuner.records import RequestSample

TOKENS = st.lists(st.integers(0, 9), max_size=40)


def answer(*token_ids: int, text: str = "", finish_reason: str = "length") -> RequestSample:
    return RequestSample(
        "p", "chat", 0.0, text=text, token_ids=token_ids, finish_reason=finish_reason
    )


@pytest.mark.parametrize(
    ("tokens", "looping"),
    [
        ("", 0),
        ("abc", 0),
        ("abcabc", 0),
        ("some text before: abcabc", 0),
        ("abcabcabc", 6),
        ("some text before: abcabcabc", 6),
        ("abcabcabcab", 8),
        ("abcabcabcX", 0),
        ("aaaa", 3),
        ("xabababab", 6),
    ],
)
def test_what_repeats_until_the_end(tokens: str, looping: int) -> None:
    assert looping_tokens(tokens) == looping


@given(
    TOKENS,
    st.lists(st.integers(10, 99), min_size=1, max_size=LONGEST_PERIOD),
    st.integers(TIMES, 6),
    st.data(),
)
def test_a_loop_is_found_whatever_stands_before_it(
    before: list[int], piece: list[int], times: int, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(piece) - 1))
    loop = [*(piece * times), *piece[:cut]]

    assert len(loop) - len(piece) <= looping_tokens(before + loop) < len(loop)


@given(st.lists(st.integers(), unique=True, max_size=200))
def test_text_that_never_repeats_does_not_loop(tokens: list[int]) -> None:
    assert looping_tokens(tokens) == 0


@given(TOKENS, TOKENS)
def test_only_the_end_matters(tokens: list[int], before: list[int]) -> None:
    assert 0 <= looping_tokens(tokens) <= looping_tokens(before + tokens)


def test_a_piece_longer_than_the_longest_period_is_text() -> None:
    piece = list(range(LONGEST_PERIOD + 1))

    assert looping_tokens(piece * 4) == 0
    assert looping_tokens(piece[:-1] * 4) == 3 * LONGEST_PERIOD


def test_the_share_is_of_all_answers_tokens() -> None:
    assert looping_share([answer(1, 2, 1, 2, 1, 2), answer(*range(10))]) == 4 / 16


def test_the_end_of_sequence_token_does_not_hide_a_loop() -> None:
    assert looping_share([answer(7, 7, 7, 7, 0, finish_reason="stop")]) == 3 / 4
    assert looping_share([answer(7, 7, 7, 7, 0)]) == 0


def test_words_where_no_ids_are_known() -> None:
    assert looping_share([answer(text="it is it is it is")]) == 4 / 6


def test_nothing_said_is_unknown() -> None:
    assert looping_share([]) is None
    assert looping_share([answer()]) is None
