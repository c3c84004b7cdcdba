"""Measuring the scripted engine through the same process, HTTP and metrics as a real one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.engine.fakes import fake
from tests.factories import measurement
from tuner.engine.server import Engine, Server
from tuner.errors import EngineDiedError, FailureKind, RoundError
from tuner.load.plan import Deck, RoundPlan
from tuner.load.prompts import load_prompts
from tuner.measure.counters import read_counters
from tuner.measure.drafting import drafting
from tuner.measure.figures import recompute
from tuner.measure.measure import Measured, measure_round, probe_request, warm_up
from tuner.spec import Load, Sampling, Workload

DRAFT = {"method": "draft_model", "model": "/models/draft", "num_speculative_tokens": 3}
WORKLOAD = Workload(output_tokens=24, requests=8)
LOAD = Load(concurrency=4)
PROMPTS = load_prompts(WORKLOAD)


def plan(seed: str, load: Load = LOAD) -> RoundPlan:
    return Deck(PROMPTS, seed).plan(load, WORKLOAD)


def engine(
    tmp_path: Path, speculative_config: dict[str, Any] | None, **script: Any
) -> AbstractContextManager[Server]:
    return Engine(
        fake(speculative_config, **script),
        log_path=tmp_path / "engine.log",
        run_dir=tmp_path / "run",
        startup_timeout_s=60,
    )


@pytest.fixture(scope="module")
def off(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with engine(tmp_path_factory.mktemp("off"), None) as server:
        yield server


@pytest.fixture(scope="module")
def perfect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Every draft token is accepted: each step gives four tokens."""
    with engine(tmp_path_factory.mktemp("perfect"), DRAFT, acceptance={"draft": 1.0}) as server:
        yield server


def failure_of(server: Server) -> tuple[FailureKind, str]:
    with pytest.raises(RoundError) as caught:
        measure_round(server, plan("failing"), WORKLOAD)
    return caught.value.failure.kind, caught.value.failure.message


def arrived(measured: Measured) -> int:
    """Tokens that reached the client, those of requests that were cut off included."""
    return sum(len(s.token_ids) for s in measured.round.samples)


def test_a_round_without_speculation(off: Server) -> None:
    measured = measure_round(off, plan("off"), WORKLOAD)

    figures, counters = measured.figures, measured.counters
    assert figures.requests == 8
    assert figures.mean_output_tokens == 24
    assert [s.finish_reason for s in measured.round.counted] == ["length"] * 8
    assert (counters.drafts, counters.accepted_at_position) == (0, ())
    assert counters.generation_tokens >= arrived(measured) > 8 * 24
    assert figures.tokens_per_decode_step == 1.0
    assert figures.acceptance_length is None
    assert figures.draft_coverage is None
    assert figures.queue_ms_mean is not None
    assert figures.output_tokens <= arrived(measured)
    assert measured.warnings == ()


def test_a_single_client_needs_no_padding(off: Server) -> None:
    """So everything is in the window: vLLM's definition of the output throughput."""
    measured = measure_round(off, plan("alone", Load(concurrency=1)), WORKLOAD)

    figures = measured.figures
    assert figures.output_tokens == measured.counters.generation_tokens == 8 * 24
    assert figures.output_throughput_tok_s == pytest.approx(8 * 24 / figures.duration_s)
    assert measured.warnings == ()


def test_a_round_in_which_every_draft_is_accepted(perfect: Server) -> None:
    """Each step gives four tokens; of the last one, one is cut: 24 is the prefill's and 23."""
    measured = measure_round(perfect, plan("perfect"), WORKLOAD)

    figures = measured.figures
    assert figures.acceptance_length == 4.0
    assert figures.acceptance_at_position == (1.0, 1.0, 1.0)
    assert figures.draft_coverage == 1.0
    answers = [s for s in measured.round.samples if s.finish_reason]
    tokens = sum((s.completion_tokens or 0) - 1 for s in answers)
    steps = sum(len(s.accepted_per_step or ()) for s in answers)
    assert figures.tokens_per_decode_step == pytest.approx(tokens / steps)
    assert {len(s.accepted_per_step or ()) for s in measured.round.counted} == {6}
    assert measured.warnings == ()


