"""Step time as a function of drafted tokens and load, from few measured points.

A verify step costs, relative to a plain decode step of the baseline at the same load,

    ratio = 1 + overhead + drafted * slope * (verify(load) + draft_cost * draft(load))

with ``drafted`` tokens a step, ``verify`` the cost of one more token in the target's pass and
``draft_cost`` the draft's parameters as a share of the target's. What every proposer shares is
learnt from all of them: a second draft is predicted from what the first one cost. Published step
times are close to such lines in k; interior points lie 2-4 % above a line through the ends, and
graph sizes add steps, so a point may lie off its line by a discrepancy, which is learnt too.

The parameters' priors are Gaussian; they are fitted as a maximum a posteriori estimate, and their
uncertainty is that of the linearised model (Laplace's approximation).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from tuner.predict.baseline_steps import LoadCost
from tuner.spec import Load

OVERHEAD, OVERHEAD_SD = 0.05, 0.1
"""Of drafting at all: batches of another shape, sampling, another graph. EAGLE-like heads in
published tables have 0.15, ngram here has 0.02."""

PRIOR_SD = {
    ("verify", 1): 0.4,
    ("verify", 2): 0.3,
    ("draft", 1): 0.4,
    ("draft", 2): 0.2,
    ("overhead", 2): OVERHEAD_SD,
    ("overhead", 3): 0.05,
    ("slope", 2): 0.15,
    ("cost", 2): 0.8,
}
"""By what a parameter is of and how many it belongs to: (verify) is shared, (verify, load) is not.
Those of verify, draft, slope and cost are of logarithms.
"""

DISCREPANCY, DISCREPANCY_POINTS = 0.025, 4
"""How far a point lies off its line, as a share, before any was seen, and how many points that
guess counts for."""

UNKNOWN_DRAFT_COST = 0.1
"""Where a draft's size is not known."""

LEAST = 0.05
"""No step is shorter than this share of a plain one."""


@dataclass(frozen=True)
class Drafter:
    """What drafts: settings that differ in k alone share one. ``cost`` is its parameters as a share
    of the target's, 0 where it has none, None where unknown.
    """

    name: str
    cost: float | None

    @property
    def likely_cost(self) -> float:
        return UNKNOWN_DRAFT_COST if self.cost is None else self.cost


@dataclass(frozen=True)
class Point:
    """A measured decode-only step's time: ``ratio`` to the baseline's beside it, ``sd`` of its
    logarithm.

    ``drafted`` is the mean number of drafted tokens a decode step: k for a draft that always
    drafts.
    """

    drafter: Drafter
    drafted: float
    load: Load
    ratio: float
    sd: float


@dataclass(frozen=True)
class LogNormal:
    """A positive number's logarithm: its mean and standard deviation."""

    mean: float
    sd: float

    @property
    def value(self) -> float:
        return math.exp(self.mean)

    def bounds(self, deviations: float = 1.96) -> tuple[float, float]:
        """The factor by which it may be off, down and up; 95 % at 1.96."""
        half = deviations * self.sd
        return math.exp(self.mean - half), math.exp(self.mean + half)


