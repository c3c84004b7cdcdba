"""The answers of real engines that the screen is held against: which, and how they are had."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.benchmarks.dated import BUILD, RESULTS
from tests.engine.conftest import RealVllm, _running
from tuner.load.plan import Deck, RoundPlan
from tuner.load.prompts import load_prompts
from tuner.load.rounds import run_round
from tuner.records import RequestSample, Setting
from tuner.spec import Load, Sampling, Workload

DRAFTS = ("smollm2", "draft-noise-0.1", "draft-noise-0.2", "draft-10-layers")
KS = (1, 2, 4, 8)
TEMPERATURES = (0.0, 0.8)
REQUESTS, OUTPUT_TOKENS, CONCURRENCY = 384, 16, 16
"""Up to 6,144 output tokens at each temperature: an answer that ends by itself is shorter.

An interval is one over requests: many short answers tell more than few long ones."""
FURTHER_PROMPTS = Path(__file__).with_name("prompts.jsonl")
"""Beside those that are built in, so that no round asks a prompt twice."""
FEW_REQUESTS = 64
"""Enough to see whether a draft's replay takes the engine's steps; acceptance needs more."""
ROUNDS_SAMPLED = 2
"""How often engines that speculate answer every prompt above temperature 0, where each answer is
drawn anew: the noise of what they measure is to be less than the screen's."""
REMEMBERED_REQUESTS, REMEMBERED_TOKENS = 16, 128
"""What suffix answers, in longer texts. Its history holds what was accepted past an answer's end,
which nobody else sees: in answers of 16 tokens at k=8 that led one of 64 to another draft."""
ARGS: dict[str, Any] = {"dtype": "float32", "block_size": 32}
ENV = {"VLLM_CPU_KVCACHE_SPACE": "6"}
"""GiB: room for all prompts of a round, that a further one finds them in the prefix cache; in
blocks of 128, as the CPU's are unless told, most of them would not fill one."""
MENDED = Path(__file__).with_name("mended")
"""Holds a plugin that every engine loads: see there."""
UNFINISHED = BUILD / "screen-answers.json.gz"
RECORDED = RESULTS / "screen-answers.json.gz"
"""The answers behind the dated results: screens can be judged by them again without an engine."""
FIELDS = (
    "prompt_id",
    "kind",
    "started_s",
    "completion_tokens",
    "finish_reason",
    "chunk_tokens",
    "token_ids",
    "accepted_per_step",
    "drafted_per_step",
)
BASELINE = "off"


@dataclass(frozen=True)
class Case:
    """A setting whose engine answers."""

    config: Mapping[str, Any]

    @property
    def name(self) -> str:
        return Setting.of(self.config).label

    @property
    def remembers(self) -> bool:
        """Whether its drafts depend on what it answered before."""
        return self.config["method"] == "suffix"


def cases(models: Path) -> Iterator[Case]:
    for k in KS:
        speculate = {"num_speculative_tokens": k}
        for draft in DRAFTS:
            yield Case({"method": "draft_model", "model": str(models / draft), **speculate})
        lookup = {"prompt_lookup_min": 2, "prompt_lookup_max": 4}
        yield Case({"method": "ngram", **lookup, **speculate})
        yield Case({"method": "suffix", **speculate})


