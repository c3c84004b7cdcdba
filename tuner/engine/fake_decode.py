"""The fake's decoding: one loop that steps all running requests together, and its counters."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from tuner.engine.fake_script import FakeScript, SpeculativeConfig
from tuner.engine.fake_text import FakeText
from tuner.vllm import SCHEDULE

BLOCK = 16
"""Prompt tokens that share one entry of the prefix cache."""

NATURAL_END = 256
"""Tokens after which an answer ends by itself, unless it is to ignore its end."""


@dataclass
class Totals:
    """What /metrics shows. ``accepted_at`` has k positions, none without speculation.

    ``queued_s`` has how long each request waited that was answered to its end.
    """

    accepted_at: list[int]
    drafts: int = 0
    draft_tokens: int = 0
    accepted: int = 0
    generation_tokens: int = 0
    prompt_tokens: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    queued_s: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Step:
    """What one step gave a request; the reason is in the last one."""

    tokens: list[int]
    finish_reason: str | None


@dataclass(eq=False)
class Running:
    """A request in the batch, and the steps that its reader has not read yet.

    ``accepted`` has a number for each of its verify steps, cut or not, and so has ``drafted``.
    """

    prompt: tuple[int, ...]
    max_tokens: int
    ignore_eos: bool
    random: random.Random
    answer: Iterator[int]
    steps: asyncio.Queue[Step] = field(default_factory=asyncio.Queue)
    produced: int = 0
    accepted: list[int] = field(default_factory=list)
    drafted: list[int] = field(default_factory=list)
    sent: float = 0.0
    queued_s: float = 0.0

    @property
    def length(self) -> int:
        return self.max_tokens if self.ignore_eos else min(self.max_tokens, NATURAL_END)

    @property
    def finish_reason(self) -> str:
        return "length" if self.length == self.max_tokens else "stop"


class Decoder:
    """Continuous batching: a new request's first step is its prefill and yields one token.

    ``next_k`` is asked at each step for how many tokens to draft; the config says the most. Without
    it the config's schedule tells, by the number of requests in the step.
    """

    def __init__(
        self,
        script: FakeScript,
        config: SpeculativeConfig | None,
        next_k: Callable[[], int] | None = None,
    ) -> None:
        self._script = script
        self.text = FakeText(script.seed)
        self._corruption = script.corruption_of(config) if config else 0.0
        self._salt = "speculating" if config else "off"
        self._acceptance = script.acceptance_of(config) if config else 0.0
        self._waiting: list[Running] = []
        self._running: list[Running] = []
        self._wake = asyncio.Event()
        self._cached: set[int] = set()
        self.k = int(config["num_speculative_tokens"]) if config else 0
        self._schedule: list[tuple[int, int, int]] = (config or {}).get(SCHEDULE) or []
        self._next_k = next_k or self._scheduled_k
        self.totals = Totals(accepted_at=[0] * self.k)

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def request(self, prompt: Sequence[int], max_tokens: int, *, ignore_eos: bool) -> Running:
        """A request to be decoded; equal ones accept and answer alike, whatever runs beside."""
        seeded = random.Random(f"{self._script.seed} {list(prompt)}")  # noqa: S311
        answer = self.text.answer(
            prompt,
            divergence=self._script.divergence,
            corruption=self._corruption,
            salt=self._salt,
        )
        return Running(tuple(prompt), max_tokens, ignore_eos, seeded, answer)

    async def decode(self, request: Running) -> AsyncGenerator[Step]:
        """The request's steps. A reader that closes this takes the request out of the batch."""
        request.sent = time.monotonic()
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
            for request in admitted:
                request.queued_s = time.monotonic() - request.sent
            k = self._next_k()
            paid = self.k if self._script.pays_for_largest_k else k
            due += self._script.step_s(paid, len(self._running))
            due += len(admitted) * self._script.prefill_ms / 1000
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            # Of a request whose reader left meanwhile vLLM counts nothing more.
            still = set(self._running)
            for request in admitted:
                if request in still:
                    self._prefill(request)
            for request in decoding:
                if request in still:
                    self._verify(request, k)

    def _scheduled_k(self) -> int:
        requests = len(self._running)
        for first, last, k in self._schedule:
            if first <= requests <= last:
                return k
        return self.k

    def _prefill(self, request: Running) -> None:
        tokens = len(request.prompt)
        prefixes = list(_prefixes(request.prompt))
        self.totals.prompt_tokens += tokens
        self.totals.prefix_queries += tokens
        self.totals.prefix_hits += BLOCK * sum(prefix in self._cached for prefix in prefixes)
        self._cached.update(prefixes)
        self._emit(request, 1)

    def _verify(self, request: Running, k: int) -> None:
        """One step of a decoding request. What it accepted counts whole, even where it is cut."""
        accepted = 0
        while accepted < k and request.random.random() < self._acceptance:
            self.totals.accepted_at[accepted] += 1
            accepted += 1
        if k:
            self.totals.drafts += 1
            self.totals.draft_tokens += k
            self.totals.accepted += accepted
            request.accepted.append(accepted)
            request.drafted.append(k)
        self._emit(request, accepted + 1)

    def _emit(self, request: Running, tokens: int) -> None:
        new = list(islice(request.answer, min(tokens, request.length - request.produced)))
        request.produced += len(new)
        self.totals.generation_tokens += len(new)
        ended = request.produced == request.length
        if ended:
            self._running.remove(request)
            self.totals.queued_s.append(request.queued_s)
        request.steps.put_nowait(Step(new, request.finish_reason if ended else None))


def _prefixes(tokens: tuple[int, ...]) -> Iterator[int]:
    """A hash of each beginning of the tokens that ends with a full block."""
    digest = 0
    for start in range(0, len(tokens) - BLOCK + 1, BLOCK):
        digest = hash((digest, tokens[start : start + BLOCK]))
        yield digest
