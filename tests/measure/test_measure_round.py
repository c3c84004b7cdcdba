"""Measuring the scripted engine through the same process, HTTP and metrics as a real one."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tuner.engine.command import EngineCommand
from tuner.engine.fake_script import VARIABLE
from tuner.engine.server import Engine, Server
from tuner.errors import EngineDiedError, FailureKind, RoundError
from tuner.load.prompts import load_prompts, round_prompts
from tuner.measure.counters import read_counters
from tuner.measure.measure import measure_round, probe_request, warm_up
from tuner.spec import Load, Sampling, Workload

DRAFT = {"method": "draft_model", "model": "/models/draft", "num_speculative_tokens": 3}
WORKLOAD = Workload(output_tokens=24, requests=8)
LOAD = Load(concurrency=4)
PROMPTS = round_prompts(load_prompts(WORKLOAD), count=8, seed="study/1/4")


def engine(
    tmp_path: Path, speculative_config: dict[str, Any] | None, **script: Any
) -> AbstractContextManager[Server]:
    fast = {"prefill_ms": 0, "step_ms": 1, "step_ms_per_k": 0, "step_ms_per_request": 0}
    config = ("--speculative-config", json.dumps(speculative_config)) if speculative_config else ()
    argv = (sys.executable, "-m", "tuner.engine.fake", "/models/target", *config)
    command = EngineCommand(argv, {VARIABLE: json.dumps({**fast, **script})})
    log_path, run_dir = tmp_path / "engine.log", tmp_path / "run"
    return Engine(command, log_path=log_path, run_dir=run_dir, startup_timeout_s=60)


@pytest.fixture(scope="module")
def off(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with engine(tmp_path_factory.mktemp("off"), None) as server:
        yield server


@pytest.fixture(scope="module")
def perfect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Every draft token is accepted: each step gives four tokens."""
    with engine(tmp_path_factory.mktemp("perfect"), DRAFT, acceptance={"draft": 1.0}) as server:
        yield server


def failure_of(server: Server, workload: Workload = WORKLOAD) -> tuple[FailureKind, str]:
    with pytest.raises(RoundError) as caught:
        measure_round(server, PROMPTS, LOAD, workload)
    return caught.value.failure.kind, caught.value.failure.message


def test_a_round_without_speculation(off: Server) -> None:
    measured = measure_round(off, PROMPTS, LOAD, WORKLOAD)

    figures, counters = measured.figures, measured.counters
    assert (figures.requests, figures.output_tokens) == (8, 8 * 24)
    assert counters.generation_tokens == 8 * 24
    assert counters.prompt_tokens == sum(s.prompt_tokens or 0 for s in measured.round.samples)
    assert (counters.drafts, counters.accepted_at_position) == (0, ())
    assert figures.tokens_per_decode_step == 1.0
    assert figures.acceptance_length is None
    assert figures.draft_coverage is None
    assert figures.output_throughput_tok_s == pytest.approx(8 * 24 / measured.round.duration_s)
    assert [s.finish_reason for s in measured.round.samples] == ["length"] * 8
    assert measured.warnings == ()


def test_a_round_in_which_every_draft_is_accepted(perfect: Server) -> None:
    """25 tokens: one from the prefill, then six steps of four."""
    measured = measure_round(
        perfect, PROMPTS, LOAD, WORKLOAD.model_copy(update={"output_tokens": 25})
    )

    assert measured.counters.drafts == 8 * 6
    assert measured.counters.draft_tokens == 8 * 18
    assert measured.counters.accepted_tokens == 8 * 18
    assert measured.counters.accepted_at_position == (48, 48, 48)
    assert measured.figures.acceptance_length == 4.0
    assert measured.figures.acceptance_at_position == (1.0, 1.0, 1.0)
    assert measured.figures.tokens_per_decode_step == 4.0
    assert measured.figures.draft_coverage == 1.0
    assert measured.warnings == ()


def test_case_20_the_warm_up_decodes_and_is_not_counted(off: Server) -> None:
    """A first request of 1537 ms, then 58 ms (vllm#39790)."""
    before = read_counters(off.base_url)["generation_tokens"]
    warm_up(off, round_prompts(PROMPTS, count=8, seed="warm-up"), LOAD, WORKLOAD)
    warmed = read_counters(off.base_url)["generation_tokens"] - before

    measured = measure_round(off, PROMPTS, LOAD, WORKLOAD)

    assert warmed == 8 * 24
    assert measured.counters.generation_tokens == 8 * 24


def test_case_18_a_second_round_with_the_same_prompts_is_noticed(perfect: Server) -> None:
    """Fixed prompts and a prefix cache: 2.3 times "better" on the second run (vllm#54227)."""
    fresh, again = (round_prompts(PROMPTS, count=8, seed=seed) for seed in ("one", "two"))
    measure_round(perfect, fresh, LOAD, WORKLOAD)

    repeated = measure_round(perfect, fresh, LOAD, WORKLOAD)
    renewed = measure_round(perfect, again, LOAD, WORKLOAD)

    assert repeated.counters.prefix_cache_hits > 0
    assert [w.partition("% ")[2] for w in repeated.warnings] == [
        "of prompt tokens came from the prefix cache"
    ]
    assert renewed.counters.prefix_cache_hits == 0
    assert renewed.warnings == ()


def test_case_16_a_probe_meets_the_refusal_of_the_traffics_own_sampling(perfect: Server) -> None:
    """min_p in the traffic, and every request is a 400 (vllm#42744)."""
    probe_request(perfect, PROMPTS[0], WORKLOAD)

    with pytest.raises(RoundError, match="min_p") as caught:
        probe_request(
            perfect,
            PROMPTS[0],
            WORKLOAD.model_copy(update={"sampling": Sampling(temperature=1, min_p=0.1)}),
        )

    assert caught.value.failure.kind is FailureKind.REQUEST_REJECTED


def test_a_probe_is_short(off: Server) -> None:
    before = read_counters(off.base_url)["generation_tokens"]

    probe_request(off, PROMPTS[0], WORKLOAD)

    assert read_counters(off.base_url)["generation_tokens"] - before == 8


def test_case_10_one_failed_request_of_many(tmp_path: Path) -> None:
    fault = {"kind": "fail_requests", "after_requests": 7}
    with engine(tmp_path, None, faults=[fault]) as server:
        kind, message = failure_of(server)

    assert kind is FailureKind.REQUESTS_FAILED
    assert message.startswith("1 of 8 requests failed: 500: ")


def test_case_7_negative_counters(tmp_path: Path) -> None:
    fault = {"kind": "negative_counters", "method": "draft_model"}
    with engine(tmp_path, DRAFT, faults=[fault]) as server:
        kind, message = failure_of(server)

    assert kind is FailureKind.BAD_COUNTERS
    assert "spec_decode_num_accepted_tokens went from" in message


def test_case_23_an_engine_that_dies_under_load_is_no_failed_request(tmp_path: Path) -> None:
    fault = {"kind": "die_under_load", "after_requests": 5}
    with engine(tmp_path, None, faults=[fault]) as server, pytest.raises(EngineDiedError):
        measure_round(server, PROMPTS, LOAD, WORKLOAD)


def test_no_prompts(off: Server) -> None:
    with pytest.raises(RoundError, match="no request was sent"):
        measure_round(off, [], LOAD, WORKLOAD)
