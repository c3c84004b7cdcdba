from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.engine.fake_text import (
    BENIGN_GAP,
    BEST_LOGPROB,
    CORRUPT_GAP,
    FOREIGN_LOGPROB,
    OWN,
    VOCABULARY,
    FakeText,
    decode,
    encode,
)

IDS = st.lists(st.integers(0, VOCABULARY - 1), max_size=20)
PROMPT = encode("user: Name three colours of the rainbow, one per line.")


def _shares(text: FakeText, prompt: list[int], answer: list[int]) -> tuple[float, float]:
    """Of an answer's tokens, those that are the runner-up and those that are worse."""
    gaps = [best - logprob for logprob, best in text.score([*prompt, *answer])[len(prompt) :]]
    benign = sum(gap == pytest.approx(BENIGN_GAP) for gap in gaps)
    worse = sum(gap == pytest.approx(CORRUPT_GAP) for gap in gaps)
    return benign / len(gaps), worse / len(gaps)


@given(ids=st.lists(st.integers(0, OWN - 1)))
def test_its_own_words_survive_a_round_trip(ids: list[int]) -> None:
    assert encode(decode(ids)) == ids


@given(text=st.text())
def test_any_text_has_one_id_a_word(text: str) -> None:
    ids = encode(text)
    assert len(ids) == len(text.split())
    assert all(0 <= token < VOCABULARY for token in ids)


def test_prompts_that_end_alike_are_answered_differently() -> None:
    text = FakeText()
    answers = [
        tuple(text.generate(encode(f"{start} in one paragraph."), 8))
        for start in ("Describe rain", "Describe snow", "Explain snow")
    ]
    assert len(set(answers)) == 3


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_text_goes_through_all_pairs_of_words_before_it_repeats_itself(seed: int) -> None:
    period = OWN**2 - 1
    tokens = FakeText(seed).generate(PROMPT, period + 2)
    pairs = set(pairwise(tokens[:-1]))
    assert len(pairs) == period
    assert tokens[-2:] == tokens[:2]


@given(seed=st.integers(0, 100), token=st.integers(0, OWN - 1))
def test_no_word_is_said_for_ever(seed: int, token: int) -> None:
    assert FakeText(seed).next(token, token) != token


@given(ids=IDS, answer=st.integers(0, 8), seed=st.integers(0, 5))
def test_the_targets_own_answer_is_the_likeliest_after_any_prompt(
    ids: list[int], answer: int, seed: int
) -> None:
    text = FakeText(seed)
    whole = ids + text.generate(ids, answer)
    assert all(score == (BEST_LOGPROB, BEST_LOGPROB) for score in text.score(whole)[len(ids) :])


@given(ids=IDS, cut=st.integers(0, 20))
def test_a_score_follows_from_the_two_tokens_before(ids: list[int], cut: int) -> None:
    text = FakeText()
    assert text.score(ids)[cut + 2 :] == text.score(ids[cut:])[2:]


def test_another_seed_is_another_target() -> None:
    assert FakeText(0).generate(PROMPT, 8) != FakeText(1).generate(PROMPT, 8)


def test_divergence_and_corruption_come_out_as_asked() -> None:
    text = FakeText()
    answer = text.generate(PROMPT, 20_000, divergence=0.2, corruption=0.03)
    benign, worse = _shares(text, PROMPT, answer)
    assert benign == pytest.approx(0.97 * 0.2, abs=0.015)
    assert worse == pytest.approx(0.03, abs=0.006)


def test_draws_follow_from_seed_prompt_and_salt() -> None:
    def places(seed: int = 0, prompt: list[int] = PROMPT, salt: str = "off") -> list[bool]:
        text = FakeText(seed)
        answer = text.generate(prompt, 100, divergence=0.5, salt=salt)
        return [score[0] == score[1] for score in text.score(prompt + answer)[len(prompt) :]]

    first = places()
    assert places() == first
    for other in (places(seed=1), places(prompt=[*PROMPT, 1]), places(salt="speculating")):
        assert other != first


def test_ordinary_text_is_likelier_than_its_own_words_in_any_order() -> None:
    text = FakeText()
    assert {logprob for logprob, _ in text.score(PROMPT)} == {FOREIGN_LOGPROB}
    shuffled = [logprob for logprob, _ in text.score([(7 * i * i) % OWN for i in range(500)])]
    assert sum(shuffled) / 500 < -10