class Kept:
    """The answers so far, by case and temperature, on disk after each round.

    An answer is kept with what its steps are counted and replayed from; prompts apart from them and
    once, for all engines are asked the same ones at a temperature.
    """

    def __init__(self, conditions: dict[str, Any], path: Path) -> None:
        self.conditions = json.loads(json.dumps(conditions))
        self._path = path
        self._prompts: dict[str, dict[str, list[int]]] = {}
        self._answers: dict[str, list[list[dict[str, Any]]]] = {}

    @classmethod
    def read(cls, path: Path) -> Kept:
        with gzip.open(path, "rt") as file:
            written = json.load(file)
        kept = cls(written["conditions"], path)
        kept._prompts, kept._answers = written["prompts"], written["answers"]
        return kept

    @classmethod
    def go_on(cls, conditions: dict[str, Any], path: Path) -> Kept:
        """With what was kept under the same conditions, if there is any."""
        begun = cls(conditions, path)
        if path.exists() and (kept := cls.read(path)).conditions == begun.conditions:
            print(f"going on with {sum(map(len, kept._answers.values()))} rounds of {path}")
            return kept
        return begun

    def rounds(self, case: str, temperature: float) -> int:
        return len(self._answers.get(f"{case} at {temperature}", []))

    def of(self, case: str, temperature: float) -> list[RequestSample]:
        """The answers of all rounds."""
        prompts = self._prompts[str(temperature)]
        return [
            RequestSample(
                prompt_token_ids=tuple(prompts[one["prompt_id"]]),
                **{k: tuple(v) if isinstance(v, list) else v for k, v in one.items()},
            )
            for of_round in self._answers[f"{case} at {temperature}"]
            for one in of_round
        ]

    def add(self, case: str, temperature: float, samples: Sequence[RequestSample]) -> None:
        prompts = self._prompts.setdefault(str(temperature), {})
        prompts |= {s.prompt_id: list(s.prompt_token_ids) for s in samples}
        self._answers.setdefault(f"{case} at {temperature}", []).append(
            [{field: getattr(sample, field) for field in FIELDS} for sample in samples]
        )
        self.write(self._path)

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = {
            "conditions": self.conditions,
            "prompts": self._prompts,
            "answers": self._answers,
        }
        path.write_bytes(gzip.compress(json.dumps(kept).encode(), mtime=0))


def workload(case: Case | None, temperature: float) -> Workload:
    remembers = case is not None and case.remembers
    return Workload(
        requests=REMEMBERED_REQUESTS if remembers else REQUESTS,
        output_tokens=REMEMBERED_TOKENS if remembers else OUTPUT_TOKENS,
        sampling=Sampling(temperature=temperature),
    )


def plan(case: Case | None, temperature: float) -> RoundPlan:
    """The same prompts for every engine, each once, in another order at each temperature."""
    prompts = [*load_prompts(Workload()), *load_prompts(Workload(path=FURTHER_PROMPTS))]
    deck = Deck(prompts, seed=f"screen/{temperature}")
    round_plan = deck.plan(Load(concurrency=concurrency(case)), workload(case, temperature))
    if round_plan.repeated:
        raise SystemExit(f"{round_plan.repeated} prompts would be asked twice")
    return round_plan


def temperatures(case: Case | None) -> tuple[float, ...]:
    """One that remembers would begin the second with the history of the first."""
    return TEMPERATURES[:1] if case and case.remembers else TEMPERATURES


def concurrency(case: Case | None) -> int:
    """One request at a time where drafts depend on who else is answered."""
    return 1 if case and case.remembers else CONCURRENCY


def rounds(case: Case | None, temperature: float) -> int:
    return ROUNDS_SAMPLED if case and temperature > 0 else 1


def ask(vllm: RealVllm, case: Case | None, kept: Kept) -> None:
    """Starts a case's engine, if it still has something to answer.

    A new start with the seed of an earlier one would draw the same answers again.
    """
    name = case.name if case else BASELINE
    missing = [
        temperature
        for temperature in temperatures(case)
        for _ in range(rounds(case, temperature) - kept.rounds(name, temperature))
    ]
    if not missing:
        return
    seed = sum(kept.rounds(name, temperature) for temperature in TEMPERATURES)
    command = vllm.command(dict(case.config) if case else None, seed=seed, **ARGS)
    command = replace(command, env={**command.env, **ENV, "PYTHONPATH": str(MENDED)})
    with TemporaryDirectory() as folder, _running(command, Path(folder)) as server:
        for temperature in missing:
            began = time.monotonic()
            round_plan, asked = plan(case, temperature), workload(case, temperature)
            samples = run_round(
                server.base_url, server.model, round_plan, asked, padded=False
            ).samples
            if failed := [sample.error for sample in samples if sample.error]:
                raise SystemExit(f"{name}: {failed[0]}")
            kept.add(name, temperature, samples)
            seconds = time.monotonic() - began
            print(f"{name} at temperature {temperature}: {seconds:.0f} s", flush=True)
