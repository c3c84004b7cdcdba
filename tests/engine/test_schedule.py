"""How many tokens are drafted follows the number of running requests; fake and real vLLM."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.engine.asking import TEXTS, becomes, post
from tests.engine.conftest import RealVllm, _running
from tests.engine.fakes import fake
from tuner.engine.command import EngineCommand
from tuner.engine.server import Server
from tuner.vllm import SCHEDULE

ALONE, TOGETHER = 3, 1
"""Tokens drafted per step, for a request alone and for several."""

TOKENS = 32
LONG = 1900
"""Tokens of an answer that other requests find under way."""


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


@contextmanager
def answering(server: Server, prompt: str) -> Iterator[None]:
    """Something is answered all the while, its first token has come; cut off at the end."""
    body = {"model": server.model, "prompt": prompt, "ignore_eos": True, "max_tokens": LONG}
    url = f"{server.base_url}/v1/completions"
    streamed = {**body, "stream": True}
    with httpx.stream("POST", url, json=streamed, timeout=120, trust_env=False) as response:
        lines = response.iter_lines()
        assert next(lines).startswith("data: ")
        yield
    becomes(server.base_url, "vllm:num_requests_running", 0)


def drafts_by_the_schedule(command: EngineCommand, folder: Path) -> None:
    with _running(command, folder) as server:
        assert set(drafted(server, TEXTS[0])) == {ALONE}
        with answering(server, TEXTS[1]):
            first, *following = drafted(server, TEXTS[2])
        assert first in {ALONE, TOGETHER}
        assert set(following) == {TOGETHER}
        assert set(drafted(server, TEXTS[3])) == {ALONE}


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
