"""vLLM's schedulers, drafting as many tokens as a small file says, from one step to the next.

Runs inside vLLM's environment: ``--scheduler-cls live_k_scheduler.live_k_scheduler`` with this
folder on ``PYTHONPATH`` and the file named in ``TUNER_LIVE_K``. The file's first byte is the wanted
k; into the second goes the k of the step that was scheduled last. The engine's speculative config
must have a ``num_speculative_tokens_per_batch_size`` schedule, or its runner would not expect a k
that changes.
"""

from __future__ import annotations

import mmap
import os
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

VARIABLE = "TUNER_LIVE_K"
WANTED, IN_FORCE = 0, 1


class Lookup:
    """In place of the schedule's list of k by number of requests; the number makes no difference.

    vLLM asks once per step, and drafts so many tokens at its end.
    """

    def __init__(self, path: str, largest: int) -> None:
        with open(path, "r+b") as file:  # noqa: PTH123
            self._bytes = mmap.mmap(file.fileno(), 0)
        self._largest = largest

    def __getitem__(self, requests: int) -> int:
        k = self._bytes[WANTED]
        if not 1 <= k <= self._largest:
            raise ValueError(f"TUNER_LIVE_K wants k={k}; this engine drafts 1 to {self._largest}")
        self._bytes[IN_FORCE] = k
        return k


class LiveK:
    """Puts the lookup in the place of the one that the configured schedule was made into."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.dynamic_sd_lookup is None:
            raise ValueError("k can't be changed live: vLLM runs without the configured schedule")
        self.dynamic_sd_lookup = Lookup(os.environ[VARIABLE], self.num_spec_tokens)


class LiveKScheduler(LiveK, Scheduler):
    pass


class LiveKAsyncScheduler(LiveK, AsyncScheduler):
    pass


def live_k_scheduler(**arguments: Any) -> LiveKScheduler | LiveKAsyncScheduler:
    """The one that takes the place of the scheduler that vLLM would have taken itself."""
    is_async = arguments["vllm_config"].scheduler_config.async_scheduling
    scheduler = LiveKAsyncScheduler if is_async else LiveKScheduler
    return scheduler(**arguments)
