import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.predict.break_even import AtLoad, crossing


def at(in_flight: float, speedup: float) -> AtLoad:
    return AtLoad(f"concurrency={in_flight:g}", in_flight, in_flight / 8, math.log(speedup))


def test_half_way_in_logarithms_where_gain_and_loss_are_equal() -> None:
    found = crossing([at(4, 1 / 1.3), at(1, 1.3)])
    assert found is not None
    assert (found.on_at, found.off_at) == ("concurrency=1", "concurrency=4")
    assert found.in_flight == pytest.approx(2)
    assert found.requests_per_s == pytest.approx(0.25)


@pytest.mark.parametrize("speedups", [(1.3, 1.1), (0.9, 0.8), (0.9, 1.1), (1.2,)])
def test_no_break_even_without_a_fall(speedups: tuple[float, ...]) -> None:
    assert crossing([at(4**n, speedup) for n, speedup in enumerate(speedups)]) is None


@given(st.floats(1.001, 3), st.floats(0.3, 1.0), st.floats(1, 8), st.floats(1.1, 32))
def test_it_lies_between_the_two_loads(on, off, low, factor) -> None:
    found = crossing([at(low, on), at(low * factor, off)])
    assert found is not None
    assert low <= found.in_flight * 1.000001
    assert found.in_flight <= low * factor * 1.000001
