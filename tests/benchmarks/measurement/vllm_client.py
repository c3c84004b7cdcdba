"""Runs in vLLM's own interpreter: its benchmark client, one round for each line of standard input.

A line is ``{"base_url", "model", "dataset", "requests", "output_tokens", "concurrency"}``, the
answer a line with what its benchmark found. It stays up because importing vLLM takes 10 to 15 s.
"""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any

from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser

FIGURES = {
    "ttft_ms_mean": "mean_ttft_ms",
    "tpot_ms_mean": "mean_tpot_ms",
    "ttft_ms_p50": "median_ttft_ms",
    "tpot_ms_p50": "median_tpot_ms",
    "output_throughput_tok_s": "output_throughput",
    "requests": "completed",
    "prompt_tokens": "total_input_tokens",
    "output_tokens": "total_output_tokens",
}


def benchmark(parser: FlexibleArgumentParser, job: dict[str, Any]) -> dict[str, float]:
    """``--skip-chat-template``: the server applies it, to chats as they come."""
    options = {
        "--backend": "openai-chat",
        "--base-url": job["base_url"],
        "--endpoint": "/v1/chat/completions",
        "--model": job["model"],
        "--dataset-name": "custom",
        "--dataset-path": job["dataset"],
        "--num-prompts": job["requests"],
        "--custom-output-len": job["output_tokens"],
        "--max-concurrency": job["concurrency"],
        "--temperature": 0,
        "--ready-check-timeout-sec": 0,
        "--num-warmups": job["concurrency"],
    }
    argv = [str(word) for option in options.items() for word in option]
    flags = ["--ignore-eos", "--disable-shuffle", "--skip-chat-template", "--disable-tqdm"]
    result = main(parser.parse_args(argv + flags))
    return {ours: result[theirs] for ours, theirs in FIGURES.items()}


def serve() -> None:
    parser = FlexibleArgumentParser()
    add_cli_args(parser)
    for line in sys.stdin:
        with contextlib.redirect_stdout(sys.stderr):
            found = benchmark(parser, json.loads(line))
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    serve()
