"""A vLLM server as a context manager: started, known to answer, and stopped for certain."""

from __future__ import annotations

import socket
import time
from collections import deque
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import httpx
import psutil

from tuner.engine.command import EngineCommand
from tuner.engine.failures import classify
from tuner.engine.process import GuardedProcess
from tuner.engine.started import started_facts
from tuner.errors import EngineDiedError, EngineStartError, Failure, FailureKind
from tuner.records import StartedFacts

HOST = "127.0.0.1"
OUR_NAMESPACE = Path("/proc/self/ns/pid")
POLL_S = 0.1
READY_POLL_TIMEOUT_S = 2.0
CHECK_TIMEOUT_S = 10.0


class Server:
    """A running server. ``model`` is the id it serves its model under."""

    def __init__(
        self,
        process: GuardedProcess,
        log_path: Path,
        *,
        base_url: str,
        model: str,
        facts: StartedFacts,
        startup_s: float,
    ) -> None:
        self._process = process
        self._log_path = log_path
        self.base_url = base_url
        self.model = model
        self.facts = facts
        self.startup_s = startup_s

    def check(self) -> None:
        """Raise :class:`EngineDiedError` if it is gone, whatever its exit code, or unhealthy."""
        code = self._process.exit_code()
        if code is not None:
            raise self._died("it ended by itself after it had answered", code)
        try:
            status = httpx.get(
                f"{self.base_url}/health", timeout=CHECK_TIMEOUT_S, trust_env=False
            ).status_code
        except httpx.TransportError as error:
            code = self._process.exit_code(wait_s=1.0)
            raise self._died(f"/health does not answer: {error!r}", code) from error
        if status != httpx.codes.OK:
            raise self._died(f"/health answers {status}", self._process.exit_code(wait_s=1.0))

    def _died(self, what: str, code: int | None) -> EngineDiedError:
        failure = classify(_read(self._log_path), code)
        if failure.kind is FailureKind.UNKNOWN:
            failure = replace(failure, kind=FailureKind.DIED, message=what)
        return EngineDiedError(failure)


class Engine:
    """``with Engine(command, ...) as server:`` starts it on a free port and stops all of it."""

    def __init__(
        self, command: EngineCommand, *, log_path: Path, run_dir: Path, startup_timeout_s: float
    ) -> None:
        self._command = command
        self._log_path = log_path
        self._run_dir = run_dir
        self._startup_timeout_s = startup_timeout_s

    def __enter__(self) -> Server:
        """Start it and wait until it answers.

        Raises :class:`EngineStartError` as soon as it ended, when something else answers on its
        port, or when the time is up.
        """
        started = time.monotonic()
        port = _free_port()
        address = ("--host", HOST, "--port", str(port))
        argv = (*self._command.argv, *self._command.observe, *address)
        command = replace(self._command, argv=argv)
        self._process = GuardedProcess(command, self._log_path, self._run_dir)
        try:
            base_url = f"http://{HOST}:{port}"
            model = self._wait_until_ready(base_url, port, started + self._startup_timeout_s)
            return Server(
                self._process,
                self._log_path,
                base_url=base_url,
                model=model,
                facts=started_facts(_read(self._log_path)),
                startup_s=time.monotonic() - started,
            )
        except BaseException:
            self._process.stop()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop it; returns when no process of it lives."""
        self._process.stop()

    def _wait_until_ready(self, base_url: str, port: int, deadline: float) -> str:
        with httpx.Client(
            base_url=base_url, timeout=READY_POLL_TIMEOUT_S, trust_env=False
        ) as client:
            while time.monotonic() < deadline:
                code = self._process.exit_code(wait_s=POLL_S)
                if code is not None:
                    raise EngineStartError(classify(_read(self._log_path), code))
                if not _is_listened_on(port):
                    continue
                if stranger := _stranger_on(port, self._process):
                    raise EngineStartError(
                        Failure(FailureKind.PORT_TAKEN, f"process {stranger} has port {port}")
                    )
                model = _served_model(client)
                if model is not None:
                    return model
        raise EngineStartError(
            Failure(
                FailureKind.STARTUP_TIMEOUT,
                f"it did not answer within {self._startup_timeout_s:g} s"
                " (engine.startup_timeout_s in the study)",
            )
        )


def log_tail(log_path: Path, lines: int = 40) -> str:
    """The last lines of a log, "" where there is none yet."""
    if not log_path.exists():
        return ""
    with log_path.open(errors="replace") as log:
        return "".join(deque(log, maxlen=lines))


def _read(log_path: Path) -> str:
    return log_path.read_text(errors="replace")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _is_listened_on(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def _served_model(client: httpx.Client) -> str | None:
    """The served model's id once ``/health`` is 200; None while it is not."""
    try:
        if client.get("/health").status_code != httpx.codes.OK:
            return None
        answer = client.get("/v1/models").raise_for_status()
    except (httpx.TransportError, httpx.HTTPStatusError):
        return None
    model: str = answer.json()["data"][0]["id"]
    return model


def _stranger_on(port: int, process: GuardedProcess) -> int | None:
    """The pid of a process outside the group that listens on the port.

    A listener in another pid namespace is taken for the engine's own: a container's processes are
    not in the group of the command that started the container.
    """
    ours = process.members()
    for connection in psutil.net_connections("tcp"):
        pid, address = connection.pid, connection.laddr
        listens = connection.status == psutil.CONN_LISTEN and address and address.port == port
        if listens and pid is not None and pid not in ours and _in_our_namespace(pid):
            return pid
    return None


def _in_our_namespace(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/ns/pid").stat().st_ino == OUR_NAMESPACE.stat().st_ino
    except (FileNotFoundError, PermissionError):
        return False
