"""The fake's decoding: one loop that steps all running requests together, and its counters."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from tuner.engine.fake_script import FakeScript, SpeculativeConfig

BLOCK = 16
"""Prompt tokens that share one entry of the prefix cache."""

NATURAL_END = 256
"""Tokens after which an answer ends by itself, unless it is to ignore its end."""

WORDS = ("the", "model", "answers", "with", "words", "that", "mean", "nothing", "at", "all")


@dataclass
class Totals:
    """What /metrics shows. ``accepted_at`` has k positions, none without speculation."""

    accepted_at: list[int]
    drafts: int = 0
    draft_tokens: int = 0
    accepted: int = 0
    generation_tokens: int = 0
    prompt_tokens: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0


@dataclass(frozen=True)
class Step:
    """What one step gave a request; the reason is in the last one."""

    words: list[str]
    finish_reason: str | None


@dataclass(eq=False)
class Running:
    """A request in the batch, and the steps that its reader has not read yet."""

    prompt: str
    max_tokens: int
    ignore_eos: bool
    random: random.Random
    steps: asyncio.Queue[Step] = field(default_factory=asyncio.Queue)
    produced: int = 0

    @property
    def length(self) -> int:
        return self.max_tokens if self.ignore_eos else min(self.max_tokens, NATURAL_END)

    @property
    def finish_reason(self) -> str:
        return "length" if self.length == self.max_tokens else "stop"


class Decoder:
    """Continuous batching: a new request's first step is its prefill and yields one token."""

    def __init__(self, script: FakeScript, config: SpeculativeConfig | None) -> None:
        self._script = script
        self._config = config
        self._k = int(config["num_speculative_tokens"]) if config else 0
        self._acceptance = script.acceptance_of(config) if config else 0.0
        self._waiting: list[Running] = []
        self._running: list[Running] = []
        self._wake = asyncio.Event()
        self._cached: set[tuple[str, ...]] = set()
        self.totals = Totals(accepted_at=[0] * self._k)

    @property
    def running(self) -> int:
        return len(self._running)

    def request(self, prompt: str, max_tokens: int, *, ignore_eos: bool) -> Running:
        """A request to be decoded; equal ones accept and answer alike, whatever runs beside."""
        seeded = random.Random(f"{self._script.seed} {prompt}")  # noqa: S311
        return Running(prompt, max_tokens, ignore_eos, seeded)

    async def decode(self, request: Running) -> AsyncGenerator[Step]:
        """The request's steps. A reader that closes this takes the request out of the batch."""
        self._waiting.append(request)
        self._wake.set()
        try:
            while True:
                step = await request.steps.get()
                yield step
                if step.finish_reason:
                    return
        finally:
            for queue in (self._waiting, self._running):
                if request in queue:
                    queue.remove(request)

    async def run(self) -> None:
        """Step for ever; waits while there is nothing to decode."""
        due = time.monotonic()
        while True:
            if not self._waiting and not self._running:
                self._wake.clear()
                await self._wake.wait()
                due = time.monotonic()
            admitted, self._waiting = self._waiting, []
            decoding = list(self._running)
            self._running += admitted
            due += self._script.step_s(self._k, len(self._running))
            due += len(admitted) * self._script.prefill_ms / 1000
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            for request in admitted:
                self._prefill(request)
            for request in decoding:
                self._verify(request)

    def _prefill(self, request: Running) -> None:
        tokens = request.prompt.split()
        ends = range(BLOCK, len(tokens) + 1, BLOCK)
        prefixes = [tuple(tokens[:end]) for end in ends]
        self.totals.prompt_tokens += len(tokens)
        self.totals.prefix_queries += len(tokens)
        self.totals.prefix_hits += BLOCK * sum(prefix in self._cached for prefix in prefixes)
        self._cached.update(prefixes)
        self._emit(request, 1)

    def _verify(self, request: Running) -> None:
        accepted = 0
        while accepted < self._k and request.random.random() < self._acceptance:
            self.totals.accepted_at[accepted] += 1
            accepted += 1
        if self._k:
            self.totals.drafts += 1
            self.totals.draft_tokens += self._k
            self.totals.accepted += accepted
        self._emit(request, accepted + 1)

    def _emit(self, request: Running, tokens: int) -> None:
        if request not in self._running:
            return
        start = request.produced
        request.produced = min(start + tokens, request.length)
        self.totals.generation_tokens += request.produced - start
        offset = len(request.prompt)
        words = [WORDS[(offset + i * i) % len(WORDS)] for i in range(start, request.produced)]
        ended = request.produced == request.length
        if ended:
            self._running.remove(request)
        request.steps.put_nowait(Step(words, request.finish_reason if ended else None))
