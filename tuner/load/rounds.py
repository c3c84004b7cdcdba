"""Rounds: one pass over prompts at one load."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence

import aiohttp

from tuner.load.client import stream_request
from tuner.load.prompts import Prompt
from tuner.records import RequestSample, Round
from tuner.spec import Load, Workload

CONNECT_S = 30.0


def run_round(
    base_url: str, model: str, prompts: Sequence[Prompt], load: Load, workload: Workload
) -> Round:
    """Sends each prompt once, ``load.concurrency`` of them at any time; samples in prompt order.

    A failed request ends the round: what is in flight is followed to its end, nothing more is
    sent, and the round has fewer samples than there are prompts.
    """
    return asyncio.run(_closed_loop(base_url, model, prompts, load, workload))


async def _closed_loop(
    base_url: str, model: str, prompts: Sequence[Prompt], load: Load, workload: Workload
) -> Round:
    waiting = deque(enumerate(prompts))
    samples: dict[int, RequestSample] = {}
    # A connection of its own for each request: one that the server is just closing can't be caught.
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        start = time.perf_counter()

        async def send_one_after_another() -> None:
            while waiting:
                position, prompt = waiting.popleft()
                sample = await stream_request(session, base_url, model, prompt, workload, start)
                samples[position] = sample
                if sample.error is not None:
                    waiting.clear()

        async with asyncio.TaskGroup() as clients:
            for _ in range(load.concurrency):
                clients.create_task(send_one_after_another())
        duration_s = time.perf_counter() - start
    return Round(load, tuple(samples[position] for position in sorted(samples)), duration_s)