def test_drafting_of_a_round_is_by_request(tmp_path: Path) -> None:
    with engine(tmp_path, DRAFT, acceptance={"draft": 0.6}) as server:
        measured = measure_round(server, plan("sometimes"), WORKLOAD)

    found = drafting([(measured.counters, measured.round.samples)])

    assert found is not None
    assert found.by == "request"
    assert found.clusters >= 8
    length = found.acceptance_length
    assert length.low is not None
    assert length.high is not None
    assert length.low < length.value < length.high
    assert measured.warnings == ()


def test_what_a_round_keeps_is_enough_for_its_figures(perfect: Server) -> None:
    measured = measure_round(perfect, plan("kept"), WORKLOAD)
    kept = measurement(load=LOAD, figures=measured.figures, counters=measured.counters)

    assert recompute(kept, measured.round.samples) == kept.figures


def test_an_open_loop(off: Server) -> None:
    """The counted requests come into traffic that is already there, and end in it."""
    measured = measure_round(off, plan("open", Load(request_rate=50.0)), WORKLOAD)

    assert measured.figures.requests == 8
    assert measured.figures.max_send_lag_ms is not None
    assert any(not s.counted for s in measured.round.samples)


def test_case_20_the_warm_up_decodes_and_is_not_counted(off: Server) -> None:
    """A first request of 1537 ms, then 58 ms (vllm#39790)."""
    before = read_counters(off.base_url)["generation_tokens"]
    warm_up(off, plan("warm-up"), WORKLOAD)
    warmed = read_counters(off.base_url)["generation_tokens"] - before

    measured = measure_round(off, plan("warm", Load(concurrency=1)), WORKLOAD)

    assert warmed == 8 * 24
    assert measured.counters.generation_tokens == 8 * 24


def test_case_18_a_second_round_with_the_same_prompts_is_noticed(perfect: Server) -> None:
    """Fixed prompts and a prefix cache: 2.3 times "better" on the second run (vllm#54227)."""
    deck = Deck(PROMPTS, "twice")
    once, renewed = deck.plan(LOAD, WORKLOAD), deck.plan(LOAD, WORKLOAD)
    first = measure_round(perfect, once, WORKLOAD)

    again = measure_round(perfect, once, WORKLOAD)
    fresh = measure_round(perfect, renewed, WORKLOAD)

    assert (first.counters.prefix_cache_hits, first.warnings) == (0, ())
    assert [w.partition("% ")[2] for w in again.warnings] == [
        "of prompt tokens came from the prefix cache"
    ]
    assert (fresh.counters.prefix_cache_hits, fresh.warnings) == (0, ())


def test_case_16_a_probe_meets_the_refusal_of_the_traffics_own_sampling(perfect: Server) -> None:
    """min_p in the traffic, and every request is a 400 (vllm#42744)."""
    probe_request(perfect, PROMPTS[0], WORKLOAD)
    sampling = Sampling(temperature=1, min_p=0.1)

    with pytest.raises(RoundError, match="min_p") as caught:
        probe_request(perfect, PROMPTS[0], WORKLOAD.model_copy(update={"sampling": sampling}))

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
    assert "requests failed: 500: " in message


def test_case_7_negative_counters(tmp_path: Path) -> None:
    """Accepted = -1 on a counter (vllm#27077)."""
    fault = {"kind": "negative_counters", "method": "draft_model"}
    with engine(tmp_path, DRAFT, faults=[fault]) as server:
        kind, message = failure_of(server)

    assert kind is FailureKind.BAD_COUNTERS
    assert "spec_decode_num_accepted_tokens went from" in message


def test_a_server_without_usage(tmp_path: Path) -> None:
    with engine(tmp_path, None, faults=[{"kind": "no_usage"}]) as server:
        kind, message = failure_of(server)

    assert kind is FailureKind.REQUEST_REJECTED
    assert "--enable-force-include-usage" in message


def test_case_23_an_engine_that_dies_under_load_is_no_failed_request(tmp_path: Path) -> None:
    """An engine that dies mid-run exits 0 (vllm#48966)."""
    fault = {"kind": "die_under_load", "after_requests": 5}
    with engine(tmp_path, None, faults=[fault]) as server, pytest.raises(EngineDiedError):
        measure_round(server, plan("dying"), WORKLOAD)
