"""An engine whose k changes while it runs: its command, and the file through which k is set.

Holds where the engine's runner drafts as many tokens as its scheduler asks for: that is measured
against plain engines before it is believed. ``engine.command`` must start vLLM on this machine and
hand on its environment.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import as_file, files
from pathlib import Path
from types import TracebackType
from typing import Self

from tuner.engine.command import EngineCommand, engine_command
from tuner.records import EngineFacts, Setting
from tuner.spec import EngineSpec, Target
from tuner.vllm import MAX_K, SCHEDULE

VARIABLE = "TUNER_LIVE_K"
"""Names the file to the engine. Its first byte is the wanted k, the second the last step's."""

SCHEDULER = "live_k_scheduler.live_k_scheduler"
_WANTED, _IN_FORCE = 0, 1


class LiveK:
    """The file, as the tuner holds it; leaving the context removes it."""

    def __init__(self, k: int) -> None:
        """``k`` is what an engine drafts that starts before anything else is set."""
        descriptor, name = tempfile.mkstemp(prefix="tuner-live-k-")
        self.path = Path(name)
        try:
            os.write(descriptor, bytes(2))
            self._bytes = mmap.mmap(descriptor, 0)
        finally:
            os.close(descriptor)
        self.set(k)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bytes.close()
        self.path.unlink()

    def set(self, k: int) -> None:
        """From the engine's next step on; requests in the middle of an answer get it then too.

        Raises ValueError for a k that no engine drafts; the engine ends itself at one that is
        larger than the k of its config.
        """
        if not 1 <= k <= MAX_K:
            raise ValueError(f"k={k} can't be set live, only 1 to {MAX_K}")
        self._bytes[_WANTED] = k

    @property
    def in_force(self) -> int:
        """The k of the step that the engine scheduled last; 0 before its first."""
        return self._bytes[_IN_FORCE]


def live_setting(settings: Sequence[Setting]) -> Setting:
    """What the engine for settings that differ in k alone really runs.

    Its k is their largest. Its schedule names each k, so that vLLM makes graphs for them all; what
    it says of numbers of requests is never looked up.
    """
    ks = sorted({setting.k for setting in settings})
    largest = max(settings, key=lambda setting: setting.k)
    schedule = [[number, number, k] for number, k in enumerate(ks, start=1)]
    return Setting.of({**(largest.speculative_config or {}), SCHEDULE: schedule})


def live_command(
    engine: EngineSpec,
    target: Target,
    settings: Sequence[Setting],
    facts: EngineFacts,
    python: Path,
    *,
    control: Path,
) -> EngineCommand:
    """The command of an engine for settings that differ in k alone, with the file of a LiveK."""
    command = engine_command(engine, target, live_setting(settings), facts, python)
    with as_file(files("tuner.engine.inside")) as inside:
        known = command.env.get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
        folders = [str(inside), *([known] if known else [])]
    env = {**command.env, VARIABLE: str(control), "PYTHONPATH": os.pathsep.join(folders)}
    return replace(command, argv=(*command.argv, "--scheduler-cls", SCHEDULER), env=env)
