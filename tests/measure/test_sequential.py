from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import stdtrit

from tuner.measure.sequential import (
    CONFIDENCE,
    FIRST_PAIRS,
    MOST_PAIRS,
    Decision,
    decide,
    interval_at,
)
from tuner.records import Estimate

COMPARISONS = 2000
EFFECT = math.log(1.05)
FINEST = 1e-9
"""A precision that is never reached: a comparison goes on until it is decided, or to the limit."""

FINDABLE = 0.244 * math.sqrt(MOST_PAIRS) * EFFECT
"""The standard deviation of a pair's log ratio at which a 5 % effect is found in 80 %."""

LOG_RATIOS = st.lists(st.floats(-1, 1), min_size=FIRST_PAIRS, max_size=MOST_PAIRS)
Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


def gaussian(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.standard_normal(shape)


def heavy(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Student's t with 3 degrees of freedom: no fourth moment."""
    return rng.standard_t(3, shape) / math.sqrt(3)


def spikes(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """One round in twenty is slow."""
    return rng.standard_normal(shape) / 2 + 3 * (rng.random(shape) < 0.05)


def linear(rng: np.random.Generator, rounds: int) -> Array:
    return np.broadcast_to(0.01 * np.arange(rounds), (COMPARISONS, rounds))


def walk(rng: np.random.Generator, rounds: int) -> Array:
    return np.cumsum(0.02 * rng.standard_normal((COMPARISONS, rounds)), axis=1)


def cooling(rng: np.random.Generator, rounds: int) -> Array:
    """A machine that becomes slower as it warms up, and then stays so."""
    return np.broadcast_to(-0.2 * np.exp(-np.arange(rounds) / 6), (COMPARISONS, rounds))


def none(rng: np.random.Generator, rounds: int) -> Array:
    return np.zeros((COMPARISONS, rounds))


def in_pairs(
    noise: Callable[..., Array], drift: Callable[..., Array], effect: float, sigma: float
) -> list[list[float]]:
    """Log ratios of rounds one after another in the order A B B A, and the pairs of each row.

    ``sigma`` is the standard deviation that the noise alone gives to a pair's log ratio.
    """
    rng = np.random.default_rng(20)
    level = drift(rng, 2 * MOST_PAIRS).reshape(COMPARISONS, MOST_PAIRS, 2)
    rounds = level + sigma / math.sqrt(2) * noise(rng, level.shape)
    baseline_first = np.where(np.arange(MOST_PAIRS) % 2 == 0, 1, -1)
    ratios: list[list[float]] = (
        effect + baseline_first * (rounds[:, :, 1] - rounds[:, :, 0])
    ).tolist()
    return ratios


@dataclass
class Seen:
    covered: float
    called_different: float
    pairs: float


def run(comparisons: list[list[float]], effect: float, precision: float) -> Seen:
    """Every comparison, pair by pair, with the real rule."""
    ends = []
    for ratios in comparisons:
        count = 1
        while (found := decide(ratios[:count], precision)).stopped_because is None:
            count += 1
        ends.append((found, count))
    return Seen(
        fmean(found.low <= effect <= found.high for found, _ in ends),
        fmean(found.stopped_because == "decided" for found, _ in ends),
        fmean(count for _, count in ends),
    )


NOISES = [gaussian, heavy, spikes]
DRIFTS = [none, linear, walk, cooling]


class TestSimulated:
    @pytest.mark.parametrize("drift", DRIFTS)
    @pytest.mark.parametrize("noise", NOISES)
    def test_equal_arms(self, noise: Callable[..., Array], drift: Callable[..., Array]) -> None:
        """No precision stops them: every look is a chance to be wrong."""
        seen = run(in_pairs(noise, drift, 0.0, 0.04), 0.0, FINEST)

        assert seen.called_different <= 0.025
        assert seen.covered >= 0.93

    @pytest.mark.parametrize("precision", [0.02, 0.08])
    @pytest.mark.parametrize("drift", DRIFTS)
    @pytest.mark.parametrize("noise", NOISES)
    def test_a_true_effect(
        self, noise: Callable[..., Array], drift: Callable[..., Array], precision: float
    ) -> None:
        seen = run(in_pairs(noise, drift, EFFECT, 0.04), EFFECT, precision)

        assert seen.covered >= 0.93

    @pytest.mark.parametrize("precision", [FINEST, 0.025, 0.05])
    @pytest.mark.parametrize("noise", NOISES)
    def test_is_found_where_the_noise_allows_it(
        self, noise: Callable[..., Array], precision: float
    ) -> None:
        seen = run(in_pairs(noise, none, EFFECT, 0.95 * FINDABLE), EFFECT, precision)

        assert seen.called_different >= 0.8

    @pytest.mark.parametrize("drift", [linear, walk])
    def test_is_found_through_drift(self, drift: Callable[..., Array]) -> None:
        """The drift between the two rounds of a pair is noise like other noise."""
        seen = run(in_pairs(gaussian, drift, EFFECT, 0.85 * FINDABLE), EFFECT, FINEST)

        assert seen.called_different >= 0.8

    def test_a_large_effect_takes_few_pairs(self) -> None:
        seen = run(in_pairs(gaussian, walk, math.log(1.3), 0.04), math.log(1.3), 0.02)

        assert seen.called_different == 1
        assert seen.pairs < 6

    def test_looking_with_a_plain_interval_would_not_do(self) -> None:
        """Why a look's interval is wider: equal arms, plain t intervals, tried after each pair."""
        rows = np.array(in_pairs(gaussian, none, 0.0, 0.04))
        wrong = np.zeros(COMPARISONS, dtype=bool)
        for n in range(FIRST_PAIRS, MOST_PAIRS + 1):
            mean, spread = rows[:, :n].mean(axis=1), rows[:, :n].std(axis=1, ddof=1)
            wrong |= abs(mean) > stdtrit(n - 1, 0.975) * spread / math.sqrt(n)

        assert wrong.mean() > 0.1


class TestDecide:
    def test_what_the_rule_says(self) -> None:
        """Mean 0.3, deviation sqrt(0.025), t(1 - 0.05 / 24, 4) = 5.88: half-width 0.416."""
        found = decide([0.1, 0.2, 0.3, 0.4, 0.5], 0.08)

        assert found == Decision(
            pytest.approx(0.3),
            pytest.approx(0.3 - 0.4165, abs=2e-3),
            pytest.approx(0.3 + 0.4165, abs=2e-3),
            CONFIDENCE,
            None,
        )

    @pytest.mark.parametrize(
        ("log_ratios", "because"),
        [
            ([0.5, 0.5, 0.5, 0.5], None),
            ([0.30, 0.31, 0.29, 0.30, 0.31], "decided"),
            ([-0.30, -0.31, -0.29, -0.30, -0.31], "decided"),
            ([0.01, -0.01, 0.01, -0.01, 0.01], "precise"),
            ([0.1, -0.1, 0.1, -0.1, 0.1], None),
            ([0.1, -0.1] * (MOST_PAIRS // 2), "limit"),
            ([0.31, 0.29] * (MOST_PAIRS // 2), "decided"),
        ],
    )
    def test_why_it_stops(self, log_ratios: list[float], because: str | None) -> None:
        assert decide(log_ratios, 0.08).stopped_because == because

    def test_before_the_first_look_nothing_is_known(self) -> None:
        found = decide([0.3] * (FIRST_PAIRS - 1), 0.08)

        assert (found.low, found.high) == (-math.inf, math.inf)

    def test_pairs_after_the_limit_are_not_looked_at(self) -> None:
        to_the_limit = [0.1, -0.1] * (MOST_PAIRS // 2)

        assert decide([*to_the_limit, 9.0], 0.08) == decide(to_the_limit, 0.08)

    def test_drift_widens_the_interval_and_the_wider_one_decides(self) -> None:
        ratios = [0.10, 0.11, 0.09, 0.10, 0.11]
        without, with_drift = decide(ratios, 0.08), decide(ratios, 0.08, drift=0.1)

        assert without.stopped_because == "decided"
        assert with_drift.stopped_because is None
        assert with_drift.low == pytest.approx(without.low - 0.1)
        assert with_drift.high == pytest.approx(without.high + 0.1)

    @given(LOG_RATIOS, st.floats(0.001, 0.5), st.floats(0, 0.2))
    def test_the_reason_agrees_with_the_interval(
        self, log_ratios: list[float], precision: float, drift: float
    ) -> None:
        found = decide(log_ratios, precision, drift=drift)
        half = (found.high - found.low) / 2
        excludes_none = found.low > 0 or found.high < 0

        assert found.low <= found.log_ratio <= found.high
        assert (found.stopped_because == "decided") == excludes_none
        far = abs(found.log_ratio) + half
        if found.stopped_because == "precise":
            assert far <= math.log1p(precision) + 1e-12
        if found.stopped_because == "limit":
            assert len(log_ratios) == MOST_PAIRS
        if found.stopped_because is None:
            assert far > math.log1p(precision) - 1e-12

    @given(LOG_RATIOS, st.floats(0.001, 0.5))
    def test_swapping_the_arms_mirrors_everything(
        self, log_ratios: list[float], precision: float
    ) -> None:
        found = decide(log_ratios, precision)
        mirrored = decide([-ratio for ratio in log_ratios], precision)

        assert mirrored.stopped_because == found.stopped_because
        assert mirrored.low == pytest.approx(-found.high)
        assert mirrored.high == pytest.approx(-found.low)

    @given(LOG_RATIOS, st.randoms(use_true_random=False))
    def test_the_order_of_the_pairs_does_not_matter(
        self, log_ratios: list[float], random: Random
    ) -> None:
        shuffled = list(log_ratios)
        random.shuffle(shuffled)

        assert decide(shuffled, 0.08).low == pytest.approx(decide(log_ratios, 0.08).low)


class TestIntervalAt:
    @given(LOG_RATIOS)
    def test_is_the_interval_that_decides(self, log_ratios: list[float]) -> None:
        whole = decide(log_ratios, 0.08)

        assert interval_at(log_ratios) == Estimate(whole.log_ratio, whole.low, whole.high)

    def test_few_pairs_have_a_mean_and_no_interval(self) -> None:
        found = interval_at([0.1, 0.3])

        assert found == Estimate(pytest.approx(0.2), None, None)
