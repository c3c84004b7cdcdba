"""Holds an engine's whole process group and ends it when the tuner ends, however it ended.

Run by file path in a session of its own (``guard.py RECORD LOG TUNER_PID PROGRAM ARGS...``), with
the standard library only. Its stdin is a pipe that the tuner never writes to and the kernel closes
with the tuner. On stdout it says ``{"group": ID}`` when the program is let go and
``{"exit_code": N}`` when the program ended by itself (minus the signal's number if it was killed).

The group's record is on disk before the program is executed, so that ``tuner.engine.reap`` finds
the group even if this process is killed too.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from pathlib import Path

GRACE_S = 4.0
POLL_S = 0.05
HANDLED = (signal.SIGTERM, signal.SIGCHLD)
IGNORED = (signal.SIGINT, signal.SIGHUP)


def start_time(pid: int) -> int | None:
    """When a process began, in clock ticks since boot; None if there is none, or a zombie."""
    stat = _stat(pid)
    return None if stat is None else stat[2]


def members(group: int) -> list[int]:
    """Living processes (zombies are not) that lead or belong to a process group or session."""
    pids = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
    return [pid for pid in pids if (stat := _stat(pid)) and group in (pid, *stat[:2])]


def stop(group: int) -> None:
    """End every process of a group: SIGTERM, SIGKILL after ``GRACE_S``; returns when none lives."""
    kill_at = time.monotonic() + GRACE_S
    signalled: set[int] = set()
    while alive := members(group):
        late = time.monotonic() >= kill_at
        for pid in alive:
            if late or pid not in signalled:
                _signal(pid, signal.SIGKILL if late else signal.SIGTERM)
        signalled.update(alive)
        time.sleep(POLL_S)


def system() -> str:
    """Where process ids mean what they mean here: this boot and this pid namespace."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {Path('/proc/self/ns/pid').stat().st_ino}"


def _stat(pid: int) -> tuple[int, int, int] | None:
    """(group, session, start time) of a living process, from proc(5)'s stat."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name before the last parenthesis may hold anything, blanks and parentheses included.
    fields = text[text.rindex(")") + 2 :].split()
    if fields[0] in "ZX":
        return None
    return int(fields[2]), int(fields[3]), int(fields[19])


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _spawn(program: list[str], log: Path) -> tuple[int, int]:
    """Fork a child that waits, in a session of its own; (its pid, the pipe that lets it go)."""
    gate, release = os.pipe()
    pid = os.fork()
    if pid:
        os.close(gate)
        return pid, release
    os.close(release)
    try:
        for number in (*HANDLED, *IGNORED, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        if not os.read(gate, 1):
            os._exit(1)  # the guard died before the record was written
        os.execvp(program[0], program)  # noqa: S606
    except OSError as error:
        reason = f"{type(error).__name__}: cannot start {program[0]}: {error.strerror}"
        os.write(2, f"{reason}\n".encode())
    finally:
        os._exit(127)


def _write_record(path: Path, group: int, tuner: int) -> None:
    record = {
        "system": system(),
        "group": group,
        "group_started": start_time(group),
        "guard": os.getpid(),
        "guard_started": start_time(os.getpid()),
        "tuner": tuner,
        "tuner_started": start_time(tuner),
    }
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(record))
    unfinished.rename(path)


def _say(message: dict[str, int]) -> None:
    """Tell the tuner; it may be gone, which the main loop learns from stdin."""
    try:
        os.write(1, json.dumps(message).encode() + b"\n")
    except BrokenPipeError:
        return


def _signals() -> int:
    """Turn SIGTERM and SIGCHLD into bytes of a pipe; returns its reading end."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    for number in HANDLED:
        signal.signal(number, lambda *_: None)
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    return reading


def _watch(leader: int, signals: int) -> bool:
    """True once the leader ended by itself; False if the tuner ended, or SIGTERM came, first."""
    while True:
        ready, _, _ = select.select([0, signals], [], [])
        if 0 in ready and not os.read(0, 1):
            return False
        if signals in ready and signal.SIGTERM in os.read(signals, 64):
            return False
        pid, status = os.waitpid(leader, os.WNOHANG)
        if pid:
            _say({"exit_code": os.waitstatus_to_exitcode(status)})
            return True


def main(record: Path, log: Path, tuner: int, program: list[str]) -> None:
    signals = _signals()
    group, release = _spawn(program, log)
    _write_record(record, group, tuner)
    os.write(release, b"g")
    _say({"group": group})
    ended = _watch(group, signals)
    stop(group)
    if not ended:
        os.waitpid(group, 0)
    record.unlink(missing_ok=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
