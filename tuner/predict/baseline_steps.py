"""What a load costs, read off the baseline's own steps.

Verifying k drafted tokens for each of c requests is a step of c * (k + 1) tokens; the baseline
takes steps of c tokens at concurrency c. So its step time as a function of concurrency says what
verifying costs before anything speculates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from scipy.optimize import nnls

RIDGE_TOKENS = {"cpu": 8.0, "cuda": 200.0}
"""Tokens in a step at which computing takes as long as reading the weights: bytes a parameter / 2
* operations a second / bytes a second. An H100 in bfloat16 has 989e12 / 3.35e12 = 295, and
kernels reach less; two cores here have about 8."""

GUESS_WEIGHT = 0.5
"""How much the guess counts beside one measured step time: where there is only one, it decides."""


@dataclass(frozen=True)
class LoadCost:
    """At a load: one more token for each request in a step, as a share of the plain step's time;
    and the share of the time between an answer's tokens that other requests' prefills take.
    """

    verify: float
    prefill: float = 0.0


def verify_cost(concurrency: float, steps_ms: Mapping[float, float], device: str) -> float:
    """One more token for each of ``concurrency`` requests, as a share of the plain step's time.

    ``steps_ms`` are the baseline's step times by concurrency. They are fitted by fixed + per_token
    * concurrency (neither below 0, relative errors), drawn to the device's ridge where they are
    few.
    """
    ridge = RIDGE_TOKENS.get(device, RIDGE_TOKENS["cuda"])
    if not steps_ms:
        return concurrency / (ridge + concurrency)
    guess = GUESS_WEIGHT / fmean(steps_ms.values())
    rows = [[1 / time, count / time] for count, time in steps_ms.items()]
    rows.append([guess, -guess * ridge])
    wanted = [*(1.0 for _ in steps_ms), 0.0]
    (fixed, per_token), _ = nnls(np.array(rows), np.array(wanted))
    return float(per_token * concurrency / (fixed + per_token * concurrency))
