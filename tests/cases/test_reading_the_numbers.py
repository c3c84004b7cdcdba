"""Cases 6 to 10: numbers that other tools got wrong, or should not have shown."""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from rich.console import Console

from tests.cases.rounds import (
    DRAFT,
    NGRAM,
    SUFFIX,
    answer,
    eleven_tokens,
    measured,
    round_over,
    speculating,
)
from tests.cases.study import study
from tests.factories import measurement
from tests.load.scripted import chat_answer, send
from tests.measure.answers import answered
from tests.measure.exposition import exposition
from tuner import tables
from tuner.answers import Recommendation
from tuner.errors import FailureKind, RoundError
from tuner.measure.sequential import FIRST_PAIRS
from tuner.records import OFF

UNSOUND = (-1.0, math.nan, math.inf)


def numbers_in(value: Any) -> list[float]:
    if isinstance(value, dict):
        return numbers_in(list(value.values()))
    if isinstance(value, list | tuple):
        return [number for item in value for number in numbers_in(item)]
    return [value] if isinstance(value, int | float) else []


def shown(told: Recommendation) -> str:
    """What the command line prints."""
    console = Console(width=200)
    with console.capture() as captured:
        console.print(tables.recommendations([told]))
    return captured.get()


def test_case_06_zero_drafts_are_null_with_a_warning() -> None:
    """0/0 in two tools (vllm#24322, aiperf#1153)."""
    nothing = dict.fromkeys(("spec_decode_num_drafts", "spec_decode_num_draft_tokens"), 7.0)
    accepted = {"spec_decode_num_accepted_tokens": 3.0}
    found = round_over(
        exposition({"generation_tokens": 5.0, **nothing, **accepted}, [2, 1, 0]),
        exposition({"generation_tokens": 38.0, **nothing, **accepted}, [2, 1, 0]),
    )
    slow = [measured(answered([1] * 11, step_ms=2e4))] * FIRST_PAIRS

    told = answer(slow, [found] * FIRST_PAIRS, NGRAM, objective="output_throughput")

    assert found.figures.acceptance_length is None
    assert found.figures.acceptance_at_position is None
    assert found.figures.draft_coverage is None
    assert found.figures.tokens_per_decode_step == 1.0
    assert told.speculative_config
    assert told.acceptance_length is None
    assert told.acceptance_at_position is None
    assert told.drafting is None
    assert "no drafts: acceptance is unknown" in told.warnings
    json.dumps(tables.as_answer([told]), allow_nan=False)


def test_case_06_zero_completions_are_an_error_with_a_reason() -> None:
    """ZeroDivisionError in a third tool (llm-d-benchmark#680)."""

    async def nothing(request: web.Request) -> web.StreamResponse:
        return await send(request, *chat_answer("", completion_tokens=0))

    with pytest.raises(RoundError, match="none of 3 requests was answered"):
        round_over(exposition({"generation_tokens": 0.0}), handler=nothing)


def test_case_07_a_negative_counter_fails_the_candidate_and_nothing_is_stored(
    tmp_path: Path,
) -> None:
    """Accepted = -1 on a counter (vllm#27077)."""
    faults = [{"kind": "negative_counters", "method": "suffix"}]

    with study(tmp_path, {"faults": faults}) as running:
        told = running.answer()

        assert running.store.measurements(setting=SUFFIX) == []
        [failed] = running.store.failures(running.store.measurements()[0].context)
        assert failed.failure.kind is FailureKind.BAD_COUNTERS
        assert told.speculative_config is None
        [reason] = [text for text in told.warnings if "could not be measured" in text]
        assert reason.startswith("suffix k=1 could not be measured: bad counters: ")
        assert "accepted_tokens went from" in reason

        before = running.store.measurements()
        place = {"study": "case", "context": before[0].context, "setting": OFF}
        for number in UNSOUND:
            row = measurement(
                figures=replace(before[0].figures, tpot_ms_p50=number),
                engine_start=before[0].engine_start,
                **place,
            )
            with pytest.raises(RoundError, match="nothing stored"):
                running.store.add_measurements([row])
        assert running.store.measurements() == before


