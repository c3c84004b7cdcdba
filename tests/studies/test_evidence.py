from __future__ import annotations

import pytest

from studies.evidence import smoothed
from studies.ledger import Outcome
from tuner.errors import Failure, FailureKind
from tuner.predict.baseline_steps import LoadCost
from tuner.predict.forecast import Forecast, Seen
from tuner.records import OFF, Setting
from tuner.spec import Load

LOAD = Load(concurrency=1)
OTHER = Load(concurrency=4)


def draft(k: int) -> Setting:
    return Setting.of({"method": "draft_model", "model": "d", "num_speculative_tokens": k})


def seen(setting: Setting, load: Load, speedup: float) -> Seen:
    """As it is measured: two tokens a decode step, in whatever time that took."""
    return Seen(setting, load, 2 / speedup, 0.03, 2.0, 1.0, 400)


class TestSmoothed:
    def test_halfway_between_measurement_and_forecast_at_each_load(self) -> None:
        now = Forecast(
            {},
            {LOAD: LoadCost(0.0), OTHER: LoadCost(0.0)},
            [seen(draft(2), LOAD, 1.5), seen(draft(2), OTHER, 1.1)],
        )
        measured = Outcome(draft(2), {LOAD: 0.5, OTHER: -0.1})

        found = smoothed(now, {draft(2): measured}, [LOAD, OTHER])[draft(2)]

        for load, log_ratio in measured.log_ratios.items():
            foretold = now.speedup(draft(2), load).mean
            assert foretold != pytest.approx(log_ratio)
            assert found.log_ratios[load] == pytest.approx((log_ratio + foretold) / 2)

    def test_off_and_what_failed_stay_as_they_are(self) -> None:
        off = Outcome(OFF, {LOAD: 0.0})
        failed = Outcome(draft(2), {}, Failure(FailureKind.OUT_OF_MEMORY, "no room"))

        found = smoothed(
            Forecast({}, {LOAD: LoadCost(0.0)}, []), {OFF: off, draft(2): failed}, [LOAD]
        )

        assert found == {OFF: off, draft(2): failed}
