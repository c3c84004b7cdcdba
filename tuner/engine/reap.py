"""Ends engines that outlived their tuner and their guard."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tuner.engine import guard


def reap(run_dir: Path) -> list[int]:
    """End the groups recorded in ``run_dir`` whose tuner is dead; returns their group ids.

    Engines of a living tuner are left alone, and so are records of other machines, containers and
    boots: their process ids mean nothing here.
    """
    reaped = []
    for path in sorted(run_dir.glob("engine-*.json")):
        try:
            record = json.loads(path.read_text())
        except FileNotFoundError:
            continue  # its own tuner or guard was faster
        if record["system"] != guard.system() or _tuner_lives(record):
            continue
        if _is_the_recorded(record):
            guard.stop(record["group"])
            reaped.append(record["group"])
        path.unlink(missing_ok=True)
    return reaped


def _tuner_lives(record: dict[str, Any]) -> bool:
    started: int | None = record["tuner_started"]
    return started is not None and guard.start_time(record["tuner"]) == started


def _is_the_recorded(record: dict[str, Any]) -> bool:
    """Whether the group lives and is the recorded one, not a later one with the same number.

    Once a group's leader has ended, the number stays taken while any member lives.
    """
    if not guard.members(record["group"]):
        return False
    leader = guard.start_time(record["group"])
    return leader in (None, record["group_started"])
