from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.measure.step_gaps import StepGaps, step_gaps
from tuner.records import RequestSample


def sample(started_s: float, *chunk_ms: float, counted: bool = True) -> RequestSample:
    first = chunk_ms[0] if chunk_ms else None
    return RequestSample("p", "chat", started_s, ttft_ms=first, counted=counted, chunk_ms=chunk_ms)


def test_steps_in_which_another_request_waits_for_its_first_token_stand_apart() -> None:
    """The second is sent at 125 ms and read until 160; of the first, one step waits for that."""
    found = step_gaps([sample(0.0, 100, 110, 120, 160, 170, 180), sample(0.125, 35, 45, 55)])
    assert found == StepGaps(all_ms=100 / 7, decode_only_ms=10.0)
    assert found.prefill_share == pytest.approx(1 - 10 / (100 / 7))


def test_one_request_after_another_waits_for_none() -> None:
    found = step_gaps([sample(0.0, 50, 60, 75), sample(0.080, 50, 60, 75)])
    assert found == StepGaps(12.5, 12.5)
    assert found.prefill_share == 0.0


def test_padding_waits_like_any_other_but_its_own_steps_are_not_counted() -> None:
    padding = sample(0.055, 10, 1000, counted=False)
    assert step_gaps([sample(0.0, 50, 60, 70, 80), padding]) == StepGaps(10.0, 10.0)
    assert step_gaps([padding]) is None


def test_where_one_always_waits_no_share_is_told() -> None:
    """Cut off before its first token: it waited to the end."""
    found = step_gaps([sample(0.0, 50, 60, 70), sample(0.0, counted=False)])
    assert found == StepGaps(10.0, None)
    assert found.prefill_share == 0.0


def test_answers_of_one_chunk_have_no_steps() -> None:
    assert step_gaps([sample(0.0, 50), sample(0.0)]) is None


arrivals = st.lists(st.integers(1, 2000), min_size=1, max_size=6, unique=True).map(sorted)


@given(st.lists(st.tuples(st.integers(0, 3000), arrivals), min_size=1, max_size=6))
def test_they_are_those_that_overlap_no_wait(requests) -> None:
    samples = [sample(start / 1000, *chunks) for start, chunks in requests]
    found = step_gaps(samples)
    spans = [(start + a, start + b) for start, chunks in requests for a, b in pairwise(chunks)]
    waits = [(start, start + chunks[0]) for start, chunks in requests]
    clear = [b - a for a, b in spans if all(end <= a or b <= since for since, end in waits)]
    if not spans:
        assert found is None
        return
    assert found is not None
    assert found.all_ms == pytest.approx(sum(b - a for a, b in spans) / len(spans))
    assert found.decode_only_ms == (pytest.approx(sum(clear) / len(clear)) if clear else None)
    assert 0 <= found.prefill_share < 1
