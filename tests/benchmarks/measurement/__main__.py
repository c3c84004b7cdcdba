"""Does another tool measure the same? ``python -m tests.benchmarks.measurement`` asks vLLM's own.

The tuner's client and vLLM's benchmark client run the same requests against the same real server in
turn (A B B A), at three concurrencies, with and without speculation. Prefix caching is off, so that
both can send the very same prompts; each turn has its own. Answers have a fixed length. A pair is
made of two short turns of each: a machine's speed wanders, and they follow each other more closely.

What is measured is kept as it comes: a run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from tests.benchmarks.measurement import pairs
from tests.benchmarks.measurement.clients import (
    ALSO,
    METRICS,
    Found,
    VllmClient,
    our_client,
    vllm_client,
)
from tests.engine.conftest import ENGINE, RealVllm, _running
from tuner.engine.host import host_facts
from tuner.engine.probe import probe
from tuner.engine.server import Server
from tuner.load.plan import Deck
from tuner.load.prompts import Prompt, load_prompts
from tuner.settings import Settings
from tuner.spec import Load, Workload

MODEL, DRAFT = "smollm2", "draft-noise-0.1"
WITH_DRAFT = "draft_model k=2"
SETTINGS = ("off", WITH_DRAFT)
"""Speculation with a draft: of all methods it has the longest steps, so the clients' own use of the
cores that the server lives on weighs least. With ngram, whose steps are as short as plain ones, the
server was 4 % slower under vLLM's client at concurrency 4 (measurement-ngram-2026-11-30.json).
"""
SAME = ("requests", "prompt_tokens", "output_tokens")
LOW, HIGH = 0.95, 1.05
MODEL_CORE, OTHER_CORES = {0}, set(range(1, os.cpu_count() or 2))
ONE_CORE = {"VLLM_CPU_OMP_THREADS_BIND": "0"}
"""The model has a core for itself: else a client that uses more of the CPU would slow down the very
server that it measures (vLLM's uses about ten times as much as ours), and so would the engine's
own polling, whenever it happens to be put there.
"""
RESULTS = Path("tests/benchmarks/results")
BUILD = Path("build/bench/measurement.json")
UNFINISHED = Path("build/bench/measurement-pairs.json")


@dataclass(frozen=True)
class Traffic:
    """What one turn of one client sends: about 3 s of it on two cores."""

    concurrency: int
    requests: int
    output_tokens: int

    @property
    def workload(self) -> Workload:
        return Workload(requests=self.requests, output_tokens=self.output_tokens, ignore_eos=True)


LOADS = (Traffic(1, 5, 12), Traffic(4, 8, 24), Traffic(16, 16, 24))
TURNS = 2
"""Of each client in a pair."""

Pair = dict[str, Found]
"""What each client found: ``ours`` and ``vllm``."""


class Kept:
    """The pairs so far, by setting and concurrency, on disk after each one."""

    def __init__(self, conditions: dict[str, Any]) -> None:
        self._conditions = conditions
        self._pairs: dict[str, list[Pair]] = defaultdict(list)
        if UNFINISHED.exists():
            kept = json.loads(UNFINISHED.read_text())
            if kept["conditions"] == json.loads(json.dumps(conditions)):
                self._pairs.update(kept["pairs"])
                print(f"going on with {sum(map(len, self._pairs.values()))} pairs of {UNFINISHED}")

    def of(self, setting: str, traffic: Traffic) -> list[Pair]:
        return self._pairs[f"{setting}, concurrency {traffic.concurrency}"]

    def add(self, setting: str, traffic: Traffic, pair: Pair) -> None:
        self.of(setting, traffic).append(pair)
        UNFINISHED.parent.mkdir(parents=True, exist_ok=True)
        kept = {"conditions": self._conditions, "pairs": self._pairs}
        UNFINISHED.write_text(json.dumps(kept, indent=1))


def pin(server: Server, *clients: int) -> None:
    """The process that computes to its core, everything else to the others."""
    for pid in [*server._process.members(), *clients]:
        computes = "Worker" in " ".join(psutil.Process(pid).cmdline())
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), MODEL_CORE if computes else OTHER_CORES)


def log_ratios(found: list[Pair], metric: str) -> list[float]:
    return [math.log(pair["ours"][metric] / pair["vllm"][metric]) for pair in found]


def missing(found: list[Pair]) -> int:
    return pairs.PAIRS - len(found)


def one_message(prompts: list[Prompt]) -> list[Prompt]:
    """All that vLLM's client can send."""
    return [p for p in prompts if p.messages and len(p.messages) == 1]


def measure(server: Server, client: VllmClient, setting: str, traffic: Traffic, kept: Kept) -> None:
    """A warm-up of both, then pairs until there are enough."""
    workload = traffic.workload
    deck = Deck(one_message(load_prompts(workload)), seed=f"{setting}/{time.time_ns()}")
    load = Load(concurrency=traffic.concurrency)
    calls = {"ours": our_client, "vllm": client.run}
    for call in calls.values():
        call(server, deck.plan(load, workload), workload)
    while missing(found := kept.of(setting, traffic)) > 0:
        started = time.monotonic()
        turns = []
        for turn in range(TURNS):
            plan = deck.plan(load, workload)
            order = ("ours", "vllm") if turn % 2 == 0 else ("vllm", "ours")
            both = {name: calls[name](server, plan, workload) for name in order}
            for name in SAME:
                if both["ours"][name] != both["vllm"][name]:
                    raise SystemExit(f"{name} differ: {both}")
            turns.append(both)
        pair = {name: together([turn[name] for turn in turns]) for name in calls}
        seconds = time.monotonic() - started
        kept.add(setting, traffic, pair)
        told = "  ".join(f"{m} {pair['ours'][m] / pair['vllm'][m]:.3f}" for m in METRICS)
        number = f"pair {len(found)} of {pairs.PAIRS}"
        print(
            f"{setting:15} concurrency {traffic.concurrency:<2} {number}: {told} ({seconds:.0f} s)"
        )


def together(turns: list[Found]) -> Found:
    """A client's turns of one pair, by their geometric means."""
    names = METRICS + ALSO
    return {name: math.exp(fmean(math.log(turn[name]) for turn in turns)) for name in names}


def results(kept: Kept) -> Iterator[dict[str, Any]]:
    for setting in SETTINGS:
        for traffic in LOADS:
            found = kept.of(setting, traffic)
            for metric in METRICS + ALSO:
                ratio, low, high = pairs.interval(log_ratios(found, metric))
                yield {
                    "setting": setting,
                    "concurrency": traffic.concurrency,
                    "metric": metric,
                    "ratio": round(ratio, 4),
                    "low": round(low, 4),
                    "high": round(high, 4),
                    "decides": metric in METRICS,
                    "inside": low > LOW and high < HIGH,
                    "pairs": len(found),
                    "ours": round(sum(p["ours"][metric] for p in found) / len(found), 3),
                    "vllm": round(sum(p["vllm"][metric] for p in found) / len(found), 3),
                }


def write(kept: Kept, conditions: dict[str, Any], *, keep: bool) -> bool:
    """The result, also as a dated copy. Says whether every interval lies inside."""
    now = datetime.now(UTC)
    found = list(results(kept))
    inside = all(result["inside"] for result in found if result["decides"])
    text = json.dumps(
        {
            "measured_at": now.isoformat(timespec="seconds"),
            "conditions": {**conditions, "load_average": os.getloadavg()},
            "confidence": pairs.CONFIDENCE,
            "rule": pairs.RULE,
            "wanted": [LOW, HIGH],
            "inside": inside,
            "results": found,
        },
        indent=2,
    )
    for path in [BUILD, *([RESULTS / f"measurement-{now:%Y-%m-%d}.json"] if keep else [])]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    for r in found:
        place = f"{r['setting']:10} concurrency {r['concurrency']:<2} {r['metric']:24}"
        print(f"{place} {r['ratio']:.3f}  {r['low']:.3f} to {r['high']:.3f}  {r['pairs']} pairs")
    return inside


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.measurement")
    parser.add_argument("--keep", action="store_true", help=f"write a dated copy to {RESULTS}")
    keep = parser.parse_args().keep
    settings = Settings()
    family = settings.models_dir / "smollm2-family"
    model = family / MODEL
    configs: dict[str, dict[str, Any] | None] = {
        "off": None,
        WITH_DRAFT: {
            "method": "draft_model",
            "model": str(family / DRAFT),
            "num_speculative_tokens": 2,
        },
    }
    vllm = RealVllm(settings.default_engine_python, str(model))
    conditions = {
        "host": str(host_facts()),
        "python": sys.version.split()[0],
        "vllm": probe(ENGINE, vllm.python).version,
        "model": MODEL,
        "engine_args": dict(ENGINE.args) | {"enable_prefix_caching": False},
        "engine_env": dict(ENGINE.env) | ONE_CORE,
        "draft": DRAFT,
        "settings": SETTINGS,
        "loads": [vars(traffic) for traffic in LOADS],
        "turns": TURNS,
    }
    kept = Kept(conditions)
    with TemporaryDirectory() as folder, vllm_client(vllm.python, Path(folder)) as client:
        for setting, config in configs.items():
            if all(missing(kept.of(setting, traffic)) <= 0 for traffic in LOADS):
                continue
            command = vllm.command(config, enable_prefix_caching=False)
            command = replace(command, env={**command.env, **ONE_CORE})
            with _running(command, Path(folder)) as server:
                pin(server, os.getpid(), client.pid)
                for traffic in LOADS:
                    measure(server, client, setting, traffic, kept)
    inside = write(kept, conditions, keep=keep)
    UNFINISHED.unlink(missing_ok=True)
    print(f"\nThe clients {'agree' if inside else 'DO NOT agree'}. {BUILD}")
    sys.exit(not inside)


if __name__ == "__main__":
    main()
