"""A round against real vLLM: its counters, its accounts of answers and its streams agree."""

from __future__ import annotations

import pytest

from tuner.engine.server import Server
from tuner.load.plan import Deck, RoundPlan
from tuner.load.prompts import load_prompts
from tuner.measure.caveats import arrived_tokens
from tuner.measure.drafting import drafting, finished
from tuner.measure.measure import Measured, measure_round
from tuner.spec import Load, Workload

pytestmark = pytest.mark.engine

WORKLOAD = Workload(output_tokens=24, requests=4)


def plan(concurrency: int, seed: str) -> RoundPlan:
    return Deck(load_prompts(WORKLOAD), seed).plan(Load(concurrency=concurrency), WORKLOAD)


def disagreements(measured: Measured) -> list[str]:
    """Caveats that say that two sources contradict each other, not those about the output."""
    words = (
        "the server generated",
        "the server counted",
        "answers carried",
        "decode steps arrived",
    )
    return [caveat for caveat in measured.warnings if any(word in caveat for word in words)]


def test_every_step_of_an_unpadded_round_is_accounted_for(real_own_draft: Server) -> None:
    """VLLM counts a step's accepted tokens before it cuts them off, and tells them so too."""
    measured = measure_round(real_own_draft, plan(1, "alone"), WORKLOAD)

    samples, counters = measured.round.samples, measured.counters
    accepted = [n for s in samples for n in s.accepted_per_step or ()]
    drafted = [n for s in samples for n in s.drafted_per_step or ()]
    assert (len(accepted), len(drafted)) == (counters.drafts, counters.drafts)
    assert sum(accepted) == counters.accepted_tokens
    assert sum(drafted) == counters.draft_tokens
    assert counters.generation_tokens == arrived_tokens(samples)
    assert [len(s.token_ids) for s in samples] == [s.completion_tokens for s in samples]
    assert counters.queued_requests == len(samples)
    assert disagreements(measured) == []


def test_a_padded_round_of_an_engine_that_speculates(real_own_draft: Server) -> None:
    measured = measure_round(real_own_draft, plan(3, "together"), WORKLOAD)

    found = drafting([(measured.counters, measured.round.samples)])
    assert found is not None
    assert found.by == "request"
    assert found.draft_coverage is not None
    assert found.draft_coverage.value == 1.0
    assert len(finished(measured.round.counted)) == 4
    assert disagreements(measured) == []


def test_a_padded_round_without_speculation(real_baseline: Server) -> None:
    """What is cut off in the end is seen to be gone before the counters are read."""
    first = measure_round(real_baseline, plan(3, "first"), WORKLOAD)
    second = measure_round(real_baseline, plan(1, "second"), WORKLOAD)

    assert first.figures.tokens_per_decode_step == 1.0
    assert first.figures.acceptance_length is None
    assert any(not s.counted for s in first.round.samples)
    assert second.counters.generation_tokens == arrived_tokens(second.round.samples)
    assert disagreements(first) + disagreements(second) == []
