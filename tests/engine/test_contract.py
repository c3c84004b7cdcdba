"""What the tuner relies on, the same for the fake and for real vLLM."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.engine.asking import SPECULATIVE, accepted_at, counters, counters_after, events, post
from tests.engine.conftest import K
from tuner.engine.server import Server

MESSAGES = [{"role": "user", "content": "Name three colours of the rainbow, one per line."}]


def _params(*names: str) -> list[object]:
    return [
        pytest.param(name, marks=pytest.mark.engine if name.startswith("real") else ())
        for name in names
    ]


@pytest.fixture(
    scope="session",
    params=_params("fake_baseline", "fake_own_draft", "real_baseline", "real_own_draft"),
)
def server(request: pytest.FixtureRequest) -> Server:
    running: Server = request.getfixturevalue(request.param)
    return running


@pytest.fixture(scope="session", params=_params("fake_baseline", "real_baseline"))
def off(request: pytest.FixtureRequest) -> Server:
    running: Server = request.getfixturevalue(request.param)
    return running


@pytest.fixture(scope="session", params=_params("fake_own_draft", "real_own_draft"))
def speculating(request: pytest.FixtureRequest) -> Server:
    running: Server = request.getfixturevalue(request.param)
    return running


def _chat(server: Server, max_tokens: int) -> list[dict]:
    response = post(
        server.base_url,
        "/v1/chat/completions",
        {
            "model": server.model,
            "messages": MESSAGES,
            "max_tokens": max_tokens,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        },
    )
    assert response.status_code == 200, response.text
    return events(response)


def test_says_what_it_is(server: Server) -> None:
    answer = httpx.get(f"{server.base_url}/version", trust_env=False).json()
    assert answer["version"] == server.facts.version
    assert server.facts.runner == "V1"
    assert server.facts.graph_mode == "none"
    assert server.facts.kv_cache_tokens
    assert server.facts.max_concurrency
    assert server.startup_s > 0
    server.check()


def test_chat_streams_content_then_usage(server: Server) -> None:
    *chunks, last = _chat(server, 12)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 12
    assert "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks)
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"


def test_completions_answer(server: Server) -> None:
    body = {"model": server.model, "prompt": "The sky is", "max_tokens": 5, "ignore_eos": True}
    answer = post(server.base_url, "/v1/completions", body).json()
    assert answer["choices"][0]["text"]
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 5


def test_counts_tokens(server: Server) -> None:
    before = counters(server.base_url)
    usage = _chat(server, 9)[-1]["usage"]
    after = counters_after(server.base_url, before["vllm:generation_tokens_total"] + 9)
    assert after["vllm:generation_tokens_total"] - before["vllm:generation_tokens_total"] == 9
    prompts = after["vllm:prompt_tokens_total"] - before["vllm:prompt_tokens_total"]
    assert prompts == usage["prompt_tokens"]
    for name in ("prefix_cache_queries", "prefix_cache_hits", "num_preemptions"):
        assert after[f"vllm:{name}_total"] >= before[f"vllm:{name}_total"]


def test_off_drafts_nothing(off: Server) -> None:
    before = counters(off.base_url)
    _chat(off, 9)
    after = counters_after(off.base_url, before["vllm:generation_tokens_total"] + 9)
    assert not any(value for name, value in after.items() if name.startswith(SPECULATIVE))


def test_speculation_is_counted_consistently(speculating: Server) -> None:
    before = counters(speculating.base_url)
    _chat(speculating, 32)
    tokens = before["vllm:generation_tokens_total"] + 32
    after = counters_after(speculating.base_url, tokens)

    def counted(name: str) -> float:
        full = f"{SPECULATIVE}{name}_total"
        return after[full] - before.get(full, 0)

    positions = accepted_at(after, before, K)
    assert sum(positions) == counted("num_accepted_tokens")
    assert positions == sorted(positions, reverse=True)
    assert 0 < counted("num_accepted_tokens") <= counted("num_draft_tokens")
    assert counted("num_draft_tokens") <= counted("num_drafts") * K
    assert positions[0] <= counted("num_drafts") <= 31


def test_min_p_is_refused_with_speculation(speculating: Server) -> None:
    response = post(speculating.base_url, "/v1/completions", _min_p(speculating, temperature=0.8))
    assert response.status_code == 400
    assert "min_p" in response.json()["error"]["message"]


def test_min_p_is_dropped_where_nothing_is_drawn(speculating: Server) -> None:
    response = post(speculating.base_url, "/v1/completions", _min_p(speculating, temperature=0))
    assert response.status_code == 200


def test_min_p_is_taken_without(off: Server) -> None:
    assert post(off.base_url, "/v1/completions", _min_p(off, temperature=0.8)).status_code == 200


def _min_p(server: Server, temperature: float) -> dict[str, Any]:
    asked = {"model": server.model, "prompt": "A", "max_tokens": 2}
    return {**asked, "min_p": 0.1, "temperature": temperature}
