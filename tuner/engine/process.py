"""An engine's processes under their guard, as the tuner holds them."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
import uuid
from importlib.resources import as_file, files
from pathlib import Path

from tuner.engine import guard
from tuner.engine.command import EngineCommand
from tuner.errors import EngineStartError, Failure, FailureKind

STOP_S = 10.0


class GuardedProcess:
    """A program that was started under a guard, and everything it started itself."""

    def __init__(self, command: EngineCommand, log_path: Path, run_dir: Path) -> None:
        """Start it; its output goes to ``log_path``, its record into ``run_dir``.

        Raises :class:`EngineStartError` where not even the guard could start.
        """
        log_path.parent.mkdir(parents=True, exist_ok=True)
        run_dir.mkdir(parents=True, exist_ok=True)
        self._record = run_dir.absolute() / f"engine-{uuid.uuid4().hex}.json"
        self._unread = b""
        self._exit_code: int | None = None
        held, self._lifeline = os.pipe()
        self._reports, reporting = os.pipe()
        try:
            self._guard = _start_guard(command, log_path, self._record, held, reporting)
        finally:
            os.close(held)
            os.close(reporting)
        try:
            self.group = self._read_group(log_path)
        except BaseException:
            self._let_guard_end()
            raise

    def exit_code(self, wait_s: float = 0.0) -> int | None:
        """The program's exit code once it ended by itself, negative for a signal; None before.

        Waits up to ``wait_s`` for that. A guard that was killed counts as the program's end, with
        the guard's own exit code: nothing stops the program any more when the tuner ends.
        """
        deadline = time.monotonic() + wait_s
        if self._exit_code is None:
            line = self._next_line(deadline)
            if line is not None:
                self._exit_code = json.loads(line)["exit_code"] if line else self._guard.wait()
        return self._exit_code

    def members(self) -> list[int]:
        """Pids of the living processes of the group."""
        return guard.members(self.group)

    def stop(self) -> None:
        """End the whole group; returns when nothing of it lives."""
        self._let_guard_end()
        guard.stop(self.group)
        self._record.unlink(missing_ok=True)

    def _let_guard_end(self) -> None:
        os.close(self._lifeline)
        try:
            self._guard.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._guard.kill()
            self._guard.wait()
        finally:
            os.close(self._reports)

    def _read_group(self, log_path: Path) -> int:
        line = self._next_line(deadline=None)
        if line:
            return int(json.loads(line)["group"])
        message = f"the engine's guard could not start it; see {log_path}"
        raise EngineStartError(Failure(FailureKind.UNKNOWN, message, self._guard.wait()))

    def _next_line(self, deadline: float | None) -> bytes | None:
        """The guard's next message; empty at its end, None if there is none by the deadline."""
        while b"\n" not in self._unread:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([self._reports], [], [], left)[0]:
                return None
            chunk = os.read(self._reports, 4096)
            if not chunk:
                return b""
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        return line


def _start_guard(
    command: EngineCommand, log_path: Path, record: Path, lifeline: int, reports: int
) -> subprocess.Popen[bytes]:
    """Start the guard in a session of its own, so that no Ctrl-C of the terminal reaches it."""
    with as_file(files("tuner.engine") / "guard.py") as script, log_path.open("ab") as log:
        return subprocess.Popen(
            [
                # -I -S: what the engine's environment says to Python is not meant for the guard.
                *(sys.executable, "-I", "-S", str(script)),
                *(str(record), str(log_path.absolute()), str(os.getpid())),
                *command.argv,
            ],
            env={**os.environ, **command.env},
            stdin=lifeline,
            stdout=reports,
            stderr=log,
            start_new_session=True,
        )
