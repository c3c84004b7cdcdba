from __future__ import annotations

import json
from typing import Any

import pytest
from aiohttp import web

from tuner.engine.fake_bodies import output_limit, prompt_ids, prompt_logprobs
from tuner.engine.fake_text import BENIGN_GAP, BEST_LOGPROB, VOCABULARY, FakeText

CHAT = {"messages": [{"role": "user", "content": "a"}]}


@pytest.mark.parametrize(
    ("body", "limit"),
    [
        ({}, 16),
        ({"max_tokens": None}, 16),
        ({"max_tokens": 30}, 30),
        ({"max_tokens": 100}, 90),
        ({"max_tokens": 0, "echo": True}, 1),
        (CHAT, 90),
        ({**CHAT, "max_tokens": 7}, 7),
        ({**CHAT, "max_completion_tokens": 5, "max_tokens": 7}, 5),
    ],
)
def test_an_answer_may_fill_the_context(body: dict[str, Any], limit: int) -> None:
    assert output_limit(body, prompt_tokens=10, max_model_len=100) == limit


@pytest.mark.parametrize(
    ("body", "prompt_tokens", "message"),
    [
        ({"max_tokens": 0}, 10, "max_tokens must be at least 1, got 0. (parameter=max_tokens)"),
        ({**CHAT, "max_tokens": 0}, 10, "max_tokens must be at least 1, got 0."),
        ({"max_tokens": 101}, 10, "max_tokens=101 cannot be greater than max_model_len=100."),
        ({}, 101, "This model's maximum context length is 100 tokens. However, your prompt"),
        ({}, 100, "max_tokens must be at least 1, got 0."),
    ],
)
def test_what_does_not_fit_is_refused(
    body: dict[str, Any], prompt_tokens: int, message: str
) -> None:
    with pytest.raises(web.HTTPBadRequest) as raised:
        output_limit(body, prompt_tokens, max_model_len=100)
    error = json.loads(raised.value.text or "")["error"]
    assert error["message"].startswith(message)
    assert error["code"] == 400


@pytest.mark.parametrize("prompt", [None, "", [], [1, VOCABULARY]])
def test_no_prompt_and_unknown_tokens_are_refused(prompt: object) -> None:
    with pytest.raises(web.HTTPBadRequest):
        prompt_ids({"prompt": prompt})


def test_ids_are_taken_as_they_are() -> None:
    assert prompt_ids({"prompt": [3, 1, 2]}) == [3, 1, 2]


@pytest.mark.parametrize("away", [0, 1, 2])
def test_a_tokens_own_logprob_and_the_likeliest(away: int) -> None:
    text = FakeText()
    start = [5, 6]
    first = text.next(*start)
    ids = [*start, first + away]
    own = prompt_logprobs(text, ids, 0)[2]
    two = prompt_logprobs(text, ids, 2)[2]
    assert own is not None
    assert two is not None
    assert own == {str(first + away): two[str(first + away)]}
    assert own[str(first + away)]["logprob"] == text.score(ids)[2][0]
    assert own[str(first + away)]["rank"] == away + 1
    assert two[str(first)]["logprob"] == BEST_LOGPROB
    assert two[str(first + 1)]["logprob"] == pytest.approx(BEST_LOGPROB - BENIGN_GAP)
    assert prompt_logprobs(text, ids, 0)[0] is None
