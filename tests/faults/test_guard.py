"""No engine outlives its tuner, and none is taken for alive that is not."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest

from tests.engine.asking import post
from tests.engine.fakes import FAKE, fake
from tuner.engine import guard, server
from tuner.engine.command import EngineCommand
from tuner.engine.reap import reap
from tuner.engine.server import Engine
from tuner.errors import EngineDiedError, EngineStartError, FailureKind

HERE = Path(__file__).parent
STUBBORN = (sys.executable, str(HERE / "parent.py"), "stubborn", *FAKE)
ORDINARY = (sys.executable, str(HERE / "parent.py"), "ordinary", *FAKE)
GONE_WITHIN_S = 10
NOTICED_WITHIN_S = 30


def _wait_until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


@dataclass(frozen=True)
class Held:
    """An engine held by a tuner in a process of its own."""

    tuner: subprocess.Popen[str]
    group: int
    guard_pid: int

    def kill_tuner(self) -> None:
        self.tuner.kill()
        self.tuner.wait()

    def is_gone(self) -> bool:
        return guard.members(self.group) == []


@pytest.fixture(params=[ORDINARY], ids=["ordinary"])
def held(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Held]:
    """A fake with two children; parametrised indirectly where they are to be stubborn."""
    with subprocess.Popen(
        [sys.executable, HERE / "holder.py", tmp_path, *request.param],
        stdout=subprocess.PIPE,
        text=True,
    ) as tuner:
        assert tuner.stdout is not None
        group, guard_pid = (int(word) for word in tuner.stdout.readline().split())
        assert len(guard.members(group)) == 3
        try:
            yield Held(tuner, group, guard_pid)
        finally:
            tuner.kill()
            guard.stop(group)


def _engine(command: EngineCommand, folder: Path, *, startup_timeout_s: float = 60) -> Engine:
    return Engine(
        command,
        log_path=folder / "log",
        run_dir=folder / "run",
        startup_timeout_s=startup_timeout_s,
    )


def _python(code: str) -> EngineCommand:
    return EngineCommand((sys.executable, "-c", code), {})


@pytest.mark.parametrize("held", [STUBBORN], indirect=True, ids=["stubborn"])
def test_a_killed_tuner_takes_its_engine_along(held: Held, tmp_path: Path) -> None:
    held.kill_tuner()
    _wait_until(held.is_gone, GONE_WITHIN_S)
    _wait_until(lambda: list((tmp_path / "run").iterdir()) == [], GONE_WITHIN_S)


def test_what_outlived_tuner_and_guard_is_reaped(held: Held, tmp_path: Path) -> None:
    os.kill(held.guard_pid, signal.SIGKILL)
    held.kill_tuner()
    assert not held.is_gone()
    assert reap(tmp_path / "run") == [held.group]
    assert held.is_gone()
    assert list((tmp_path / "run").iterdir()) == []


def test_the_rest_of_a_group_without_its_leader_is_reaped(held: Held, tmp_path: Path) -> None:
    os.kill(held.guard_pid, signal.SIGKILL)
    os.kill(held.group, signal.SIGKILL)
    held.kill_tuner()
    _wait_until(lambda: len(guard.members(held.group)) == 2, GONE_WITHIN_S)
    assert reap(tmp_path / "run") == [held.group]
    assert held.is_gone()


def test_engines_of_a_living_tuner_are_left_alone(held: Held, tmp_path: Path) -> None:
    assert reap(tmp_path / "run") == []
    assert len(guard.members(held.group)) == 3


@pytest.mark.parametrize(
    ("changed", "kept"), [({"system": "another boot"}, True), ({"group_started": 1}, False)]
)
def test_a_number_that_means_another_process_is_left_alone(
    changed: dict[str, object], kept: bool, tmp_path: Path
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True
    ) as stranger:
        record = {
            "system": guard.system(),
            "group": stranger.pid,
            "group_started": guard.start_time(stranger.pid),
            "tuner": 1,
            "tuner_started": 0,
            **changed,
        }
        path = tmp_path / "engine-1.json"
        path.write_text(json.dumps(record))
        assert reap(tmp_path) == []
        assert stranger.poll() is None
        assert path.exists() is kept
        stranger.kill()


def test_leaving_stops_children_that_ignore_sigterm(tmp_path: Path) -> None:
    with _engine(EngineCommand(STUBBORN, {}), tmp_path) as running:
        group = running._process.group
        assert len(guard.members(group)) == 3
    assert guard.members(group) == []
    assert list((tmp_path / "run").iterdir()) == []


def test_an_interrupt_of_the_terminal_reaches_neither_guard_nor_engine(tmp_path: Path) -> None:
    with _engine(fake(), tmp_path) as running:
        pids = [running._process._guard.pid, *running._process.members()]
        assert os.getsid(0) not in {os.getsid(pid) for pid in pids}
        assert os.getpgid(0) not in {os.getpgid(pid) for pid in pids}


def test_the_record_is_there_before_the_program_runs(tmp_path: Path) -> None:
    code = (
        "import json, os, pathlib, sys\n"
        "record, = pathlib.Path(sys.argv[1]).glob('engine-*.json')\n"
        "sys.exit(7 if json.loads(record.read_text())['group'] == os.getpid() else 1)"
    )
    command = EngineCommand((*_python(code).argv, str(tmp_path / "run")), {})
    with pytest.raises(EngineStartError) as raised, _engine(command, tmp_path):
        pass
    assert raised.value.failure.exit_code == 7


def test_a_killed_server_is_noticed_and_its_children_go(tmp_path: Path) -> None:
    with _engine(EngineCommand(ORDINARY, {}), tmp_path) as running:
        group = running._process.group
        os.kill(group, signal.SIGKILL)
        assert running._process.exit_code(wait_s=NOTICED_WITHIN_S) == -signal.SIGKILL
        with pytest.raises(EngineDiedError) as raised:
            running.check()
        _wait_until(lambda: guard.members(group) == [], GONE_WITHIN_S)
    assert raised.value.failure.kind is FailureKind.DIED
    assert raised.value.failure.exit_code == -signal.SIGKILL


def test_a_killed_guard_is_noticed_and_its_engine_stopped(tmp_path: Path) -> None:
    with _engine(EngineCommand(ORDINARY, {}), tmp_path) as running:
        group = running._process.group
        os.kill(running._process._guard.pid, signal.SIGKILL)
        assert running._process.exit_code(wait_s=NOTICED_WITHIN_S) == -signal.SIGKILL
        with pytest.raises(EngineDiedError):
            running.check()
        assert len(guard.members(group)) == 3
    assert guard.members(group) == []


def test_an_engine_that_exits_with_0_in_use_has_failed(tmp_path: Path) -> None:
    command = fake(faults=[{"kind": "die_under_load"}])
    with _engine(command, tmp_path) as running:
        running.check()
        body = {"model": running.model, "prompt": "A", "max_tokens": 2}
        with pytest.raises(httpx.TransportError):
            post(running.base_url, "/v1/completions", body)
        assert running._process.exit_code(wait_s=NOTICED_WITHIN_S) == 0
        with pytest.raises(EngineDiedError) as raised:
            running.check()
    assert raised.value.failure.kind is FailureKind.DIED
    assert raised.value.failure.exit_code == 0


def test_a_program_that_ends_with_0_has_not_started(tmp_path: Path) -> None:
    with pytest.raises(EngineStartError) as raised, _engine(_python("pass"), tmp_path):
        pass
    assert raised.value.failure.exit_code == 0


def test_a_dead_child_is_not_waited_for(tmp_path: Path) -> None:
    began = time.monotonic()
    engine = _engine(_python("raise SystemExit(3)"), tmp_path, startup_timeout_s=600)
    with pytest.raises(EngineStartError) as raised, engine:
        pass
    assert raised.value.failure.exit_code == 3
    assert time.monotonic() - began < NOTICED_WITHIN_S


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    command = EngineCommand(("/nowhere/vllm",), {})
    refused = pytest.raises(EngineStartError, match="cannot start /nowhere/vllm: No such file")
    with refused, _engine(command, tmp_path):
        pass


def test_a_hang_runs_into_the_startup_timeout(tmp_path: Path) -> None:
    engine = _engine(fake(faults=[{"kind": "hang"}]), tmp_path, startup_timeout_s=2)
    with pytest.raises(EngineStartError) as raised, engine:
        pass
    assert raised.value.failure.kind is FailureKind.STARTUP_TIMEOUT
    assert engine._process.members() == []


@pytest.mark.parametrize(
    "command", [fake(), _python("import time; time.sleep(600)")], ids=["refused", "not-its-own"]
)
def test_a_port_that_another_process_has(
    command: EngineCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server((server.HOST, 0)) as taken:
        monkeypatch.setattr(server, "_free_port", lambda: taken.getsockname()[1])
        with pytest.raises(EngineStartError) as raised, _engine(command, tmp_path):
            pass
    assert raised.value.failure.kind is FailureKind.PORT_TAKEN


def test_a_zombie_is_not_alive() -> None:
    with subprocess.Popen([sys.executable, "-c", ""], start_new_session=True) as child:
        _wait_until(lambda: psutil.Process(child.pid).status() == "zombie", NOTICED_WITHIN_S)
        assert guard.members(child.pid) == []
        assert guard.start_time(child.pid) is None
