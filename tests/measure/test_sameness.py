from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.engine.fake_text import FakeText
from tuner.measure.sameness import LEAST_LENGTH, LEAST_LOGPROB, LEAST_OFF_TARGET, judge
from tuner.measure.scoring import MARGIN, SCORED_TOKENS
from tuner.records import ScoredText

SEEDS = 200
TOKENS = 128
"""Of one answer."""

ANSWERS = SCORED_TOKENS // TOKENS
FLOOR = 0.2


def text(tokens: int = 100, off_target: int = 0, mean_logprob: float = -0.5) -> ScoredText:
    return ScoredText("m", 0, tokens, off_target, mean_logprob)


TEXTS = st.lists(
    st.integers(0, 300).flatmap(
        lambda tokens: st.builds(
            text, st.just(tokens), st.integers(0, tokens), st.floats(-12, 0, allow_nan=False)
        )
    ),
    max_size=12,
)


def answers(seed: int, arm: str, corruption: float = 0.0) -> tuple[ScoredText, ...]:
    """What an engine with a benign floor answers, scored by its target."""
    language = FakeText(seed)
    found = []
    for number in range(ANSWERS):
        prompt = [2000 + number, 3000 + number]
        said = language.generate(prompt, TOKENS, divergence=FLOOR, corruption=corruption, salt=arm)
        scores = language.score([*prompt, *said])[len(prompt) :]
        off_target = sum(best - logprob > MARGIN for logprob, best in scores)
        mean = sum(logprob for logprob, _ in scores) / TOKENS
        found.append(ScoredText(arm, number, TOKENS, off_target, mean))
    return tuple(found)


class TestAtTemperature0:
    def test_a_corrupting_engine_is_caught_and_a_healthy_one_is_not(self) -> None:
        """3 % of its tokens corrupted, on a floor of 20 % off target in every arm."""
        caught = alarms = 0
        for seed in range(SEEDS):
            baseline = answers(seed, "baseline")
            caught += judge(baseline, answers(seed, "bad", 0.03), temperature=0).worse
            alarms += judge(baseline, answers(seed, "good"), temperature=0).worse

        assert caught >= 0.9 * SEEDS
        assert alarms <= 0.05 * SEEDS

    @pytest.mark.parametrize("floor", [0.002, 0.02, 0.2])
    def test_tokens_of_one_answer_are_not_independent(self, floor: float) -> None:
        """Some prompts diverge much more than others; healthy arms are not called worse for it."""
        rng = np.random.default_rng(4)

        def arm() -> list[ScoredText]:
            shares = rng.beta(floor * 2, (1 - floor) * 2, 32)
            return [text(TOKENS, int(rng.binomial(TOKENS, share))) for share in shares]

        alarms = sum(judge(arm(), arm(), temperature=0).worse for _ in range(400))

        assert alarms <= 0.025 * 400

    def test_a_difference_too_small_to_matter(self) -> None:
        """However sure it is."""
        baseline = [text(1000, 10)] * 200
        within = [text(1000, 10 + int(1000 * LEAST_OFF_TARGET) - 1)] * 200
        beyond = [text(1000, 10 + int(1000 * LEAST_OFF_TARGET) + 1)] * 200

        assert not judge(baseline, within, temperature=0).worse
        assert judge(baseline, beyond, temperature=0).worse

    def test_fewer_off_target_is_not_worse(self) -> None:
        assert not judge([text(off_target=30)] * 50, [text()] * 50, temperature=0).worse

    def test_one_bad_answer_is_not_clear(self) -> None:
        baseline = [text()] * 20

        assert not judge(baseline, [*[text()] * 19, text(off_target=60)], temperature=0).worse

    def test_the_reason_has_the_numbers(self) -> None:
        found = judge([text(100, 2)] * 20, [text(100, 12), text(100, 14)] * 10, temperature=0)

        assert found.worse
        assert found.reason == (
            "13.00% of the candidate's 2000 scored tokens are off target, "
            "2.00% of the baseline's 2000: clearly worse"
        )

    def test_probability_alone_does_not_count(self) -> None:
        """At temperature 0 the promise is the target's token; how sure it was is its own affair."""
        healthy, unsure = [text(mean_logprob=-0.2)] * 30, [text(mean_logprob=-3.0)] * 30

        assert not judge(healthy, unsure, temperature=0).worse


class TestDrawn:
    @staticmethod
    def arm(mean: float, length: float = 120, answers: int = 64) -> list[ScoredText]:
        rng = np.random.default_rng([int(-1000 * mean), int(length)])
        return [
            text(max(1, int(rng.normal(length, 15))), 0, rng.normal(mean, 0.3))
            for _ in range(answers)
        ]

    @pytest.mark.parametrize(
        ("mean", "length", "worse"),
        [
            (-1.01, 121, False),
            (-1.5, 120, True),
            (-0.5, 120, False),
            (-1.0, 70, True),
            (-1.0, 180, True),
        ],
    )
    def test_by_probability_and_length(self, mean: float, length: float, worse: bool) -> None:
        found = judge(self.arm(-1.0), self.arm(mean, length), temperature=0.7)

        assert found.worse == worse
        assert found.reason.endswith(": clearly worse" if worse else ": not clearly worse")

    def test_a_difference_too_small_to_matter(self) -> None:
        baseline = [text(1000, 0, -1.0), text(1000, 0, -1.0001)] * 100
        less = [
            replace(each, mean_logprob=each.mean_logprob - 0.9 * LEAST_LOGPROB) for each in baseline
        ]
        shorter = [replace(each, tokens=int(1000 * (1 - 0.9 * LEAST_LENGTH))) for each in baseline]

        assert not judge(baseline, less, temperature=1).worse
        assert not judge(baseline, shorter, temperature=1).worse

    def test_a_large_difference_of_few_answers_is_not_clear(self) -> None:
        baseline = [text(mean_logprob=-0.5), text(mean_logprob=-1.5)]

        assert not judge(
            baseline, [text(mean_logprob=-1.0), text(mean_logprob=-2.0)], temperature=1
        ).worse

    def test_a_drawn_token_is_often_off_target(self) -> None:
        """Above temperature 0 that is no fault."""
        assert not judge([text(100, 0)] * 50, [text(100, 60)] * 50, temperature=1).worse


class TestTooLittle:
    @pytest.mark.parametrize("temperature", [0.0, 1.0])
    @pytest.mark.parametrize(
        ("baseline", "candidate"),
        [
            ([], []),
            ([text()] * 50, []),
            ([text()] * 50, [text(100, 90)]),
            ([text()] * 50, [text(100, 90), text(0)]),
            ([text(0)] * 50, [text(0)] * 50),
        ],
    )
    def test_nothing_can_be_told(
        self, baseline: list[ScoredText], candidate: list[ScoredText], temperature: float
    ) -> None:
        found = judge(baseline, candidate, temperature=temperature)

        assert not found.worse
        assert found.reason.startswith("nothing can be told")

    @given(TEXTS, TEXTS, st.sampled_from([0.0, 0.7]))
    def test_an_arm_is_never_worse_than_itself(
        self, texts: Sequence[ScoredText], others: Sequence[ScoredText], temperature: float
    ) -> None:
        """And no two arms are each clearly less the target's text than the other."""
        one = judge(texts, others, temperature=temperature)
        other = judge(others, texts, temperature=temperature)

        assert not judge(texts, texts, temperature=temperature).worse
        assert (one.baseline, one.candidate) == (tuple(texts), tuple(others))
        if temperature == 0:
            assert not (one.worse and other.worse)
