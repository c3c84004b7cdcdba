from __future__ import annotations

import random
from statistics import median

import pytest

from tests.factories import NGRAM
from tuner.predict.acceptance import not_replayed, screened
from tuner.predict.replay import Recorded, Step
from tuner.records import Estimate, Screen


def recorded(kind: str = "chat", measurement: str = "m1", tokens: int = 10) -> Recorded:
    return Recorded(kind, (1, 2), tuple(range(tokens)), measurement, 0.0)


def of(answers: list[list[Step]], *kinds: str) -> Screen:
    tokens = [1 + sum(step.accepted + 1 for step in steps) for steps in answers]
    pairs = zip(kinds or ["chat"] * len(answers), tokens, strict=True)
    texts = [recorded(kind, tokens=length) for kind, length in pairs]
    return screened(NGRAM, "here", texts, answers, 0.0)


CUT = Step(3, 1)


def test_numbers_are_ratios_of_sums_and_acceptance_leaves_out_the_step_that_the_end_cuts() -> None:
    long = [Step(3, 3), Step(0, 0), Step(3, 1), Step(3, 0), CUT]
    short = [Step(3, 2), CUT]
    found = of([long, short])
    assert found.tokens_per_decode_step is not None
    assert found.tokens_per_decode_step.value == (4 + 1 + 2 + 1 + 2 + 3 + 2) / 7
    assert found.acceptance_length is not None
    assert found.acceptance_length.value == (4 + 2 + 1 + 3) / 4
    assert found.draft_coverage == 6 / 7
    assert found.drafted_per_decode_step == 18 / 7


def test_it_names_what_it_was_replayed_over() -> None:
    texts = [recorded(measurement="m2"), recorded(measurement="m1"), recorded(measurement="m2")]
    found = screened(NGRAM, "here", texts, [[Step(1, 1), CUT]] * 3, 0.25)
    assert (found.setting, found.context, found.draft_cost) == (NGRAM, "here", 0.25)
    assert (found.requests, found.tokens, found.measurements) == (3, 30, ("m2", "m1"))
    assert found.reason is None


def test_kinds_stand_apart() -> None:
    code, chat = [Step(2, 2), Step(2, 2), CUT], [Step(2, 0), CUT]
    found = of([code, chat, code], "code", "chat", "code")
    assert {kind: e.value for kind, e in found.by_kind.items()} == {"code": 8 / 3, "chat": 1.5}
    assert found.by_kind["chat"] == Estimate(1.5)
    assert found.by_kind["code"] == Estimate(8 / 3, 8 / 3, 8 / 3)


def test_a_last_step_whose_draft_is_all_that_is_left_gives_no_token_beyond_the_end() -> None:
    found = screened(NGRAM, "here", [recorded(tokens=9)], [[Step(4, 4), Step(4, 3)]], 0.0)
    assert found.tokens_per_decode_step == Estimate(8 / 2)


def test_where_nothing_was_drafted_there_is_no_acceptance_and_no_interval() -> None:
    found = of([[Step(0, 0)] * 4] * 3)
    assert found.tokens_per_decode_step == Estimate(1.0)
    assert found.acceptance_length is None
    assert found.draft_coverage == found.drafted_per_decode_step == 0.0


def test_one_answer_has_no_interval() -> None:
    found = of([[Step(3, 1), Step(3, 0), CUT]])
    assert found.tokens_per_decode_step == Estimate(5 / 3)
    assert found.acceptance_length == Estimate(1.5)


@pytest.mark.parametrize("answers", [[], [[]], [[], []]])
def test_answers_without_a_decode_step_say_nothing(answers: list[list[Step]]) -> None:
    found = of(answers)
    assert found.tokens_per_decode_step is None
    assert found.by_kind == {}
    assert found.reason == "no recorded answer has a decode step"


def test_a_setting_that_cannot_be_replayed_has_its_reason_and_no_numbers() -> None:
    found = not_replayed(NGRAM, "here", [recorded()], "why")
    assert found == Screen(NGRAM, "here", measurements=("m1",), reason="why")


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    """Answers whose own rates differ, as kinds of text do. 95 % of 200, give or take 3 errors."""
    rng = random.Random(8)

    def answer() -> list[Step]:
        rate = rng.choice([0.2, 0.5, 0.8])
        return [Step(1, int(rng.random() < rate)) for _ in range(60)]

    held = 0
    for _ in range(200):
        found = of([answer() for _ in range(40)]).tokens_per_decode_step
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        assert found.low < found.value < found.high
        held += found.low <= 1.5 <= found.high
    assert held / 200 >= 0.90


def test_kinds_that_are_dealt_in_turns_add_nothing_to_the_interval_by_differing() -> None:
    """Three kinds of very different acceptance, as many of each in every recording."""
    rng = random.Random(9)
    kinds = {"code": 0.9, "chat": 0.5, "maths": 0.1}
    held, widths, widths_as_one = 0, [], []
    for _ in range(200):
        answers = [
            [Step(1, int(rng.random() < rate)) for _ in range(60)]
            for rate in kinds.values()
            for _ in range(12)
        ]
        apart = of(answers, *(kind for kind in kinds for _ in range(12)))
        for screen, into in ((apart, widths), (of(answers), widths_as_one)):
            found = screen.tokens_per_decode_step
            assert found is not None
            assert found.low is not None
            assert found.high is not None
            into.append(found.high - found.low)
            held += screen is apart and found.low <= 1.5 <= found.high
    assert held / 200 >= 0.90
    assert median(widths) < median(widths_as_one) / 3


def test_kinds_of_one_answer_each_are_drawn_from_together() -> None:
    answers = [[Step(2, n % 3), Step(2, n % 2), CUT] for n in range(6)]
    assert of(answers, *"abcdef").tokens_per_decode_step == of(answers).tokens_per_decode_step
    one_aside = of(answers, *"aaaaab").tokens_per_decode_step
    assert one_aside is not None
    assert one_aside.low is not None


def test_the_same_answers_give_the_same_interval() -> None:
    answers = [[Step(2, n % 3), Step(2, n % 2), CUT] for n in range(9)]
    assert of(answers) == of(answers)
