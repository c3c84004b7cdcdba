"""Steps counted by hand, and against a draft that is decoded token by token."""

from hypothesis import given
from hypothesis import strategies as st

from tuner.predict.replay import Step, met, replay, replay_draft_model, uncut


def agreements(text: str) -> list[bool]:
    return [mark == "1" for mark in text]


def test_a_draft_that_is_never_right_gives_one_token_a_step_after_the_prefills_own():
    assert replay_draft_model(agreements("00000"), 3) == [Step(3, 0)] * 4


def test_a_draft_that_is_always_right_gives_k_and_one_more():
    assert replay_draft_model(agreements("1" * 9), 3) == [Step(3, 3), Step(3, 3)]


def test_the_draft_goes_on_after_the_token_that_replaced_its_wrong_one():
    # Place 0 is the prefill's. Drafts of 2 at 1: right, wrong; the engine gives place 2 itself.
    # At 3: right, right, and place 5 besides. At 6: wrong.
    assert replay_draft_model(agreements("0101100"), 2) == [Step(2, 1), Step(2, 2), Step(2, 0)]


def test_the_answers_end_cuts_the_last_step():
    steps = replay_draft_model(agreements("1" * 6), 3)
    assert steps == [Step(3, 3), Step(3, 1)]  # place 5 alone is left
    assert list(uncut(steps)) == [Step(3, 3)]


def test_an_answer_of_the_prefills_token_alone_has_no_steps():
    assert replay_draft_model(agreements("1"), 3) == []
    assert replay_draft_model([], 3) == []
    assert list(uncut([])) == []


def test_places_asked_for_are_those_where_a_step_begins():
    asked = []

    def propose(at: int) -> tuple[int, int]:
        asked.append(at)
        return (2, 1) if at < 5 else (0, 0)

    steps = replay(8, propose)
    assert asked == [1, 3, 5, 6, 7]
    assert steps == [Step(2, 1)] * 2 + [Step(0, 0)] * 3


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 9))
def test_every_step_is_what_a_draft_decoded_token_by_token_would_give(agree, k):
    steps, at = [], 1
    while at < len(agree):
        accepted = 0
        while accepted < k and at + accepted < len(agree) and agree[at + accepted]:
            accepted += 1
        steps.append(Step(k, accepted))
        at += accepted + 1
    assert replay_draft_model(agree, k) == steps


def test_what_is_met_ends_at_the_first_other_token():
    assert met([1, 2, 9, 4], [1, 2, 3, 4]) == 2
    assert met([1, 2, 3], [1, 2]) == 2
    assert met([], [1]) == 0
    assert met([5], [1]) == 0
