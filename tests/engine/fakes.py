"""Commands that start the fake, scripted by keyword."""

from __future__ import annotations

import json
import sys
from typing import Any

from tuner.engine.command import EngineCommand
from tuner.engine.fake_script import VARIABLE

FAST = {"prefill_ms": 1, "step_ms": 1, "step_ms_per_k": 0, "step_ms_per_request": 0}
FAKE = (sys.executable, "-m", "tuner.engine.fake", "/models/target")


def fake(
    speculative: dict[str, Any] | None = None, flags: tuple[str, ...] = (), **script: Any
) -> EngineCommand:
    """A fast fake with a speculative config, further flags, and a script."""
    config = ("--speculative-config", json.dumps(speculative)) if speculative else ()
    return EngineCommand((*FAKE, *config, *flags), {VARIABLE: json.dumps({**FAST, **script})})
