"""Where benchmarks write what they found: the last result, and dated ones that are kept."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

RESULTS = Path("tests/benchmarks/results")
BUILD = Path("build/bench")


def write(name: str, body: dict[str, Any], *, keep: bool, machine: str = "") -> None:
    """The result; also a dated copy, named after the machine if it is about one."""
    now = datetime.now(UTC)
    text = json.dumps({"made_at": now.isoformat(timespec="seconds"), **body}, indent=2) + "\n"
    dated = "-".join(part for part in (name, machine, f"{now:%Y-%m-%d}") if part)
    for path in [BUILD / f"{name}.json", *([RESULTS / f"{dated}.json"] * keep)]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        print(path)
