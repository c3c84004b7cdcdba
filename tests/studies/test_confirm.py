import math

from studies.confirm import finalist
from studies.ledger import Outcome
from tuner.errors import Failure, FailureKind
from tuner.records import OFF, Setting
from tuner.spec import Load

ALONE = Load(concurrency=1)


def suffix(k: int) -> Setting:
    return Setting.of({"method": "suffix", "num_speculative_tokens": k})


def explored(speeds: dict[int, float], off: float) -> dict[Setting, Outcome]:
    known = {suffix(k): Outcome(suffix(k), {ALONE: math.log(v / off)}) for k, v in speeds.items()}
    return {OFF: Outcome(OFF, {ALONE: 0.0}), **known}


def test_a_plateau_goes_to_the_smaller_k() -> None:
    """A published sweep: tok/s off 24.6, then a plateau from k=2 to k=4
    (kyuz0/amd-strix-halo-vllm-toolboxes#53)."""
    speeds = {1: 28.2, 2: 30.9, 3: 29.9, 4: 31.2, 5: 27.5, 6: 26.8}
    assert finalist(explored(speeds, 24.6), ALONE) == suffix(2)


def test_a_clear_winner_wins_whatever_its_k() -> None:
    assert finalist(explored({1: 28.0, 6: 40.0}, 24.6), ALONE) == suffix(6)


def test_failures_and_off_are_no_finalists() -> None:
    failed = Outcome(suffix(3), {}, Failure(FailureKind.OUT_OF_MEMORY, "no room"))
    only_failures = {OFF: Outcome(OFF, {ALONE: 0.0}), suffix(3): failed}
    assert finalist(only_failures, ALONE) is None
    assert finalist(explored({2: 10.0}, 24.6) | only_failures, ALONE) == suffix(2)
