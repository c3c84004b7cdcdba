"""What is replayed is what the real engine did: its own answers, its own account of its steps."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.engine.conftest import RealVllm, _running
from tests.engine.replaying import agreement, answered, replayed
from tuner.engine.drafts import Interpreter, Model, ScoredDraft, score_drafts
from tuner.load.plan import Deck
from tuner.load.prompts import load_prompts
from tuner.predict.ngram import Ngram
from tuner.settings import Settings
from tuner.spec import Load, Workload

pytestmark = pytest.mark.engine

FAMILY = "smollm2-family"

WORKLOAD = Workload(requests=8, output_tokens=64)

VLLMS_NGRAM = """
import json, sys
import numpy as np
from vllm.v1.spec_decode import ngram_proposer

find = ngram_proposer._find_longest_matched_ngram_and_propose_tokens
cases = json.load(sys.stdin)
found = [
    find(np.array(text, dtype=np.int32), least, most, context, k).tolist()
    for text, least, most, context, k in cases
]
print(json.dumps(found))
"""

VLLMS_DEFAULTS = """
import importlib.util, json, sys
from vllm.config.speculative import SpeculativeConfig

spec = importlib.util.spec_from_file_location("replay_suffix", sys.argv[1])
ours = importlib.util.module_from_spec(spec)
spec.loader.exec_module(ours)
fields = SpeculativeConfig.__dataclass_fields__
theirs = {name: fields[ours.PREFIX + name].default for name in ours.DEFAULTS}
plain = {name: fields[name].default for name in json.loads(sys.argv[2])}
print(json.dumps([ours.DEFAULTS, theirs, plain]))
"""


@pytest.fixture(scope="module")
def drafts() -> dict[str, str]:
    folder = Settings().models_dir / FAMILY
    return {name: str(folder / name) for name in ("draft-noise-0.1", "draft-10-layers")}


def said(python: Path, code: str, *args: str, given: object = None) -> Any:
    """What vLLM's own interpreter prints as its last line."""
    done = subprocess.run(
        [python, "-c", code, *args],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


@dataclass(frozen=True)
class Case:
    config: dict[str, Any]
    dtype: str
    concurrency: int


NGRAM = {"method": "ngram", "prompt_lookup_min": 2, "prompt_lookup_max": 4}


@pytest.mark.parametrize(
    "case",
    [
        Case({"method": "draft_model", "model": "draft-noise-0.1"}, "float32", 2),
        Case(NGRAM, "bfloat16", 2),
        Case({"method": "suffix", "num_speculative_tokens": 8}, "bfloat16", 1),
    ],
    ids=["draft_model", "ngram", "suffix"],
)
def test_a_replay_of_an_engines_own_answers_takes_the_steps_it_took(
    case: Case, real_vllm: RealVllm, drafts: dict[str, str], tmp_path: Path
) -> None:
    """The draft in float32: there all 485 places of one run at k=8 were judged alike.

    In bfloat16 the engine's kernels and those that score a draft round differently: 3 of 482 places
    at k=8, which over so few tokens made 2 % of the steps (0.6 % at k=4).
    """
    config = {"num_speculative_tokens": 4, **case.config}
    if "model" in config:
        config["model"] = drafts[config["model"]]
    load = Load(concurrency=case.concurrency)
    plan = Deck(load_prompts(WORKLOAD), "replay").plan(load, WORKLOAD)
    with _running(real_vllm.command(config, dtype=case.dtype), tmp_path) as server:
        assert server.facts.runner == "V1"
        samples = answered(server, plan, WORKLOAD)

    steps = replayed(
        config,
        samples,
        real_vllm.python,
        target=real_vllm.model,
        dtype=case.dtype,
        in_flight=case.concurrency,
    )

    found = agreement(samples, steps)
    assert found.engine_steps >= 50
    assert found.worst <= 0.01, found


def test_ngram_drafts_what_vllms_own_proposer_drafts(real_vllm: RealVllm) -> None:
    random = Random(11)
    cases = []
    for number in range(3000):
        letters, length = random.choice((2, 3, 8)), random.randrange(1, 40 + number // 10)
        text = [random.randrange(letters) for _ in range(length)]
        least = random.randrange(1, 5)
        most, k = least + random.randrange(5), random.randrange(1, 10)
        cases.append((text, least, most, length + random.randrange(20), k))

    theirs = said(real_vllm.python, VLLMS_NGRAM, given=cases)

    for (text, least, most, context, k), expected in zip(cases, theirs, strict=True):
        found = Ngram(text, (), "V1", context).draft(len(text), least, most, k)
        assert list(found) == expected, (text, least, most, context, k)
    assert sum(map(bool, theirs)) > 1000


def test_the_installed_vllm_has_the_defaults_that_a_replay_takes(real_vllm: RealVllm) -> None:
    names = ["draft_sample_method", "rejection_sample_method", "parallel_drafting"]
    with as_file(files("tuner.engine.inside") / "replay_suffix.py") as path:
        ours, theirs, plain = said(real_vllm.python, VLLMS_DEFAULTS, str(path), json.dumps(names))
    assert ours == theirs
    assert list(plain.values()) == ["greedy", "standard", False]


def test_a_draft_that_cannot_be_scored_says_why_and_the_others_are_scored(
    real_vllm: RealVllm, drafts: dict[str, str], tmp_path: Path
) -> None:
    target, half = Model(real_vllm.model), Model(drafts["draft-10-layers"])
    quantised = tmp_path / "quantised"
    quantised.mkdir()
    config = json.loads((Path(real_vllm.model) / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8"}
    (quantised / "config.json").write_text(json.dumps(config))
    prompt = [1, 4093, 198]
    lines: list[str] = []

    scored = score_drafts(
        Interpreter(real_vllm.python, {"HF_HUB_OFFLINE": "1"}),
        target,
        [target, half, Model("/nowhere"), Model(str(quantised))],
        [(prompt, [7, 8, 9]), (prompt, [10])],
        lines.append,
        dtype="float32",
        device="cpu",
    )

    own, ten_layers, nowhere, fp8 = scored.drafts.values()
    assert isinstance(own, ScoredDraft)
    assert isinstance(ten_layers, ScoredDraft)
    assert [len(answer) for answer in own.agreements] == [3, 1]
    assert scored.target_parameters == own.parameters
    assert 0 < ten_layers.parameters < own.parameters
    assert "nowhere" in str(nowhere)
    assert "only vLLM computes it" in str(fp8)
    assert lines[0] == f"[1/4] scoring {real_vllm.model}"
    assert len(lines) == 4
