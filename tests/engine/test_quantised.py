"""A quantised draft is scored by vLLM itself, and drafts in an engine as it was scored."""

import subprocess
from pathlib import Path

import pytest

from tests.engine.conftest import RealVllm, _running
from tests.engine.replaying import agreement, answered, texts
from tuner.load.plan import Deck
from tuner.load.prompts import load_prompts
from tuner.measure.scoring import agreements
from tuner.predict.replay import replay_draft_model
from tuner.spec import Load, Workload

pytestmark = pytest.mark.engine

K = 4
DTYPE = "float32"
"""Of what is not quantised. In bfloat16 near ties are decided otherwise by other processors'
kernels: of some 100 steps one differed, or three."""

WORKLOAD = Workload(requests=8, output_tokens=64)


@pytest.fixture
def quantised(real_vllm: RealVllm, tmp_path: Path) -> str:
    """The target in int8: a draft that only vLLM's kernels compute."""
    script, copy = Path(__file__).with_name("quantise.py"), tmp_path / "int8"
    subprocess.run([real_vllm.python, script, real_vllm.model, copy], check=True, timeout=120)
    return str(copy)


def test_it_drafts_as_a_server_of_its_own_scored_it(
    real_vllm: RealVllm, quantised: str, tmp_path: Path
) -> None:
    config = {"method": "draft_model", "model": quantised, "num_speculative_tokens": K}
    plan = Deck(load_prompts(WORKLOAD), "quantised").plan(Load(concurrency=2), WORKLOAD)
    with _running(real_vllm.command(config, dtype=DTYPE), tmp_path) as server:
        samples = answered(server, plan, WORKLOAD)

    (tmp_path / "alone").mkdir()
    alone = real_vllm.command(model=quantised, dtype=DTYPE)
    with _running(alone, tmp_path / "alone") as server:
        scored = agreements(server.base_url, server.model, texts(samples))

    found = agreement(samples, [replay_draft_model(one, K) for one in scored])
    assert found.engine_steps >= 50
    assert found.engine_accepted >= 2 * found.engine_steps
    assert found.worst <= 0.02, found
