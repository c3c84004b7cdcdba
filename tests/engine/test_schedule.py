"""How many tokens are drafted follows the number of running requests; fake and real vLLM."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mode
from typing import Any

import pytest

from tests.engine.asking import TEXTS, post
from tests.engine.conftest import RealVllm, _running
from tests.engine.fakes import fake
from tuner.engine.command import EngineCommand
from tuner.engine.server import Server
from tuner.vllm import SCHEDULE

ALONE, TOGETHER = 3, 1
"""Tokens drafted per step, for a request alone and for several."""

TOKENS = 32


def scheduled(model: str) -> dict[str, Any]:
    schedule = [[1, 1, ALONE], [2, 64, TOGETHER]]
    return {
        "method": "draft_model",
        "model": model,
        "num_speculative_tokens": ALONE,
        SCHEDULE: schedule,
    }


def drafted(server: Server, prompt: str) -> list[int]:
    """What each step of an answer drafted."""
    body = {"model": server.model, "prompt": prompt, "ignore_eos": True, "temperature": 0}
    answer = post(server.base_url, "/v1/completions", {**body, "max_tokens": TOKENS}).json()
    found: list[int] = answer["metrics"]["speculative_decoding"]["per_step_drafted"]
    return found


def drafts_by_the_schedule(command: EngineCommand, folder: Path) -> None:
    with _running(command, folder) as server:
        assert set(drafted(server, TEXTS[0])) == {ALONE}
        with ThreadPoolExecutor(4) as clients:
            together = list(clients.map(lambda text: drafted(server, text), TEXTS[1:5]))
        for steps in together:
            assert set(steps) <= {ALONE, TOGETHER}
            assert mode(steps) == TOGETHER
        assert set(drafted(server, TEXTS[5])) == {ALONE}


def test_the_fake(tmp_path: Path) -> None:
    command = fake(
        scheduled("/models/target"),
        ("--per-request-spec-decode-metrics", "detailed"),
        acceptance={"target": 1.0},
        step_ms=20,
    )
    drafts_by_the_schedule(command, tmp_path)


@pytest.mark.engine
def test_vllm(real_vllm: RealVllm, tmp_path: Path) -> None:
    """Its own draft in float32: what is drafted is accepted, so all answers take as many steps."""
    command = real_vllm.command(scheduled(real_vllm.model), dtype="float32")
    drafts_by_the_schedule(command, tmp_path)
