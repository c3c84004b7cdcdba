"""`tuner optimize` killed with SIGKILL: nothing stays behind, nothing finished is lost."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import yaml

from tuner.engine.fake_script import VARIABLE
from tuner.errors import StorageError
from tuner.records import Stage
from tuner.settings import Settings
from tuner.store import Store

GONE_WITHIN_S = 10.0


@pytest.fixture
def study(tmp_path: Path) -> Path:
    script = {"startup_s": 1.0, "step_ms": 6, "acceptance": {"suffix": 0.9, "ngram": 0.3}}
    path = tmp_path / "study.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "name": "killed",
                "target": {"model": "owner/target"},
                "engine": {
                    "command": [sys.executable, "-m", "tuner.engine.fake"],
                    "env": {VARIABLE: json.dumps(script)},
                },
                "candidates": [{"method": "suffix", "k": 4}, {"method": "ngram", "k": 4}],
                "workload": {"output_tokens": 16, "requests": 2},
                "loads": [{"concurrency": 1}],
                "precision": 0.4,
            }
        )
    )
    return path


@contextmanager
def optimizing(study: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A `tuner optimize` of its own session; killed at the end if it still runs."""
    log = study.with_suffix(".log").open("ab")
    command = [sys.executable, "-m", "tuner", "optimize", str(study)]
    with log, subprocess.Popen(command, stderr=log, stdout=log, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


def engine_processes() -> list[psutil.Process]:
    """Everything alive that belongs to an engine of this test's data folder."""
    marks = [str(Settings().data_dir), "tuner.engine.fake"]
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        line = " ".join(process.info["cmdline"] or ())
        alive = process.info["status"] != psutil.STATUS_ZOMBIE
        if alive and any(mark in line for mark in marks) and "optimize" not in line:
            found.append(process)
    return found


def wait_for(condition: Callable[[], object], within_s: float = 60.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def rows() -> list[tuple[str, str]]:
    """(id, samples hash) of every stored measurement."""
    settings = Settings()
    try:
        with Store.open(settings.storage_url, settings.data_dir) as store:
            return [(m.id, m.samples_sha256) for m in store.measurements(study="killed")]
    except StorageError:
        return []  # the database is not made yet


def kill_and_expect_nothing_left(process: subprocess.Popen[bytes]) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    wait_for(lambda: not engine_processes(), GONE_WITHIN_S)


def test_killed_at_a_start_and_under_load_it_leaves_nothing_and_loses_nothing(study: Path) -> None:
    with optimizing(study) as process:
        wait_for(engine_processes)
        kill_and_expect_nothing_left(process)
    assert rows() == []

    with optimizing(study) as process:
        wait_for(lambda: len(rows()) >= 4)
        kill_and_expect_nothing_left(process)
    finished = rows()

    with optimizing(study) as process:
        assert process.wait(120) == 0, study.with_suffix(".log").read_text()
    assert rows()[: len(finished)] == finished
    settings = Settings()
    with Store.open(settings.storage_url, settings.data_dir) as store:
        assert store.study("killed").stage is Stage.DONE
        measured = store.measurements(study="killed")
        [answer] = store.recommendations("killed")
    pairs = [(m.setting, m.purpose, m.load, m.pair) for m in measured if m.beside is not None]
    candidates = [p for p in pairs if not p[0].is_off]
    assert len(candidates) == len(set(candidates)), "a finished pair was measured again"
    assert answer.speculative_config is not None


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_stops_its_engines_and_exits_130(study: Path, how: signal.Signals) -> None:
    with optimizing(study) as process:
        wait_for(lambda: len(rows()) >= 1)
        process.send_signal(how)
        assert process.wait(30) == 130
    assert engine_processes() == []
    assert "goes on from here" in study.with_suffix(".log").read_text()
