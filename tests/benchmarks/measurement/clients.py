"""The two clients: each runs the same requests against a server and says what it found."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from tuner.engine.server import Server
from tuner.load.plan import RoundPlan
from tuner.load.rounds import run_round
from tuner.measure.figures import figures
from tuner.records import Counters
from tuner.spec import Workload

METRICS = ("ttft_ms_mean", "tpot_ms_mean", "output_throughput_tok_s")
"""What must agree. Both clients send the same few prompts, so means are steadier than medians,
which jump with the way in which a wave of requests happens to meet the engine's steps.
"""

ALSO = ("ttft_ms_p50", "tpot_ms_p50")
"""Told beside them."""

Found = dict[str, float]
"""METRICS, ALSO, and what must be equal in both: requests, prompt_tokens and output_tokens."""


class VllmClient:
    """VLLM's benchmark client, in a process of its own that stays up."""

    def __init__(self, process: subprocess.Popen[str], dataset: Path) -> None:
        self._process = process
        self._dataset = dataset

    @property
    def pid(self) -> int:
        return self._process.pid

    def run(self, server: Server, plan: RoundPlan, workload: Workload) -> Found:
        """Raises SystemExit when the process ended instead of answering."""
        texts = [(a.prompt.messages or ({},))[0]["content"] for a in plan.counted]
        self._dataset.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
        job = {
            "base_url": server.base_url,
            "model": server.model,
            "dataset": str(self._dataset),
            "requests": len(texts),
            "output_tokens": workload.output_tokens,
            "concurrency": plan.load.concurrency,
        }
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"vLLM's client ended; see {self._dataset.with_name('client.log')}")
        found: Found = json.loads(answer)
        return found


@contextmanager
def vllm_client(python: Path, folder: Path) -> Iterator[VllmClient]:
    script = Path(__file__).with_name("vllm_client.py")
    with (
        (folder / "client.log").open("w") as log,
        subprocess.Popen(
            [python, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        try:
            yield VllmClient(process, folder / "prompts.jsonl")
        finally:
            process.kill()


def our_client(server: Server, plan: RoundPlan, workload: Workload) -> Found:
    """Without padding, as vLLM's benchmark has none, and like it warm: one batch is thrown away.

    An engine that was idle while a client got ready begins more slowly.
    """
    concurrency = plan.load.concurrency or 1
    warm_up = replace(plan, counted=plan.counted[:1] * concurrency)
    run_round(server.base_url, server.model, warm_up, workload, padded=False)
    round_ = run_round(server.base_url, server.model, plan, workload, padded=False)
    found = figures(round_, Counters())
    counts: dict[str, Any] = {
        "ttft_ms_mean": fmean(s.ttft_ms for s in round_.samples if s.ttft_ms is not None),
        "tpot_ms_mean": fmean(s.tpot_ms for s in round_.samples if s.tpot_ms is not None),
        "requests": found.requests,
        "prompt_tokens": sum(s.prompt_tokens or 0 for s in round_.samples),
        "output_tokens": found.output_tokens,
    }
    own = (*ALSO, "output_throughput_tok_s")
    return {name: getattr(found, name) for name in own} | counts
