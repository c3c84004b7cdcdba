"""The load at which speculating stops to pay."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class AtLoad:
    """A setting's log speed-up with so many requests under way on average, at so many a second."""

    name: str
    in_flight: float
    requests_per_s: float
    log_speedup: float


@dataclass(frozen=True)
class Crossing:
    """Between two measured loads, named ``on_at`` and ``off_at``, the speed-up falls below 1."""

    on_at: str
    off_at: str
    in_flight: float
    requests_per_s: float


def crossing(measured: Sequence[AtLoad]) -> Crossing | None:
    """The first fall through no speed-up as the load grows; None where there is none.

    Between two loads the log speed-up is taken to be linear in the logarithm of the load: batches
    grow the cost of a step by factors.
    """
    ordered = sorted(measured, key=lambda at: at.in_flight)
    for on, off in pairwise(ordered):
        if on.log_speedup > 0 >= off.log_speedup:
            share = on.log_speedup / (on.log_speedup - off.log_speedup)
            return Crossing(
                on_at=on.name,
                off_at=off.name,
                in_flight=_between(on.in_flight, off.in_flight, share),
                requests_per_s=_between(on.requests_per_s, off.requests_per_s, share),
            )
    return None


def _between(low: float, high: float, share: float) -> float:
    return math.exp((1 - share) * math.log(low) + share * math.log(high))
