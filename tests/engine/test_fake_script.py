from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tuner.engine.fake_script import FakeScript, Fault

DRAFT = {"method": "draft_model", "model": "/models/draft/", "num_speculative_tokens": 3}
NGRAM = {"method": "ngram", "num_speculative_tokens": 3}


@pytest.mark.parametrize(
    ("fault", "matched"),
    [
        ({}, [None, DRAFT, NGRAM]),
        ({"method": "off"}, [None]),
        ({"method": "ngram"}, [NGRAM]),
        ({"k": 3}, [DRAFT, NGRAM]),
        ({"k": 4}, []),
        ({"model": "draft"}, [DRAFT]),
        ({"method": "ngram", "model": "draft"}, []),
    ],
)
def test_a_fault_matches_by_what_it_names(
    fault: dict[str, Any], matched: list[dict[str, Any] | None]
) -> None:
    made = Fault.model_validate({"kind": "crash", **fault})
    assert [config for config in (None, DRAFT, NGRAM) if made.matches(config)] == matched


def test_a_fault_with_times_is_for_the_first_matching_starts(tmp_path: Path) -> None:
    faults = (Fault(kind="crash", method="ngram", times=2), Fault(kind="no_usage"))
    script = FakeScript(faults=faults, state_dir=tmp_path)
    starts = [DRAFT, NGRAM, NGRAM, NGRAM]
    kinds = [[f.kind for f in script.faults_of_this_start(config)] for config in starts]
    assert kinds == [["no_usage"], ["crash", "no_usage"], ["crash", "no_usage"], ["no_usage"]]


def test_times_need_a_place_to_count() -> None:
    with pytest.raises(ValidationError, match="state_dir"):
        FakeScript(faults=(Fault(kind="crash", times=1),))


def test_acceptance_by_draft_then_by_method() -> None:
    script = FakeScript(acceptance={"draft": 0.9, "draft_model": 0.4, "ngram": 0.1})
    assert script.acceptance_of(DRAFT) == 0.9
    assert script.acceptance_of({**DRAFT, "model": "other"}) == 0.4
    assert script.acceptance_of(NGRAM) == 0.1
    assert script.acceptance_of({**NGRAM, "method": "suffix"}) == 0.6


def test_corruption_by_draft_then_by_method() -> None:
    script = FakeScript(corruption={"draft": 0.3, "ngram": 0.1})
    assert script.corruption_of(DRAFT) == 0.3
    assert script.corruption_of(NGRAM) == 0.1
    assert script.corruption_of({**NGRAM, "method": "suffix"}) == 0
    with pytest.raises(ValidationError, match="corruption"):
        FakeScript(corruption={"draft": 1.5})


def test_step_time_grows_with_k_and_requests() -> None:
    script = FakeScript(step_ms=20, step_ms_per_k=1, step_ms_per_request=0.5)
    assert script.step_s(0, 1) == pytest.approx(0.0205)
    assert script.step_s(4, 2) == pytest.approx(0.025)
