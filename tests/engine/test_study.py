"""One short study of real vLLM, killed twice on the way: from `tuner optimize` to a live server.

The answer is known: the target is its draft at three times the compute, so speculation pays. In
float32: where the processor has no bfloat16 instructions, what bfloat16 takes made this study last
too long.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest
import yaml

from tests.engine.asking import SPECULATIVE, counters, post
from tests.engine.conftest import ENGINE
from tuner.engine.guard import members
from tuner.errors import StorageError
from tuner.records import Stage
from tuner.settings import Settings
from tuner.store import Store

pytestmark = pytest.mark.engine

GONE_WITHIN_S = 10.0
FIELDS = {
    "study",
    "objective",
    "load",
    "speculative_config",
    "engine_args",
    "launch_command",
    "speedup",
    "measured",
    "baseline",
    "acceptance_length",
    "acceptance_at_position",
    "tokens_per_decode_step",
    "kv_cache_tokens",
    "cost",
    "confirmed",
    "evidence",
    "engine",
    "hardware",
    "workload",
    "measured_at",
    "warnings",
    "drafting",
    "breakdown",
    "sameness",
    "pairs",
    "stopped_because",
}
"""What a recommendation promises to have."""


class Bench:
    """A folder with a study and a store of its own, worked on by the command line."""

    def __init__(self, folder: Path, models_dir: Path, python: Path) -> None:
        self.settings = Settings(data_dir=folder / "data", engine_python=python)
        self._environment = os.environ | {
            "TUNER_DATA_DIR": str(self.settings.data_dir),
            "TUNER_ENGINE_PYTHON": str(python),
        }
        self.study = folder / "study.yaml"
        family = models_dir / "smollm2-family"
        self.study.write_text(
            yaml.safe_dump(
                {
                    "name": "real",
                    "target": {"model": str(family / "target")},
                    "engine": {
                        "args": {**ENGINE.args, "dtype": "float32"},
                        "env": dict(ENGINE.env),
                    },
                    "candidates": [
                        {"method": "draft_model", "model": str(family / "smollm2"), "k": 3}
                    ],
                    "workload": {"output_tokens": 24, "requests": 2},
                    "loads": [{"concurrency": 1}],
                    "price": {"usd_per_hour": 0.1},
                    "budget": {"screen_tokens": 1500},  # 6,000 take minutes, and show no more here
                    "precision": 0.4,
                }
            )
        )

    def popen(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tuner", *arguments],
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def tuner(self, *arguments: str) -> str:
        with self.popen(*arguments) as process:
            out, err = process.communicate(timeout=900)
        assert process.returncode == 0, err
        return out

    def groups(self) -> list[int]:
        """Process groups of the engines that run, by the records that their guards keep."""
        records = (self.settings.data_dir / "engines").glob("*.json")
        return [json.loads(record.read_text())["group"] for record in records]

    @contextmanager
    def store(self) -> Iterator[Store]:
        with Store.open(self.settings.storage_url, self.settings.data_dir) as store:
            yield store

    def measured(self) -> list[str]:
        try:
            with self.store() as store:
                return [m.id for m in store.measurements(study="real")]
        except StorageError:
            return []  # not made yet

    @contextmanager
    def optimizing(self) -> Iterator[Callable[[], None]]:
        """A study under way. What it yields kills it; it is killed in the end whatever happens."""
        process = self.popen("optimize", str(self.study))
        try:
            yield partial(self._kill, process)
        finally:
            process.kill()
            process.communicate()

    def _kill(self, process: subprocess.Popen[str]) -> None:
        """SIGKILL, and nothing of its engines is alive ten seconds later."""
        groups = self.groups()
        process.kill()
        process.communicate()
        assert groups
        wait_for(lambda: not any(members(group) for group in groups), GONE_WITHIN_S)


def wait_for(condition: Callable[[], object], within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def models_dir() -> Path:
    return Settings().models_dir


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, models_dir: Path) -> Bench:
    python = Settings().default_engine_python
    return Bench(tmp_path_factory.mktemp("study"), models_dir, python)


def test_killed_at_a_start_and_under_load_it_finishes_without_measuring_again(
    bench: Bench,
) -> None:
    with bench.optimizing() as kill:
        wait_for(lambda: any(len(members(group)) > 1 for group in bench.groups()), 120)
        kill()
    assert bench.measured() == []

    with bench.optimizing() as kill:
        # The baseline's round, its answers for the screen, and one pair.
        wait_for(lambda: len(bench.measured()) >= 4, 400)
        assert len(bench.groups()) == 2
        kill()
    before = bench.measured()

    bench.tuner("optimize", str(bench.study))
    assert bench.measured()[: len(before)] == before
    with bench.store() as store:
        assert store.study("real").stage is Stage.DONE
        rows = [m for m in store.measurements(study="real") if not m.setting.is_off]
    measured = [(m.purpose, m.pair) for m in rows]
    assert len(measured) == len(set(measured)), "a finished pair was measured again"


def test_the_recommendation_is_whole_and_speculates(bench: Bench) -> None:
    body = json.loads(bench.tuner("recommend", "real", "--output", "json"))
    [answer] = body["recommendations"]
    assert answer.keys() >= FIELDS
    assert answer["confirmed"] is True
    assert answer["speculative_config"]["method"] == "draft_model"
    assert answer["speedup"]["low"] > 1
    assert answer["acceptance_length"] > 3
    assert answer["engine"]["runner"] == "V1"
    assert answer["kv_cache_tokens"] > 0
    dollars = 0.1 / (answer["measured"]["output_throughput_tok_s"] * 3600) * 1e6
    assert answer["cost"]["usd_per_million_output_tokens"] == pytest.approx(dollars)
    assert any("CPU" in text for text in answer["warnings"])
    assert answer["stopped_because"] == "decided"
    assert answer["pairs"] >= 5
    assert answer["sameness"]["worse"] is False
    assert "scored tokens" in answer["sameness"]["reason"]
    length = answer["drafting"]["acceptance_length"]
    assert length["low"] <= answer["acceptance_length"] <= length["high"]
    assert {part["by"] for part in answer["breakdown"]} == {"kind", "prompt_tokens"}
    assert all(part["acceptance_length"] for part in answer["breakdown"])


def test_the_screen_foresaw_it(bench: Bench) -> None:
    """Printed from the store: a study that is done starts nothing for it."""
    said = bench.tuner("optimize", str(bench.study), "--until", "screen", "--output", "json")
    body = json.loads(said)
    [row] = body["settings"]
    assert row["reason"] is None
    assert 3.5 < row["tokens_per_decode_step"]["value"] <= 4
    assert row["tokens"] > 1000
    assert row["draft_cost"] == pytest.approx(1 / 3, abs=0.1)
    [predicted] = row["predicted"]
    assert predicted["speedup"] > 1
    assert body["seconds"] > 0


def test_the_exported_script_starts_a_server_that_speculates(bench: Bench, tmp_path: Path) -> None:
    script = tmp_path / "serve.sh"
    bench.tuner("export", "real", "--format", "sh", "-o", str(script))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    log = (tmp_path / "serve.log").open("w")
    environment = os.environ | {"PORT": str(port)}
    with (
        log,
        subprocess.Popen(
            [script], env=environment, stdout=log, stderr=log, start_new_session=True
        ) as process,
    ):
        try:
            wait_for(lambda: process.poll() is not None or answers(url), 300)
            model = httpx.get(f"{url}/v1/models", trust_env=False).json()["data"][0]["id"]
            messages = [{"role": "user", "content": "Say something about the sea."}]
            body = {"model": model, "messages": messages, "max_tokens": 24}
            reply = post(url, "/v1/chat/completions", body)
            assert reply.status_code == 200
            wait_for(lambda: counters(url)[f"{SPECULATIVE}num_drafts_total"] > 0, 30)
            now = counters(url)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    drafted = now[f"{SPECULATIVE}num_draft_tokens_total"]
    assert drafted == 3 * now[f"{SPECULATIVE}num_drafts_total"]


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", trust_env=False).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False
