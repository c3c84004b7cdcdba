"""Case 16: a pair of target and traffic that cannot work."""

from __future__ import annotations

from pathlib import Path

from tests.cases.rounds import SUFFIX
from tests.cases.study import study
from tuner.measure.measure import PROBE_TOKENS


def test_case_16_min_p_is_met_by_a_probe_before_any_load(tmp_path: Path) -> None:
    """min_p in the traffic: every request is a 400 while vLLM speculates (vllm#42744)."""
    sampling = {"temperature": 1, "min_p": 0.1}
    workload = {"output_tokens": 12, "requests": 2, "sampling": sampling}

    with study(tmp_path, workload=workload) as running:
        told = running.answer()
        [speculating] = [engine for engine in running.engines if engine.speculates]

        assert running.store.measurements(setting=SUFFIX) == []
    [probe] = speculating.sent
    assert sampling.items() <= probe.body.items()
    assert probe.body["max_tokens"] == PROBE_TOKENS
    assert told.speculative_config is None
    assert told.considered == []
    [reason] = [text for text in told.warnings if "could not be measured" in text]
    assert reason.startswith("suffix k=1 could not be measured: request rejected")
    assert "min_p" in reason
