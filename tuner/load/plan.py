"""Plans: which prompts a round sends, and when."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, pairwise

from tuner.errors import SpecError
from tuner.load.prompts import Prompt, require_timestamps
from tuner.spec import Load, Workload, digest


@dataclass(frozen=True)
class Arrival:
    """A prompt to be sent ``gap_s`` seconds after the one before it; 0 in a closed loop."""

    prompt: Prompt
    gap_s: float = 0.0


@dataclass(frozen=True)
class RoundPlan:
    """What a round sends: the requests that count, and padding that keeps the load up around them.

    Both arms of a pair run the same plan, each engine once: a second time it would find the prompts
    in its prefix cache. ``repeated`` of the counted prompts had been dealt before by the same deck.
    Padding goes through ``spare`` again and again.
    """

    load: Load
    counted: tuple[Arrival, ...]
    repeated: int = 0
    spare: tuple[Arrival, ...] = ()
    seed: str = ""
    shared_prefixes: bool = False

    def padding(self) -> Iterator[Arrival]:
        """Endless, the same at every call, each prompt with a mark of its own."""
        return _as_sent(cycle(self.spare), self.load, f"{self.seed}/padding", self.shared_prefixes)

    @property
    def sha256(self) -> str:
        """Over the load, and over what is sent when of the requests that count."""
        sent = [
            [a.prompt.kind, a.prompt.messages, a.prompt.prompt, a.prompt.output_tokens, a.gap_s]
            for a in self.counted
        ]
        return digest({"load": self.load.key, "counted": sent})


class Deck:
    """Deals prompts round after round, none again before all were dealt.

    Kinds take turns; recorded arrivals come in the order of their times instead, and start over
    where the record ends. Each prompt is sent with a short line of its own, so that no round finds
    another's in the prefix cache (which made a second run 2.3 times faster in vllm#54227). Decks of
    the same prompts and seed deal the same; those of the same ``order`` deal the same prompts, each
    with lines of its own: what is compared across engine starts then meets the same traffic.
    """

    def __init__(self, prompts: Sequence[Prompt], seed: str, order: str | None = None) -> None:
        self._prompts = tuple(prompts)
        self._seed = seed
        self._shuffling = _seeded(seed if order is None else order)
        self._coming: deque[Prompt] = deque()
        self._dealt: dict[str, Prompt] = {}
        """By id; the one that was dealt longest ago comes first."""
        self._recorded = 0
        self._plans = 0

    def plan(self, load: Load, workload: Workload) -> RoundPlan:
        """``workload.requests`` requests that count, never fewer than the load's concurrency.

        Raises SpecError where recorded arrivals are asked for and prompts have no times.
        """
        count = max(workload.requests, load.concurrency or 1)
        if load.request_rate == "recorded":
            counted, spare = self._next_recorded(count)
        else:
            counted = [Arrival(self._next()) for _ in range(count)]
            spare = self._least_harmful(counted)
        repeated = sum([self._was_dealt(arrival.prompt) for arrival in counted])
        self._plans += 1
        seed = f"{self._seed}/{self._plans}"
        return RoundPlan(
            load=load,
            counted=tuple(_as_sent(counted, load, seed, workload.shared_prefixes)),
            repeated=repeated,
            spare=tuple(spare),
            seed=seed,
            shared_prefixes=workload.shared_prefixes,
        )

    def _next(self) -> Prompt:
        if not self._coming:
            self._coming.extend(_taking_turns(self._prompts, self._shuffling))
        return self._coming.popleft()

    def _was_dealt(self, prompt: Prompt) -> bool:
        """Whether it was, and notes that it is now."""
        before = self._dealt.pop(prompt.id, None)
        self._dealt[prompt.id] = prompt
        return before is not None

    def _least_harmful(self, counted: Sequence[Arrival]) -> list[Arrival]:
        """The prompts for padding: those that an engine is the least likely to count later.

        One that padding has answered is remembered by suffix, whose next draft of it is too good.
        So first come those dealt long ago, then those that would be dealt last.
        """
        taken = {arrival.prompt.id for arrival in counted}
        order = [*self._dealt.values(), *reversed(self._coming)]
        spare = {prompt.id: prompt for prompt in order if prompt.id not in taken}
        return [Arrival(prompt) for prompt in spare.values()] or list(counted)

    def _next_recorded(self, count: int) -> tuple[list[Arrival], list[Arrival]]:
        if mistake := require_timestamps(self._prompts):
            raise SpecError("workload", [mistake])
        log = recorded_arrivals(self._prompts)
        start, self._recorded = self._recorded, (self._recorded + count) % len(log)
        counted = [log[(start + place) % len(log)] for place in range(count)]
        return counted, log[self._recorded :] + log[: self._recorded]


def recorded_arrivals(prompts: Sequence[Prompt]) -> list[Arrival]:
    """The prompts in the order of their times, at the distances they were recorded with.

    The first, which comes after the last where the record starts over, has their mean distance.
    """
    timed = sorted(((p.at_s, p) for p in prompts if p.at_s is not None), key=lambda pair: pair[0])
    times = [at_s for at_s, _ in timed]
    mean_s = (times[-1] - times[0]) / (len(times) - 1)
    gaps = [mean_s, *(later - earlier for earlier, later in pairwise(times))]
    return [Arrival(prompt, gap_s) for gap_s, (_, prompt) in zip(gaps, timed, strict=True)]


def _as_sent(
    arrivals: Iterable[Arrival], load: Load, seed: str, shared_prefixes: bool
) -> Iterator[Arrival]:
    rng = _seeded(seed)
    for arrival in arrivals:
        mark = f"Request {rng.getrandbits(32):08x}"
        gap_s = arrival.gap_s
        if isinstance(load.request_rate, float):
            shape = load.burstiness or 1.0
            gap_s = rng.gammavariate(shape, 1 / (load.request_rate * shape))
        marked = _marked_late if shared_prefixes else _marked_early
        yield Arrival(marked(arrival.prompt, mark), gap_s)


def _marked_early(prompt: Prompt, mark: str) -> Prompt:
    """The mark is the first line: nothing after it can be found in the prefix cache."""
    if prompt.messages is None:
        return replace(prompt, prompt=f"{mark}\n\n{prompt.prompt}")
    first, *others = prompt.messages
    marked = {**first, "content": f"{mark}\n\n{first['content']}"}
    return replace(prompt, messages=(marked, *others))


def _marked_late(prompt: Prompt, mark: str) -> Prompt:
    """The mark ends the last message; a plain text is to be gone on with, so before its last line.

    What stands before the mark may be found in the prefix cache.
    """
    if prompt.messages is None:
        before, line_end, last = (prompt.prompt or "").rpartition("\n")
        return replace(prompt, prompt=f"{before}{line_end}{mark}\n\n{last}")
    *others, last_message = prompt.messages
    marked = {**last_message, "content": f"{last_message['content']}\n\n{mark}"}
    return replace(prompt, messages=(*others, marked))


def _taking_turns(prompts: Sequence[Prompt], rng: random.Random) -> list[Prompt]:
    """All prompts in random order, each kind spread evenly over it."""
    by_kind: dict[str, list[Prompt]] = {}
    for prompt in rng.sample(prompts, len(prompts)):
        by_kind.setdefault(prompt.kind, []).append(prompt)
    places = [
        ((turn + rng.random()) / len(of_kind), prompt)
        for of_kind in by_kind.values()
        for turn, prompt in enumerate(of_kind)
    ]
    return [prompt for _, prompt in sorted(places, key=lambda place: place[0])]


def _seeded(seed: str) -> random.Random:
    return random.Random(seed)  # noqa: S311
