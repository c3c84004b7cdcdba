"""Cases 1 to 3 of people who found speculation slower than nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.cases.rounds import DRAFT, NGRAM, SUFFIX, answer, measured, speculating
from tests.cases.study import Study, study
from tests.measure.answers import answered
from tuner.errors import BaselineError
from tuner.measure.measure import Measured
from tuner.measure.sequential import FIRST_PAIRS
from tuner.records import OFF, Setting
from tuner.spec import EngineSpec, Load


def test_case_01_high_acceptance_that_is_slower_is_off() -> None:
    """Acceptance 96.6 %, acceptance length 1.97 at k=1, and yet 342 to 128 tok/s. Prefix-cache hits
    fell too, 44.5 to 22.3 %, which that method causes itself: shown, not corrected (vllm#39680).
    """
    off_ms, on_ms = 1000 / 342, 1966 / 128
    tokens = 1 + 500 + 483
    baseline = measured(
        answered([1] * tokens, ttft_ms=off_ms, step_ms=off_ms),
        prefix_cache_queries=1000,
        prefix_cache_hits=445,
    )
    candidate = speculating(
        [1] * 483 + [0] * 17,
        k=1,
        ttft_ms=on_ms / 2,
        step_ms=on_ms,
        prefix_cache_queries=1000,
        prefix_cache_hits=223,
    )

    told = answer([baseline] * FIRST_PAIRS, [candidate] * FIRST_PAIRS, SUFFIX)

    [loser] = told.considered
    assert told.speculative_config is None
    assert told.baseline.output_throughput_tok_s == pytest.approx(342)
    assert told.baseline.prefix_cache_hit_share == pytest.approx(0.445)
    assert loser.measured
    assert loser.measured.output_throughput_tok_s == pytest.approx(128, rel=1e-3)
    assert loser.measured.prefix_cache_hit_share == pytest.approx(0.223)
    assert loser.drafting
    assert loser.drafting.acceptance_length.value == pytest.approx(1.966)
    assert loser.speedup.value == pytest.approx(128 / 342, rel=1e-2)


def test_case_01_so_it_is_in_a_study(slow_draft: Study) -> None:
    """Of a draft that is right in 96.6 % and makes a step five times as long (vllm#39680)."""
    [lived] = slow_draft.store.recommendations("case")
    assert lived.speculative_config is None
    [loser] = lived.considered
    assert loser.measured
    assert loser.measured.prefix_cache_hit_share is not None
    assert lived.baseline.prefix_cache_hit_share is not None
    assert loser.drafting
    assert loser.drafting.acceptance_length.value == pytest.approx(1.966, abs=0.1)


def test_case_02_windows_are_pooled_and_say_how_few_steps_drafted() -> None:
    """n-gram on a busy server, 337 to 629 requests running. Three windows of 10 s: 267.6, 826.0 and
    3399.1 tok/s, with 150 of 387, 725 of 1488 and 5306 of 8703 drafted tokens accepted at k=3, that
    is acceptance lengths of 2.16, 2.46 and 2.83 (vllm#19254). Pooled, every eleventh step drafted.
    """
    windows = [
        (2676, 129, (70, 46, 34)),
        (8260, 496, (305, 230, 190)),
        (33991, 2901, (2118, 1700, 1488)),
    ]
    assert [sum(accepted) for _, _, accepted in windows] == [150, 725, 5306]

    def rounds(concurrency: int, seconds: float, *, drafting: bool) -> list[Measured]:
        return [
            measured(
                answered([1, tokens - 1], ttft_ms=100.0, step_ms=1000 * seconds - 100),
                load=Load(concurrency=concurrency),
                speculates=drafting,
                **(counted(drafts, accepted) if drafting else {}),
            )
            for tokens, drafts, accepted in windows * 2
        ]

    def counted(drafts: int, accepted: tuple[int, ...]) -> dict[str, Any]:
        return {
            "drafts": drafts,
            "draft_tokens": 3 * drafts,
            "accepted_tokens": sum(accepted),
            "accepted_at_position": accepted,
        }

    busy = answer(rounds(629, 8.0, drafting=False), rounds(629, 10.0, drafting=True), NGRAM)
    alone = answer(rounds(1, 12.0, drafting=False), rounds(1, 10.0, drafting=True), NGRAM)

    assert busy.load == Load(concurrency=629)
    assert busy.speculative_config is None
    [loser] = busy.considered
    assert loser.measured
    assert loser.measured.output_throughput_tok_s == pytest.approx((2676 + 8260 + 33991) / 30)
    assert loser.drafting
    assert loser.drafting.acceptance_length.value == pytest.approx(1 + 6181 / 3526)
    assert loser.drafting.draft_coverage
    assert loser.drafting.draft_coverage.value == pytest.approx(3526 / (44927 - 3 - 6181))
    assert alone.load == Load(concurrency=1)
    assert alone.speculative_config


@pytest.mark.parametrize(
    ("concurrency", "off_ms", "on_ms", "tax"),
    [(2, 14.374, 15.317, 0.0656), (189, 77.164, 93.820, 0.2158)],
)
def test_case_03_drafting_nothing_still_costs_and_the_baseline_pays_none_of_it(
    concurrency: int, off_ms: float, on_ms: float, tax: float
) -> None:
    """A dynamic schedule that asks for k=0 everywhere drafted nothing, and cost +6.6 % TPOT at
    concurrency 2 and +21.6 % at 189 against no speculative config (vllm#49548).
    """
    schedule = {"num_speculative_tokens_per_batch_size": {"1-4096": 0}}
    idle = Setting.of({**(DRAFT.speculative_config or {}), **schedule})
    load = Load(concurrency=concurrency)
    off = measured(answered([1] * 100, ttft_ms=off_ms, step_ms=off_ms), load=load)
    idly = answered([1] * 100, ttft_ms=on_ms, step_ms=on_ms)
    on = measured(idly, load=load, speculates=True)

    told = answer([off] * FIRST_PAIRS, [on] * FIRST_PAIRS, idle)

    assert told.speculative_config is None
    assert told.considered[0].speedup.value == pytest.approx(1 / (1 + tax), rel=1e-3)


def test_case_03_the_baseline_has_no_speculative_config_at_all(slow_draft: Study) -> None:
    """Not one with k=0, nor one that its argv only hides (vllm#49548)."""
    assert [engine.speculates for engine in slow_draft.engines] == [False, True] * 2
    off = [start for start in slow_draft.store.engine_starts("case") if start.setting.is_off]
    for argv in (slow_draft.engines[0].argv, *(start.argv for start in off)):
        assert not any("spec" in word for word in argv)
    rows = slow_draft.store.measurements(setting=OFF)
    assert {(row.counters.drafts, row.counters.accepted_at_position) for row in rows} == {(0, ())}


@pytest.mark.parametrize(
    "name",
    [
        "speculative_config",
        "--speculative-config",
        "-sc",
        "spec-method",
        "speculative_config.model",
    ],
)
def test_case_03_engine_args_cannot_make_the_baseline_speculate(name: str) -> None:
    with pytest.raises(ValidationError, match="set by the tuner itself"):
        EngineSpec(args={name: '{"method":"ngram","num_speculative_tokens":3}'})


def test_case_03_a_baseline_that_speculates_by_other_ways_is_no_baseline(tmp_path: Path) -> None:
    """In a config file that ``engine.args.config`` names, or in ``engine.command``, no name of an
    argument says so.
    """
    flags = ("--speculative-config", NGRAM.config)

    with study(tmp_path, flags=flags) as running:
        with pytest.raises(BaselineError, match="it speculates"):
            running.answer()

        assert running.store.measurements() == []
