"""Rounds: a plan's requests, sent at a load that holds for as long as they are counted."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import replace
from math import ceil

import aiohttp

from tuner.load.client import Exchange, follow
from tuner.load.plan import Arrival, RoundPlan
from tuner.load.prompts import Prompt
from tuner.records import RequestSample, Round
from tuner.spec import Workload

CONNECT_S = 30.0


def run_round(
    base_url: str, model: str, plan: RoundPlan, workload: Workload, *, padded: bool = True
) -> Round:
    """Runs a plan at its load; the samples are in the order in which the requests were sent.

    Padding is sent until the load is at its level. In a closed loop that is when something of each
    client's first answer has arrived; their lengths are staggered, so that the clients come free
    one after another. In an open loop it is when the first request is answered. Then the counted
    requests are sent, then padding until the last of them is answered. What is under way by then is
    cut off: such a sample does not count, and has neither E2E nor finish reason. A single client is
    at its level at once, and needs no padding; a plan with nothing to spare has none.

    A failed request ends the round: nothing more is sent, and what is under way is cut off.
    """
    return asyncio.run(_run(base_url, model, plan, workload, padded=padded))


async def _run(
    base_url: str, model: str, plan: RoundPlan, workload: Workload, *, padded: bool
) -> Round:
    # A connection of its own for each request: one that the server is just closing can't be caught.
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        traffic = _Traffic(session, base_url, model, plan, workload, padded=padded)
        await traffic.run()
    return Round(plan.load, traffic.samples)


class _Traffic:
    """The requests of one round, and where it stands."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        base_url: str,
        model: str,
        plan: RoundPlan,
        workload: Workload,
        *,
        padded: bool,
    ) -> None:
        self._session = session
        self._base_url = base_url
        self._model = model
        self._workload = workload
        self._clients = plan.load.concurrency
        self._padded = padded and bool(plan.spare) and self._clients != 1
        self._padding = plan.padding()
        self._counted = deque(plan.counted)
        self._unanswered = len(plan.counted)
        self._has_begun_to_count = False
        self._exchanges: list[Exchange] = []
        self._over = asyncio.Event()
        self._start = time.perf_counter()

    @property
    def samples(self) -> tuple[RequestSample, ...]:
        return tuple(exchange.sample(self._start) for exchange in self._exchanges)

    async def run(self) -> None:
        if not self._counted:
            return
        loop = self._open_loop() if self._clients is None else self._closed_loop(self._clients)
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(loop)
            await self._over.wait()
            sending.cancel()

    async def _closed_loop(self, clients: int) -> None:
        async with asyncio.TaskGroup() as group:
            for place in range(1, clients + 1):
                group.create_task(self._client(place / clients))

    async def _client(self, share: float) -> None:
        """Sends one request after another; its first padding has a ``share`` of its length."""
        if self._padded:
            prompt = next(self._padding).prompt
            limit = prompt.output_tokens or self._workload.output_tokens
            await self._send(replace(prompt, output_tokens=ceil(limit * share)), counted=False)
        while not self._over.is_set() and (following := self._next()):
            arrival, counted = following
            await self._send(arrival.prompt, counted=counted)

    async def _open_loop(self) -> None:
        """Sends at the planned moments, whether answers come or not; never early, late at worst."""
        async with asyncio.TaskGroup() as group:
            due_s: float | None = None
            while following := self._next():
                arrival, counted = following
                due_s = 0.0 if due_s is None else due_s + arrival.gap_s
                await asyncio.sleep(max(0.0, self._start + due_s - time.perf_counter()))
                group.create_task(self._send(arrival.prompt, counted=counted, due_s=due_s))

    def _next(self) -> tuple[Arrival, bool] | None:
        """What to send next, and whether it counts; None where there is nothing more."""
        if self._counted and self._is_at_level():
            self._has_begun_to_count = True
            return self._counted.popleft(), True
        return (next(self._padding), False) if self._padded else None

    def _is_at_level(self) -> bool:
        if not self._padded or self._has_begun_to_count:
            return True
        if self._clients is None:
            return any(exchange.ended for exchange in self._exchanges)
        return all(exchange.has_begun for exchange in self._exchanges[: self._clients])

    async def _send(self, prompt: Prompt, *, counted: bool, due_s: float | None = None) -> None:
        exchange = Exchange(prompt, counted=counted, due_s=due_s)
        self._exchanges.append(exchange)
        await follow(exchange, self._session, self._base_url, self._model, self._workload)
        self._unanswered -= counted
        if exchange.error is not None or not self._unanswered:
            self._over.set()