@pytest.mark.parametrize("accepted", UNSOUND)
def test_case_07_a_counter_that_is_no_number_fails_the_round(accepted: float) -> None:
    """Accepted = -1 and NaN logits (vllm#27077, vllm#26372)."""
    before = {"generation_tokens": 0.0, "spec_decode_num_accepted_tokens": 0.0}
    after = {"generation_tokens": 33.0, "spec_decode_num_accepted_tokens": accepted}

    with pytest.raises(RoundError, match="num_accepted_tokens went from ") as caught:
        round_over(exposition(before), exposition(after))

    assert caught.value.failure.kind is FailureKind.BAD_COUNTERS


def test_case_08_a_low_rate_at_a_large_k_is_a_good_length_and_no_rate_is_told() -> None:
    """36 % of the drafted tokens accepted at k=7 is an acceptance length of 3.5, and good; the mean
    rate falls with k by arithmetic alone (vllm#39359).
    """
    reached = (80, 60, 42, 30, 20, 12, 8)
    steps = [sum(draft < n for n in reached) for draft in range(100)]
    deep = speculating(steps, k=7, ttft_ms=20.0, step_ms=20.0)
    off = measured(answered([1] * 353, step_ms=10.0))

    told = answer([off] * FIRST_PAIRS, [deep] * FIRST_PAIRS, DRAFT)

    assert sum(steps) / 700 == sum(reached) / 700 == 0.36
    assert deep.figures.acceptance_length == pytest.approx(3.52)
    assert told.speculative_config == DRAFT.speculative_config
    assert told.drafting
    assert told.drafting.acceptance_length.value == pytest.approx(3.52)
    assert told.acceptance_at_position == pytest.approx([n / 100 for n in reached])
    everything = numbers_in([asdict(deep.figures), tables.as_answer([told])])
    assert not any(math.isclose(n, rate) for n in everything for rate in (0.36, 36.0))
    assert not re.search(r"(?<!\d)(0\.36|36(\.0)?\s*%)", shown(told))


def test_case_09_engines_are_summed_and_their_timestamps_left_out() -> None:
    """A data-parallel server has eight series per counter, and ``_created`` beside each
    (vllm#24049). Those of an engine appear with its first request.
    """
    counters = {
        "spec_decode_num_drafts": 2.0,
        "spec_decode_num_draft_tokens": 6.0,
        "spec_decode_num_accepted_tokens": 3.0,
    }
    idle = exposition(dict.fromkeys(["generation_tokens", *counters], 0.0), [0, 0, 0], engines=1)
    after = exposition({"generation_tokens": 11.0, **counters}, [2, 1, 0], engines=8)

    found = round_over(idle, after, requests=8)

    assert found.counters.generation_tokens == 8 * 11
    assert found.counters.drafts == 16
    assert found.counters.draft_tokens == 48
    assert found.counters.accepted_tokens == 24
    assert found.counters.accepted_at_position == (16, 8, 0)
    assert found.warnings == ()


@pytest.mark.parametrize("failing", [200, 1], ids=["all of 200", "one of 200"])
def test_case_10_failed_requests_never_make_a_throughput(failing: int) -> None:
    """817 requests per second "completed", 200 of 200 failed (vllm#32927)."""
    arrived = iter(range(200))

    async def fail(request: web.Request) -> web.StreamResponse:
        if next(arrived) >= 200 - failing:
            return web.Response(status=500, text="no")
        return await eleven_tokens(request)

    with pytest.raises(RoundError, match="requests failed: 500: no") as caught:
        round_over(
            exposition({"generation_tokens": 0.0}), handler=fail, requests=200, concurrency=200
        )
    assert caught.value.failure.kind is FailureKind.REQUESTS_FAILED


def test_case_10_nor_do_they_make_figures() -> None:
    """817 requests per second are 200 in 245 ms (vllm#32927)."""
    refused = {"completion_tokens": None, "error": "500: no"}
    failed = [answered([1], ttft_ms=245.0, **refused) for _ in range(200)]

    with pytest.raises(RoundError, match="none of 200 requests was answered"):
        measured(*failed)
