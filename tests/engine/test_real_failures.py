"""How the installed vLLM fails to start, and what it takes: facts that a newer one may change."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.engine.conftest import RealVllm
from tuner.engine.command import EngineCommand
from tuner.engine.server import Engine
from tuner.errors import EngineStartError, Failure, FailureKind
from tuner.vllm import METHODS, SPECULATIVE_KEYS

pytestmark = pytest.mark.engine

SET_BY_THE_TUNER = {"method", "model", "num_speculative_tokens"}
FILLED_IN_BY_VLLM = {
    "draft_model_config",
    "draft_parallel_config",
    "target_model_config",
    "target_parallel_config",
    "tensor_parallel_size",  # refused with a word about draft_tensor_parallel_size
}
ASK_VLLM = """
import json
from dataclasses import fields
from typing import get_args
from vllm.config.speculative import SpeculativeConfig, SpeculativeMethod

def flat(literal):
    return [x for part in get_args(literal) for x in (flat(part) if get_args(part) else [part])]

keys = [field.name for field in fields(SpeculativeConfig)]
print(json.dumps({"keys": keys, "methods": flat(SpeculativeMethod)}))
"""


def _failure(command: EngineCommand, folder: Path) -> Failure:
    engine = Engine(command, log_path=folder / "log", run_dir=folder / "run", startup_timeout_s=120)
    with pytest.raises(EngineStartError) as raised, engine:
        pass
    return raised.value.failure


def test_a_retired_flag(real_vllm: RealVllm, tmp_path: Path) -> None:
    failure = _failure(real_vllm.command(num_speculative_tokens=5), tmp_path)
    assert failure.kind is FailureKind.BAD_FLAG
    assert failure.exit_code == 2
    assert failure.message == "unrecognized arguments: --num-speculative-tokens"


def test_a_bad_speculative_config(real_vllm: RealVllm, tmp_path: Path) -> None:
    config = {
        "method": "ngram",
        "num_speculative_tokens": 3,
        "prompt_lookup_min": 5,
        "prompt_lookup_max": 2,
    }
    failure = _failure(real_vllm.command(config), tmp_path)
    assert failure.kind is FailureKind.BAD_SPECULATIVE_CONFIG
    assert failure.exit_code == 1
    assert failure.message == "prompt_lookup_min=5 must be <= prompt_lookup_max=2"


def test_a_missing_model(real_vllm: RealVllm, tmp_path: Path) -> None:
    failure = _failure(real_vllm.command(model=str(tmp_path / "nowhere")), tmp_path)
    assert failure.kind is FailureKind.MISSING_MODEL
    assert failure.exit_code == 1
    assert "nowhere" in failure.message


def test_steps_are_only_for_an_engine_that_speculates(real_vllm: RealVllm, tmp_path: Path) -> None:
    failure = _failure(real_vllm.command(per_request_spec_decode_metrics="detailed"), tmp_path)
    assert failure.kind is FailureKind.BAD_FLAG
    assert "requires speculative decoding" in failure.message


def test_the_spec_knows_vllms_keys_and_methods(real_vllm: RealVllm) -> None:
    done = subprocess.run(
        [real_vllm.python, "-c", ASK_VLLM], capture_output=True, text=True, check=True
    )
    answer = json.loads(done.stdout.splitlines()[-1])
    assert set(answer["keys"]) == SPECULATIVE_KEYS | SET_BY_THE_TUNER | FILLED_IN_BY_VLLM
    assert {m for m in answer["methods"] if not m.endswith("_mtp")} == METHODS
