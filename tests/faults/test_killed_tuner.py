"""`tuner optimize` killed with SIGKILL: nothing stays behind, nothing finished is lost."""

import json
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
from tuner.engine.guard import members
from tuner.errors import StorageError
from tuner.records import Stage
from tuner.settings import Settings
from tuner.store import Store

GONE_WITHIN_S = 10.0


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An interpreter without vLLM, so that suffix is not screened by the fake's unlikely text."""
    monkeypatch.setenv("TUNER_ENGINE_PYTHON", sys.executable)
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


def groups() -> list[int]:
    """Process groups of the engines that run, by the records that their guards keep."""
    records = (Settings().data_dir / "engines").glob("*.json")
    return [json.loads(record.read_text())["group"] for record in records]


def alive(engines: list[int]) -> list[int]:
    """What lives of these groups, and every guard of this test's data folder."""
    guards = [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if any(str(Settings().data_dir) in word for word in process.info["cmdline"] or ())
    ]
    return guards + [pid for group in engines for pid in members(group)]


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
    engines = groups()
    assert engines
    process.kill()
    process.wait()
    wait_for(lambda: not alive(engines), GONE_WITHIN_S)


def test_killed_at_a_start_and_under_load_it_leaves_nothing_and_loses_nothing(study: Path) -> None:
    with optimizing(study) as process:
        wait_for(lambda: any(members(group) for group in groups()))
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
        engines = groups()
        process.send_signal(how)
        assert process.wait(30) == 130
    assert engines
    assert alive(engines) == []
    assert "goes on from here" in study.with_suffix(".log").read_text()
