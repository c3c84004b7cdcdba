"""Runs in vLLM's own interpreter: what its benchmark makes of recorded streams.

Recordings, a list of streams each, come as a JSON list on standard input; the metrics of each go as
a JSON list to standard output. The request functions and the sums are vLLM's own; only the
connection and the clock are played.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, Self

from vllm.benchmarks.lib import endpoint_request_func
from vllm.benchmarks.lib.endpoint_request_func import (
    RequestFuncInput,
    async_request_openai_chat_completions,
    async_request_openai_completions,
)
from vllm.benchmarks.serve import calculate_metrics

CALLS = {
    "chat/completions": async_request_openai_chat_completions,
    "completions": async_request_openai_completions,
}


class Playback:
    """A session, its response, the response's content and the clock, in one: of one stream."""

    status = 200

    def __init__(self, stream: dict[str, Any]) -> None:
        self._sent_s = stream["sent_s"]
        self._reads = stream["reads"]
        self.content = self
        self.now_s: float = self._sent_s

    def perf_counter(self) -> float:
        return self.now_s

    def post(self, **_: Any) -> Playback:
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def iter_any(self) -> AsyncIterator[bytes]:
        for at_ms, text in self._reads:
            self.now_s = self._sent_s + at_ms / 1000
            yield text.encode()


def metrics_of(streams: list[dict[str, Any]]) -> dict[str, Any]:
    outputs = []
    end_s = 0.0
    for stream in streams:
        playback = Playback(stream)
        endpoint_request_func.time = SimpleNamespace(perf_counter=playback.perf_counter)
        asked = RequestFuncInput(
            prompt="", api_url=f"/v1/{stream['endpoint']}", prompt_len=0, output_len=0, model="m"
        )
        outputs.append(asyncio.run(CALLS[stream["endpoint"]](asked, playback)))
        end_s = max(end_s, playback.now_s)
    metrics, lengths = calculate_metrics(
        input_requests=[],
        outputs=outputs,
        # As benchmark() takes it: from before the first request to when all have ended.
        dur_s=end_s - min(stream["sent_s"] for stream in streams),
        tokenizer=None,
        selected_percentiles=[50, 95],
        goodput_config_dict={},
    )
    return {
        "completed": metrics.completed,
        "output_tokens": metrics.total_output,
        "lengths": lengths,
        "ttft_ms": [output.ttft * 1000 for output in outputs],
        "e2e_ms": [output.latency * 1000 for output in outputs],
        "ttft_ms_p50": metrics.median_ttft_ms,
        "ttft_ms_p95": dict(metrics.percentiles_ttft_ms)[95],
        "tpot_ms_p50": metrics.median_tpot_ms,
        "tpot_ms_p95": dict(metrics.percentiles_tpot_ms)[95],
        "e2e_ms_p50": metrics.median_e2el_ms,
        "e2e_ms_p95": dict(metrics.percentiles_e2el_ms)[95],
        "output_throughput_tok_s": metrics.output_throughput,
    }


def main() -> None:
    with contextlib.redirect_stdout(sys.stderr):
        found = [metrics_of(streams) for streams in json.load(sys.stdin)]
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