class StepTimes:
    """The model, fitted to points. ``costs`` have the prior of one more token by load."""

    def __init__(self, costs: Mapping[Load, LoadCost], points: Sequence[Point]) -> None:
        self._costs = costs
        self._points = list(points)
        self._names = self._parameter_names()
        self._index = {name: place for place, name in enumerate(self._names)}
        self._scale = np.array([self._prior_sd(name) for name in self._names])
        self.discrepancy = DISCREPANCY
        self._fit()
        self.discrepancy = self._learnt_discrepancy()
        self._fit()

    def ratio(self, drafter: Drafter, drafted: float, load: Load) -> LogNormal:
        """Step time over the baseline's, measured or not."""
        mean, gradient = self._log_ratio(drafter, drafted, load)
        known = np.zeros(len(self._names))
        unknown = 0.0
        for name, slope in gradient.items():
            if name in self._index:
                known[self._index[name]] = slope * self._prior_sd(name)
            else:
                unknown += (slope * self._prior_sd(name)) ** 2
        fitted = float(known @ self._covariance @ known) + unknown
        shift, discrepancy = self._seen_discrepancy(drafter, drafted, load)
        return LogNormal(mean + shift, math.sqrt(fitted + discrepancy))

    def _seen_discrepancy(
        self, drafter: Drafter, drafted: float, load: Load
    ) -> tuple[float, float]:
        """A measured point's own distance from the line, as far as it is not noise; its variance
        else.
        """
        variance = self.discrepancy**2
        here = [p for p in self._points if _same(p, drafter, drafted, load)]
        if not here:
            return 0.0, variance
        noise = 1 / sum(1 / p.sd**2 for p in here)
        off = noise * sum(self._residual(p) / p.sd**2 for p in here)
        weight = variance / (variance + noise)
        return weight * off, variance * (1 - weight)

    def _residual(self, point: Point) -> float:
        return math.log(point.ratio) - self._log_ratio(point.drafter, point.drafted, point.load)[0]

    def _learnt_discrepancy(self) -> float:
        """What is left of the residuals beyond their noise, drawn to DISCREPANCY while few."""
        excess = sum(max(0.0, self._residual(p) ** 2 - p.sd**2) for p in self._points)
        weight = DISCREPANCY_POINTS
        return math.sqrt((weight * DISCREPANCY**2 + excess) / (weight + len(self._points)))

    def _fit(self) -> None:
        """Whitened: each parameter in units of its prior's deviation, 0 at its mean."""
        self._theta = np.zeros(len(self._names))
        self._covariance: NDArray[np.float64] = np.eye(len(self._names))
        if not self._points:
            return
        found = least_squares(self._residuals, self._theta, jac=self._jacobian, method="lm")
        self._theta = found.x
        jacobian = self._jacobian(found.x)
        self._covariance = np.linalg.inv(jacobian.T @ jacobian).astype(float)

    def _residuals(self, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        self._theta = theta
        off = [self._residual(p) / self._total_sd(p) for p in self._points]
        return np.concatenate([theta, off])

    def _jacobian(self, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        self._theta = theta
        rows = np.zeros((len(self._points), len(theta)))
        for row, point in zip(rows, self._points, strict=True):
            _, gradient = self._log_ratio(point.drafter, point.drafted, point.load)
            for name, slope in gradient.items():
                place = self._index[name]
                row[place] = -slope * self._scale[place] / self._total_sd(point)
        return np.vstack([np.eye(len(theta)), rows])

    def _total_sd(self, point: Point) -> float:
        return math.hypot(point.sd, self.discrepancy)

    def _log_ratio(
        self, drafter: Drafter, drafted: float, load: Load
    ) -> tuple[float, dict[tuple[str, ...], float]]:
        """The logarithm of the ratio, and its derivative by each parameter that it depends on."""
        name, at = drafter.name, load.key
        slope = math.exp(self._value("slope", name))
        unsure = math.exp(self._value("cost", name)) if drafter.cost is None else 1.0
        verifying, drafting = (self._value(of) + self._value(of, at) for of in ("verify", "draft"))
        verify = self._costs[load].verify * math.exp(verifying)
        draft = drafter.likely_cost * unsure * math.exp(drafting)
        overhead = OVERHEAD + self._value("overhead", name) + self._value("overhead", name, at)
        ratio = max(1 + overhead + drafted * slope * (verify + draft), LEAST)
        by_verify = drafted * slope * verify / ratio
        by_draft = drafted * slope * draft / ratio
        gradient = {
            ("overhead", name): 1 / ratio,
            ("overhead", name, at): 1 / ratio,
            ("slope", name): by_verify + by_draft,
            ("verify",): by_verify,
            ("verify", at): by_verify,
            ("draft",): by_draft,
            ("draft", at): by_draft,
        }
        if drafter.cost is None:
            gradient["cost", name] = by_draft
        return math.log(ratio), gradient

    def _value(self, *name: str) -> float:
        place = self._index.get(name)
        return 0.0 if place is None else float(self._theta[place] * self._scale[place])

    def _parameter_names(self) -> list[tuple[str, ...]]:
        """What all share, and what belongs to the proposers and loads that were measured."""
        names: dict[tuple[str, ...], None] = {}
        for point in self._points:
            drafter, at = point.drafter, point.load.key
            own: list[tuple[str, ...]] = [("verify",), ("verify", at), ("draft",), ("draft", at)]
            own += [("overhead", drafter.name), ("overhead", drafter.name, at)]
            own.append(("slope", drafter.name))
            if drafter.cost is None:
                own.append(("cost", drafter.name))
            names |= dict.fromkeys(own)
        return list(names)

    @staticmethod
    def _prior_sd(name: tuple[str, ...]) -> float:
        return PRIOR_SD[name[0], len(name)]


def _same(point: Point, drafter: Drafter, drafted: float, load: Load) -> bool:
    return point.drafter == drafter and point.load == load and abs(point.drafted - drafted) < 0.5  # noqa: PLR2004
