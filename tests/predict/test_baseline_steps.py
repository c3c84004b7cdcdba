import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.predict.baseline_steps import verify_cost


def test_read_off_step_times_that_grow_with_concurrency() -> None:
    """73, 99 and 178 ms at 1, 4 and 16: the family's target on two cores, about 66 + 7 a token."""
    steps = {1.0: 73.0, 4.0: 99.0, 16.0: 178.0}
    assert verify_cost(1, steps, "cpu") == pytest.approx(7 / 73, rel=0.15)
    assert verify_cost(4, steps, "cpu") == pytest.approx(28 / 94, rel=0.15)


def test_one_step_time_leaves_the_device_to_say() -> None:
    assert verify_cost(1, {1.0: 73.0}, "cpu") == pytest.approx(1 / 9)
    assert verify_cost(1, {1.0: 7.0}, "cuda") == pytest.approx(1 / 201)
    assert verify_cost(4, {}, "cpu") == pytest.approx(4 / 12)


@given(st.dictionaries(st.floats(1, 256), st.floats(0.1, 1e4), max_size=5), st.floats(1, 256))
def test_a_share_whatever_was_measured(steps, concurrency) -> None:
    assert 0 <= verify_cost(concurrency, steps, "cpu") <= 1
