"""The answers of real engines that the screen is held against: which, and how they are had."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.engine.conftest import RealVllm, _running
from tuner.load.plan import Deck, RoundPlan
from tuner.load.prompts import load_prompts
from tuner.load.rounds import run_round
from tuner.records import RequestSample, Setting
from tuner.spec import Load, Sampling, Workload

DRAFTS = ("smollm2", "draft-noise-0.1", "draft-noise-0.2", "draft-10-layers")
KS = (1, 2, 4, 8)
TEMPERATURES = (0.0, 0.8)
REQUESTS, OUTPUT_TOKENS, CONCURRENCY = 48, 128, 16
"""Up to 6,144 output tokens at each temperature: an answer that ends by itself is shorter."""
FEW_REQUESTS = 16
"""Enough to see whether a replay takes the engine's steps; acceptance needs more."""
SAMPLED_REQUESTS = 32
"""Of an engine that speculates above temperature 0, where sampling takes most of the time here."""
MENDED = Path(__file__).with_name("mended")
"""Holds a plugin that every engine loads: see there."""
DTYPE = "float32"
UNFINISHED = Path("build/bench/screen-answers.json")
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
    """The answers so far, by case and temperature, on disk after each round."""

    def __init__(self, conditions: dict[str, Any], path: Path) -> None:
        self._conditions = json.loads(json.dumps(conditions))
        self._path = path
        self._answers: dict[str, list[dict[str, Any]]] = {}
        if path.exists():
            kept = json.loads(path.read_text())
            if kept["conditions"] == self._conditions:
                self._answers = kept["answers"]
                print(f"going on with {len(self._answers)} rounds of {path}")

    def has(self, case: str, temperature: float) -> bool:
        return f"{case} at {temperature}" in self._answers

    def of(self, case: str, temperature: float) -> list[RequestSample]:
        return [
            RequestSample(**{k: tuple(v) if isinstance(v, list) else v for k, v in one.items()})
            for one in self._answers[f"{case} at {temperature}"]
        ]

    def add(self, case: str, temperature: float, samples: Sequence[RequestSample]) -> None:
        self._answers[f"{case} at {temperature}"] = [asdict(sample) for sample in samples]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        kept = {"conditions": self._conditions, "answers": self._answers}
        self._path.write_text(json.dumps(kept))


def workload(case: Case | None, temperature: float) -> Workload:
    requests = REQUESTS
    if case and temperature > 0:
        requests = SAMPLED_REQUESTS
    if case and case.remembers:
        requests = FEW_REQUESTS  # only the replay of its own text is judged
    sampling = Sampling(temperature=temperature)
    return Workload(requests=requests, output_tokens=OUTPUT_TOKENS, sampling=sampling)


def plan(case: Case | None, temperature: float) -> RoundPlan:
    """The same prompts for every engine, others at each temperature: none is in a prefix cache."""
    deck = Deck(load_prompts(Workload()), seed=f"screen/{temperature}")
    return deck.plan(Load(concurrency=concurrency(case)), workload(case, temperature))


def temperatures(case: Case | None) -> tuple[float, ...]:
    """One that remembers would begin the second with the history of the first."""
    return TEMPERATURES[:1] if case and case.remembers else TEMPERATURES


def concurrency(case: Case | None) -> int:
    """One request at a time where drafts depend on who else is answered."""
    return 1 if case and case.remembers else CONCURRENCY


def ask(vllm: RealVllm, case: Case | None, kept: Kept) -> None:
    """Starts a case's engine, if it still has something to answer."""
    name = case.name if case else BASELINE
    missing = [each for each in temperatures(case) if not kept.has(name, each)]
    if not missing:
        return
    command = vllm.command(dict(case.config) if case else None, dtype=DTYPE)
    command = replace(command, env={**command.env, "PYTHONPATH": str(MENDED)})
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
