"""Is the client a bottleneck? ``python -m tests.benchmarks.client`` holds it against the fake.

The fake decodes in steps of a scripted length, as a process of its own, and logs when it receives
and writes. So what the client measured can be held against the script, and against what the server
really did: the difference between the two is the server's, not the client's.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import psutil

from tuner.engine.fake_script import VARIABLE
from tuner.load.plan import Deck, RoundPlan
from tuner.load.prompts import load_prompts
from tuner.load.rounds import run_round
from tuner.records import RequestSample
from tuner.spec import Load, Workload

STEP_MS = 30.0
OUTPUT_TOKENS = 100
ROUNDS = {1: 8, 20: 100, 200: 600}
"""Streams at once, and how many requests count."""

BUSY, FALSE = 0.8, 0.02
"""A client that takes such a share of a core, or measures a median so far off, is a bottleneck."""

DISTURBED = 0.3
"""Where other processes take such a share of a core, the figures are theirs too."""

Times = np.ndarray[Any, np.dtype[np.float64]]

RESULTS = Path("tests/benchmarks/results")
BUILD = Path("build/bench/client.json")


@contextmanager
def logged_fake(log: Path) -> Iterator[tuple[str, psutil.Process]]:
    """A running server's base URL and process; its log is there when it has ended."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    script = {"step_ms": STEP_MS, "step_ms_per_request": 0, "prefill_ms": 0}
    module = "tests.benchmarks.client.logged_fake"
    server = subprocess.Popen(
        [sys.executable, "-m", module, str(log), "m", "--port", str(port)],
        env=os.environ | {VARIABLE: json.dumps(script)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        base_url = f"http://127.0.0.1:{port}"
        wait_for(f"{base_url}/health", server)
        yield base_url, psutil.Process(server.pid)
    finally:
        server.terminate()
        server.wait()


def wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    while server.poll() is None:
        try:
            urllib.request.urlopen(url).close()  # noqa: S310
        except urllib.error.URLError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit(f"the fake ended with {server.returncode}")


def measure(streams: int, requests: int) -> dict[str, Any]:
    workload = Workload(output_tokens=OUTPUT_TOKENS, requests=requests, ignore_eos=True)
    deck = Deck(load_prompts(workload), seed=f"client/{streams}")
    plan = deck.plan(Load(concurrency=streams), workload)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.json"
        with logged_fake(log) as (base_url, server):
            client = psutil.Process()
            before = time.perf_counter(), cpu_s(client), cpu_s(server), machine_s()
            round_ = run_round(base_url, "m", plan, workload)
            after = time.perf_counter(), cpu_s(client), cpu_s(server), machine_s()
            wall_s, client_s, server_s, all_s = np.subtract(after, before).tolist()
        written = by_prompt(json.loads(log.read_text()))
    if failed := [sample.error for sample in round_.samples if sample.error]:
        raise SystemExit(f"{len(failed)} requests failed: {failed[0]}")
    chunks = sum(len(sample.chunk_ms) for sample in round_.samples)
    return {
        "streams": streams,
        "counted_requests": len(round_.counted),
        "chunks_per_s": round(chunks / wall_s),
        "client_cpu_share_of_a_core": round(client_s / wall_s, 3),
        "client_cpu_us_per_chunk": round(client_s / chunks * 1e6, 1),
        "server_cpu_share_of_a_core": round(server_s / wall_s, 3),
        "others_cpu_share_of_a_core": round((all_s - client_s - server_s) / wall_s, 3),
        **errors(plan, round_.counted, written),
    }


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def machine_s() -> float:
    """What all processes of the machine have used."""
    times = psutil.cpu_times()
    return times.user + times.nice + times.system


def by_prompt(log: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """By what was asked, which is no other request's."""
    return {json.dumps(entry["body"]["messages"]): entry for entry in log}


def errors(
    plan: RoundPlan, samples: Sequence[RequestSample], log: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """Each measured time over the true one, and the distribution of that over requests."""
    entries = [log[json.dumps(arrival.prompt.messages)] for arrival in plan.counted]
    # The role goes first, then the tokens, then usage and the end.
    written = np.array([entry["writes_s"][1 : 1 + OUTPUT_TOKENS] for entry in entries])
    sent = np.array([sample.started_s for sample in samples])
    arrived = sent[:, None] + np.array([sample.chunk_ms for sample in samples]) / 1000
    # The round's start in the server's clock: no chunk arrives before it is written, and of the
    # tens of thousands the quickest took next to no time.
    sent += (written - arrived).max()
    received = np.array([entry["received_s"] for entry in entries])
    tpot = np.array([sample.tpot_ms for sample in samples])
    ttft = np.array([sample.ttft_ms for sample in samples])
    ttft_written, ttft_scripted = (written[:, 0] - sent) * 1000, (scripted(written) - sent) * 1000
    return {
        "tpot_measured_to_scripted": spread(tpot / STEP_MS),
        "tpot_measured_to_written": spread(tpot / (np.diff(written).mean(axis=1) * 1000)),
        "ttft_measured_to_scripted": spread(ttft / ttft_scripted),
        "ttft_measured_to_written": spread(ttft / ttft_written),
        "ttft_late_ms": spread(ttft - ttft_written),
        "server_late_ms": spread(ttft_written - ttft_scripted),
        "on_the_way_to_the_server_ms": spread((received - sent) * 1000),
    }


def scripted(written: Times) -> Times:
    """When the script has the first token of each request come (a row each).

    Its tokens are to come a step apart, and of a hundred the most punctual is next to no time late:
    in the batch a request moves from the last place to the first.
    """
    in_a_row = written - np.arange(written.shape[1]) * STEP_MS / 1000
    return in_a_row.min(axis=1)


def spread(values: Times) -> dict[str, float]:
    return {f"p{q}": round(float(np.percentile(values, q)), 4) for q in (5, 50, 95)}


def is_bottleneck(level: dict[str, Any]) -> bool:
    off = abs(level["tpot_measured_to_written"]["p50"] - 1)
    return level["client_cpu_share_of_a_core"] > BUSY or off > FALSE


def show(level: dict[str, Any]) -> None:
    print(f"\n{level['streams']} streams, {level['chunks_per_s']} chunks/s")
    print(f"  client CPU {level['client_cpu_share_of_a_core']:7.1%} of a core,", end=" ")
    print(f"{level['client_cpu_us_per_chunk']:.0f} us a chunk")
    print(f"  server CPU {level['server_cpu_share_of_a_core']:7.1%} of a core")
    print(f"  others CPU {level['others_cpu_share_of_a_core']:7.1%} of a core")
    for name, values in level.items():
        if isinstance(values, dict):
            told = "  ".join(f"{quantile} {value:8.4f}" for quantile, value in values.items())
            print(f"  {name.replace('_', ' '):28} {told}")


def write(levels: Sequence[dict[str, Any]], *, keep: bool) -> bool:
    """Writes the result, in ``RESULTS`` too if it is to be kept. Whether there is a bottleneck."""
    now = datetime.now(UTC)
    result = {
        "measured_at": now.isoformat(timespec="seconds"),
        "conditions": {
            "cpus": os.cpu_count(),
            "python": sys.version.split()[0],
            "aiohttp": aiohttp.__version__,
            "scripted_step_ms": STEP_MS,
            "output_tokens": OUTPUT_TOKENS,
        },
        "levels": levels,
        "bottleneck": any(is_bottleneck(level) for level in levels),
    }
    for path in [BUILD, *([RESULTS / f"client-{now:%Y-%m-%d}.json"] if keep else [])]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=2) + "\n")
    if any(level["others_cpu_share_of_a_core"] > DISTURBED for level in levels):
        print("\nOther processes were busy on this machine: measure again when it is idle.")
    print(f"\nThe client is {'a' if result['bottleneck'] else 'no'} bottleneck. {BUILD}")
    return bool(result["bottleneck"])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.client")
    parser.add_argument("--keep", action="store_true", help=f"write a dated copy to {RESULTS}")
    arguments = parser.parse_args()
    levels = []
    for streams, requests in ROUNDS.items():
        levels.append(measure(streams, requests))
        show(levels[-1])
    sys.exit(write(levels, keep=arguments.keep))


if __name__ == "__main__":
    main()
