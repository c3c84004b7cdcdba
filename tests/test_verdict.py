"""The verdict over made-up comparisons: what is said of an answer when it is measured again."""

import math

import pytest

from tests.factories import NGRAM, comparison, context, engine_start, pair, recommendation
from tuner.answers import Considered, Speedup
from tuner.arms import Arm
from tuner.errors import Failure, FailureKind
from tuner.recommend import Challenger
from tuner.records import OFF, Purpose, Sameness
from tuner.verdict import CHANGED, LOST, Paired, Unmeasured, claim, exit_code, verification

FOREIGN = Sameness((), (), worse=True, reason="12 of 100 tokens are off target")


def speedup(value: float, low: float, high: float) -> Speedup:
    return Speedup(value=value, low=low, high=high, confidence=0.95)


ON = recommendation(speedup=speedup(1.3, 1.2, 1.4))
OFF_ANSWER = recommendation(
    speculative_config=None,
    speedup=speedup(1.0, 1.0, 1.0),
    considered=[
        Considered(
            speculative_config=NGRAM.speculative_config or {}, speedup=speedup(1.02, 0.97, 1.07)
        )
    ],
)


def paired(value: float, low: float, high: float, sameness: Sameness | None = None) -> Paired:
    pairs = [pair(purpose=Purpose.VERIFY, pair=number) for number in range(5)]
    found = comparison(
        purpose=Purpose.VERIFY,
        log_ratio=math.log(value),
        low=math.log(low),
        high=math.log(high),
        pairs=tuple((a.id, b.id) for a, b in pairs),
        stopped_because="decided",
        sameness=sameness,
    )
    baseline, candidate = zip(*pairs, strict=True)
    start = engine_start(setting=OFF, purpose=Purpose.VERIFY)
    own = engine_start(purpose=Purpose.VERIFY)
    return Paired(
        Arm(OFF, baseline, [[]] * 5, [start]),
        Challenger(Arm(NGRAM, candidate, [[]] * 5, [own]), found),
    )


def verified(answer, again):
    return verification(answer, context(), context(), again, ["the CPUs are busy"])


@pytest.mark.parametrize(
    ("again", "outcome", "words"),
    [
        (paired(1.28, 1.1, 1.5), "holds", "still better than off: 1.28x (1.10-1.50) in 5 pairs"),
        (paired(1.10, 1.05, 1.19), "changed", "by clearly less"),
        (paired(1.80, 1.50, 2.10), "changed", "by clearly more"),
        (paired(0.80, 0.70, 0.90), "lost", "worse than off"),
        (paired(1.02, 0.95, 1.10), "lost", "no longer better than off by more than the noise"),
        (paired(1.10, 0.90, 1.40), "lost", "what was measured then is not excluded either"),
        (paired(1.28, 1.1, 1.5, FOREIGN), "lost", "12 of 100 tokens are off target"),
    ],
)
def test_a_recommended_setting(again, outcome, words) -> None:
    found = verified(ON, again)
    assert found.outcome == outcome
    assert words in found.reason
    assert "1.30x (1.20-1.40) then" in found.reason


def test_what_was_measured_then_is_only_said_to_be_possible_where_it_is() -> None:
    assert "not excluded" not in verified(ON, paired(1.02, 0.95, 1.10)).reason


@pytest.mark.parametrize(
    ("again", "outcome", "words"),
    [
        (paired(1.01, 0.96, 1.06), "holds", "still not better than off"),
        (paired(0.50, 0.40, 0.60), "holds", "still not better than off"),
        (paired(1.20, 1.10, 1.30), "changed", "ngram k=3 prompt_lookup_max=4 is now better"),
        (paired(1.20, 1.10, 1.30, FOREIGN), "holds", "its text is not the target's own"),
    ],
)
def test_off_and_its_best_candidate(again, outcome, words) -> None:
    found = verified(OFF_ANSWER, again)
    assert found.outcome == outcome
    assert words in found.reason
    assert found.stored_speedup == speedup(1.02, 0.97, 1.07)


def test_a_verification_has_its_numbers_and_what_they_rest_on() -> None:
    again = paired(1.28, 1.1, 1.5)
    found = verified(ON, again)
    assert found.pairs == found.measured.rounds == found.baseline.rounds == 5
    assert found.speedup.high == pytest.approx(1.5)
    assert found.differences == []
    assert len(found.evidence.measurements) == 10
    assert found.evidence.engine_starts == [
        again.baseline.starts[0].id,
        again.challenger.arm.starts[0].id,
    ]
    assert found.warnings == ["measured on a CPU: it says nothing about a GPU", "the CPUs are busy"]


def test_a_setting_that_fails_is_lost_with_its_reason() -> None:
    failure = Failure(FailureKind.OUT_OF_MEMORY, "no room")
    start = engine_start(failure=failure)
    found = verified(ON, Unmeasured(failure, start))
    assert found.outcome == "lost"
    assert "out of memory: no room" in found.reason
    assert found.speedup is found.measured is found.baseline is None
    assert found.evidence.engine_starts == [start.id]


def test_off_with_nothing_beside_it_claims_nothing() -> None:
    answer = OFF_ANSWER.model_copy(update={"considered": []})
    assert claim(answer) is None
    found = verified(answer, None)
    assert (found.outcome, found.verified_config, found.stored_speedup) == ("holds", None, None)


def test_the_exit_code_is_that_of_the_worst() -> None:
    holds, changed, lost = (
        verified(ON, paired(*numbers))
        for numbers in ((1.28, 1.1, 1.5), (1.1, 1.05, 1.19), (0.8, 0.7, 0.9))
    )
    assert exit_code([holds, holds]) == 0
    assert exit_code([holds, changed]) == CHANGED == 6
    assert exit_code([changed, lost, holds]) == LOST == 5
