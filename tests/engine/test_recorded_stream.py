"""The tuner's reading of a stream and vLLM's own benchmark code, on the same recorded streams.

Both take TTFT from sending to the first chunk with a token, E2E to the last one, TPOT as (E2E -
TTFT) / (completion tokens of ``usage`` - 1), percentiles with linear interpolation, and output
throughput as all output tokens over the time. Three definitions differ, none by 0.1 % here:

- vLLM's benchmark takes the chunk that only names the role for a chat's first token; the tuner
  waits for a token. vLLM sends the two one after the other, so the role's chunk is left out of what
  its benchmark reads below, and another test says how much it would change.
- Its duration ends when the last connection is done, the tuner's with the last token.
- The tuner's throughput is of a window; without padding everything lies in it.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.engine.record_streams import RECORDED
from tuner.load.sse import EventParser
from tuner.load.stream import read_stream
from tuner.measure.figures import figures
from tuner.records import Counters, Figures, RequestSample, Round
from tuner.settings import Settings
from tuner.spec import Load

pytestmark = pytest.mark.engine

Streams = list[dict[str, Any]]
Metrics = dict[str, Any]
ROLE = re.compile(r'\Adata: \{[^\n]*"delta":\{"role":"assistant","content":""\}[^\n]*\n\n')
THE_SAME = 1e-3
COMPARED = (
    "ttft_ms_p50",
    "ttft_ms_p95",
    "tpot_ms_p50",
    "tpot_ms_p95",
    "e2e_ms_p50",
    "e2e_ms_p95",
    "output_throughput_tok_s",
)


@pytest.fixture(scope="module")
def recorded() -> Streams:
    streams: Streams = json.loads(RECORDED.read_text())
    return streams


@pytest.fixture(scope="module")
def ours(recorded: Streams) -> tuple[Round, Figures]:
    """As the client reads it while it streams, but for the clock."""
    samples = []
    for stream in recorded:
        parser = EventParser()
        answer = read_stream(
            (at_ms, payload)
            for at_ms, text in stream["reads"]
            for payload in parser.feed(text.encode())
        )
        samples.append(RequestSample("p", "chat", stream["sent_s"], **vars(answer)))
    round_ = Round(Load(concurrency=len(samples)), tuple(samples))
    return round_, figures(round_, Counters())


@pytest.fixture(scope="module")
def benchmarked(recorded: Streams) -> tuple[Metrics, Metrics]:
    """What vLLM's own code says of it as recorded, and without the chunks that name the role."""
    recordings = [recorded, [without_role(stream) for stream in recorded]]
    done = subprocess.run(
        [Settings().default_engine_python, Path(__file__).with_name("vllm_benchmark.py")],
        input=json.dumps(recordings),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    as_recorded, without = json.loads(done.stdout)
    return as_recorded, without


@pytest.fixture(scope="module")
def theirs(benchmarked: tuple[Metrics, Metrics]) -> Metrics:
    return benchmarked[1]


def without_role(stream: dict[str, Any]) -> dict[str, Any]:
    """The chunk that only names the role begins a chat's first read."""
    (at_ms, first), *others = stream["reads"]
    kept, removed = ROLE.subn("", first)
    assert removed == (stream["endpoint"] == "chat/completions")
    return {**stream, "reads": [(at_ms, kept), *others]}


def test_what_was_recorded_is_worth_comparing(ours: tuple[Round, Figures]) -> None:
    """Several at a time, on both endpoints, and steps of several tokens in one chunk."""
    samples = ours[0].samples
    assert all(s.error is None and s.completion_tokens for s in samples)
    assert len(samples) == 8
    assert max(max(s.chunk_tokens) for s in samples) == 5
    assert sum(len(s.chunk_ms) for s in samples) < sum(s.completion_tokens or 0 for s in samples)


def test_each_request(ours: tuple[Round, Figures], theirs: Metrics) -> None:
    samples = ours[0].samples

    assert [s.completion_tokens for s in samples] == theirs["lengths"]
    assert [s.ttft_ms for s in samples] == pytest.approx(theirs["ttft_ms"], rel=THE_SAME)
    assert [s.e2e_ms for s in samples] == pytest.approx(theirs["e2e_ms"], rel=THE_SAME)


def test_the_round(ours: tuple[Round, Figures], theirs: Metrics) -> None:
    found = ours[1]

    assert (found.requests, found.output_tokens) == (theirs["completed"], theirs["output_tokens"])
    for name in COMPARED:
        assert getattr(found, name) == pytest.approx(theirs[name], rel=THE_SAME), name


def test_the_role_chunk_changes_little(benchmarked: tuple[Metrics, Metrics]) -> None:
    """Chats alone have one; it comes at once before the first token."""
    as_recorded, without = benchmarked

    for name in COMPARED[2:]:
        assert as_recorded[name] == pytest.approx(without[name], rel=THE_SAME), name
    lead_ms = [a - b for a, b in zip(without["ttft_ms"], as_recorded["ttft_ms"], strict=True)]
    assert min(lead_ms) == 0
    assert 0 < max(lead_ms) < 1
