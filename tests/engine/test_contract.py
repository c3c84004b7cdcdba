"""What the tuner relies on, the same for the fake and for real vLLM."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.engine.asking import (
    SPECULATIVE,
    accepted_at,
    becomes,
    counters,
    counters_after,
    events,
    post,
    value,
)
from tests.engine.conftest import ENGINE, FAKE_CONTEXT, K
from tuner.engine.server import Server

QUEUED = "vllm:request_queue_time_seconds"
RUNNING = "vllm:num_requests_running"
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


def _chat_body(server: Server, max_tokens: int, **more: Any) -> dict[str, Any]:
    return {
        "model": server.model,
        "messages": MESSAGES,
        "max_tokens": max_tokens,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        **more,
    }


def _chat(server: Server, max_tokens: int, **more: Any) -> list[dict[str, Any]]:
    body = _chat_body(server, max_tokens, **more)
    response = post(server.base_url, "/v1/chat/completions", body)
    assert response.status_code == 200, response.text
    return events(response)


def _completion(server: Server, **more: Any) -> dict[str, Any]:
    body = {"model": server.model, "prompt": "The sky is", "max_tokens": 5, "ignore_eos": True}
    response = post(server.base_url, "/v1/completions", {**body, "temperature": 0, **more})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def _context(server: Server) -> int:
    [card] = httpx.get(f"{server.base_url}/v1/models", trust_env=False).json()["data"]
    limit: int = card["max_model_len"]
    return limit


def _refused(server: Server, **more: Any) -> str:
    """The message with which vLLM refuses a completion with 400."""
    body = {"model": server.model, "prompt": "The sky is", "max_tokens": 5, **more}
    response = post(server.base_url, "/v1/completions", body)
    assert response.status_code == 400, response.text
    message: str = response.json()["error"]["message"]
    return message


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
    answer = _completion(server)
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


def test_a_streamed_chat_returns_the_ids_of_its_tokens(server: Server) -> None:
    first, *chunks, last = _chat(server, 13, return_token_ids=True)
    assert len(first["prompt_token_ids"]) == last["usage"]["prompt_tokens"] > 0
    assert "prompt_token_ids" not in chunks[0]
    ids = [token for chunk in chunks for token in chunk["choices"][0]["token_ids"]]
    assert len(ids) == last["usage"]["completion_tokens"] == 13
    assert first["choices"][0].get("token_ids") in (None, [])


def test_a_streamed_completion_returns_the_ids_of_its_tokens(server: Server) -> None:
    options = {"stream": True, "stream_options": {"include_usage": True}}
    body = {"model": server.model, "prompt": "The sky is", "max_tokens": 13, "ignore_eos": True}
    body |= {"temperature": 0, "return_token_ids": True, **options}
    *chunks, last = events(post(server.base_url, "/v1/completions", body))
    choices = [chunk["choices"][0] for chunk in chunks]
    assert len(choices[0]["prompt_token_ids"]) == last["usage"]["prompt_tokens"] > 0
    assert not any(choice["prompt_token_ids"] for choice in choices[1:])
    ids = [token for choice in choices for token in choice["token_ids"]]
    assert len(ids) == last["usage"]["completion_tokens"] == 13
    whole = _completion(server, max_tokens=13, return_token_ids=True)["choices"][0]
    assert whole["prompt_token_ids"] == choices[0]["prompt_token_ids"]
    assert len(whole["token_ids"]) == 13


def test_ids_are_returned_only_when_asked_for(server: Server) -> None:
    first, *chunks, _ = _chat(server, 3)
    assert first.get("prompt_token_ids") is None
    assert all(chunk["choices"][0].get("token_ids") is None for chunk in chunks)


def test_a_list_of_ids_is_scored_token_by_token(server: Server) -> None:
    asked = _completion(server, max_tokens=8, return_token_ids=True)["choices"][0]
    ids = asked["prompt_token_ids"] + asked["token_ids"]
    answer = _completion(server, prompt=ids, max_tokens=1, prompt_logprobs=1)
    assert answer["usage"]["prompt_tokens"] == len(ids)
    first, *scores = answer["choices"][0]["prompt_logprobs"]
    assert first is None
    for token, entries in zip(ids[1:], scores, strict=True):
        own = entries[str(token)]
        best = [entry for entry in entries.values() if entry["rank"] == 1]
        assert len(best) == 1
        assert own["logprob"] <= best[0]["logprob"] <= 0
        assert own["rank"] >= 1
        assert len(entries) == (1 if own["rank"] == 1 else 2)


def test_zero_prompt_logprobs_are_only_the_tokens_own(server: Server) -> None:
    answer = _completion(server, max_tokens=1, prompt_logprobs=0, return_token_ids=True)
    ids, scores = (answer["choices"][0][name] for name in ("prompt_token_ids", "prompt_logprobs"))
    assert [list(entries) for entries in scores[1:]] == [[str(token)] for token in ids[1:]]


def test_the_target_finds_its_own_answer_likely(off: Server) -> None:
    asked = _completion(off, max_tokens=24, return_token_ids=True)["choices"][0]
    ids = asked["prompt_token_ids"] + asked["token_ids"]
    answer = _completion(off, prompt=ids, max_tokens=1, prompt_logprobs=1)
    scores = answer["choices"][0]["prompt_logprobs"][-24:]
    gaps = [
        max(entry["logprob"] for entry in entries.values()) - entries[str(token)]["logprob"]
        for token, entries in zip(asked["token_ids"], scores, strict=True)
    ]
    assert sum(gap < 0.1 for gap in gaps) >= 22


def test_prompt_logprobs_are_not_streamed(server: Server) -> None:
    assert "stream=True" in _refused(server, stream=True, prompt_logprobs=1)


def test_an_answer_has_at_least_a_token_and_may_be_hidden(server: Server) -> None:
    assert "at least 1" in _refused(server, max_tokens=0)
    answer = _completion(server, max_tokens=0, echo=True)
    assert answer["usage"]["completion_tokens"] == 1


def test_the_card_has_the_context_length_and_what_exceeds_it_is_refused(server: Server) -> None:
    limit = _context(server)
    assert limit in {ENGINE.args["max_model_len"], FAKE_CONTEXT}
    assert "maximum context length" in _refused(server, prompt=[1] * (limit + 1))
    assert "at least 1" in _refused(server, prompt=[1] * limit)
    assert "max_model_len" in _refused(server, max_tokens=limit + 1)


def test_an_answer_is_cut_where_the_context_ends(server: Server) -> None:
    answer = _completion(server, prompt=[1] * (_context(server) - 4), max_tokens=50)
    assert answer["usage"]["completion_tokens"] == 4
    assert answer["choices"][0]["finish_reason"] == "length"


def test_tokenize_counts_as_usage_does(server: Server) -> None:
    for path, prompt in (
        ("/v1/completions", {"prompt": "The sky is blue, and so is the sea."}),
        ("/v1/chat/completions", {"messages": MESSAGES}),
    ):
        body = {"model": server.model, **prompt}
        told = post(server.base_url, "/tokenize", body).json()
        asked = {**body, "max_tokens": 1, "return_token_ids": True}
        answer = post(server.base_url, path, asked).json()
        assert told["count"] == len(told["tokens"]) == answer["usage"]["prompt_tokens"]
        ids = answer.get("prompt_token_ids") or answer["choices"][0].get("prompt_token_ids")
        assert told["tokens"] == ids


def test_the_wait_of_each_answered_request_is_counted_once(server: Server) -> None:
    before = value(server.base_url, f"{QUEUED}_count")
    waited = value(server.base_url, f"{QUEUED}_sum")
    for _ in range(2):
        _chat(server, 3)
    becomes(server.base_url, f"{QUEUED}_count", before + 2)
    assert value(server.base_url, f"{QUEUED}_sum") >= waited


@pytest.mark.parametrize("streamed", [True, False])
def test_a_request_whose_client_leaves_is_taken_out_of_the_batch(
    server: Server, streamed: bool
) -> None:
    becomes(server.base_url, RUNNING, 0)
    before = value(server.base_url, f"{QUEUED}_count")
    body = _chat_body(server, _context(server) - 100)
    with httpx.Client(base_url=server.base_url, timeout=60, trust_env=False) as client:
        if streamed:
            with client.stream("POST", "/v1/chat/completions", json=body) as response:
                lines = response.iter_lines()  # kept: the connection closes with its reader
                next(lines)
                becomes(server.base_url, RUNNING, 1)
        else:
            body = {name: body[name] for name in body if not name.startswith("stream")}
            with pytest.raises(httpx.ReadTimeout):
                client.post("/v1/chat/completions", json=body, timeout=1)
    becomes(server.base_url, RUNNING, 0)
    assert value(server.base_url, f"{QUEUED}_count") == before
    assert value(server.base_url, "vllm:num_requests_waiting") == 0


def test_an_answer_says_what_each_of_its_steps_accepted(speculating: Server) -> None:
    before = counters(speculating.base_url)
    limit = 33
    chunks = _chat(speculating, limit, return_token_ids=True)
    told = chunks[-1]["metrics"]["speculative_decoding"]
    accepted, drafted = told["per_step_accepted"], told["per_step_drafted"]
    # One token comes of the prefill. What the last step accepted counts whole, though it is cut.
    beyond = 1 + sum(accepted) + len(accepted) - limit
    assert 0 <= beyond <= accepted[-1]
    after = counters_after(speculating.base_url, before["vllm:generation_tokens_total"] + limit)
    name = f"{SPECULATIVE}num_accepted_tokens_total"
    assert after[name] - before.get(name, 0) == sum(accepted)
    assert set(drafted) == {K}
    assert told["num_spec_steps"] == len(accepted) == len(drafted)
    assert told["num_accepted_draft_tokens"] == sum(accepted)
    assert told["num_draft_tokens"] == sum(drafted)
    assert told["num_spec_tokens"] == K
    assert told["acceptance_histogram"] == [accepted.count(n) for n in range(K + 1)]
    assert told["mean_acceptance_length"] == pytest.approx(1 + sum(accepted) / len(accepted))
    assert told["draft_acceptance_rate"] == pytest.approx(sum(accepted) / sum(drafted))


def test_an_answer_without_steps_has_none(speculating: Server) -> None:
    told = _completion(speculating, max_tokens=1)["metrics"]["speculative_decoding"]
    assert told["num_spec_steps"] == 0
    assert not told.get("per_step_accepted")
    streamed = _chat(speculating, 1)[-1]["metrics"]["speculative_decoding"]
    assert "per_step_accepted" not in streamed


def test_steps_come_with_the_usage_alone(speculating: Server) -> None:
    chunks = _chat(speculating, 6, stream_options={"include_usage": False})
    assert not any("metrics" in chunk for chunk in chunks)


def test_off_has_no_steps(off: Server) -> None:
    assert not _chat(off, 6)[-1].get("metrics")
    assert not _completion(off)["metrics"]
