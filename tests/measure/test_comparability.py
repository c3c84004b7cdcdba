from __future__ import annotations

from dataclasses import replace

import pytest

from tests.factories import counters, figures, pair
from tuner.errors import IncomparableError
from tuner.measure.comparability import require_comparable
from tuner.records import Measurement
from tuner.spec import Load

Pair = tuple[Measurement, Measurement]


@pytest.fixture
def arms() -> Pair:
    return pair(plan_sha256="ab" * 32)


def late(measured: Measurement, lag_ms: float, load: Load, **changes: float) -> Measurement:
    return replace(measured, load=load, figures=figures(max_send_lag_ms=lag_ms, **changes))


def test_a_sound_pair_passes(arms: Pair) -> None:
    require_comparable(*arms, "0.32.0", "0.32.0")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"load": Load(concurrency=8)}, "load: concurrency 4 and concurrency 8"),
        ({"load": Load(request_rate=4.0)}, "load: concurrency 4 and 4 requests/s"),
        ({"plan_sha256": "cd" * 32}, "prompts and arrivals"),
        ({"context": "another"}, "target, host, engine or workload"),
    ],
)
def test_what_differs_is_said(arms: Pair, changes: dict[str, object], said: str) -> None:
    baseline, candidate = arms

    with pytest.raises(IncomparableError) as caught:
        require_comparable(baseline, replace(candidate, **changes))

    words = str(caught.value)
    assert words.startswith(f"measurements {baseline.id} and {candidate.id} cannot be compared: ")
    assert said in words
    assert ";" not in words


def test_everything_that_differs_is_said_at_once(arms: Pair) -> None:
    baseline, candidate = arms
    other = replace(candidate, load=Load(concurrency=8), plan_sha256="")

    with pytest.raises(IncomparableError, match=r"load.*; prompts.*; engine version: 0.32.0 and"):
        require_comparable(baseline, other, "0.32.0", "0.33.0")


def test_a_version_that_is_not_known_is_not_held_against_it(arms: Pair) -> None:
    require_comparable(*arms, None, "0.33.0")


def test_what_the_setting_may_have_caused_is_no_reason(arms: Pair) -> None:
    baseline, candidate = arms
    suffered = replace(
        candidate,
        figures=figures(prefix_cache_hit_share=0.9, preemptions=12, queue_ms_mean=900.0),
        counters=counters(preemptions=12),
        warnings=("12 preemptions",),
    )

    require_comparable(baseline, suffered)


RECORDED = {"duration_s": 8.0, "requests": 16}
"""A mean gap of 500 ms."""


@pytest.mark.parametrize(
    ("load", "lag_ms", "refused"),
    [
        (Load(request_rate=2.0), 499, False),
        (Load(request_rate=2.0), 501, True),
        (Load(request_rate=200.0), 49, False),
        (Load(request_rate=200.0), 51, True),
        (Load(request_rate="recorded"), 499, False),
        (Load(request_rate="recorded"), 501, True),
    ],
)
@pytest.mark.parametrize("arm", [0, 1])
def test_a_client_that_sent_late(
    arms: Pair, arm: int, load: Load, lag_ms: float, refused: bool
) -> None:
    """Both arms were told to send at this load, and one could not."""
    lags = [1.0, 1.0]
    lags[arm] = lag_ms
    sent = [late(each, lag, load, **RECORDED) for each, lag in zip(arms, lags, strict=True)]

    if refused:
        name = ("baseline", "candidate")[arm]
        with pytest.raises(IncomparableError, match=f"request of the {name} {lag_ms:.0f} ms late"):
            require_comparable(*sent)
    else:
        require_comparable(*sent)
