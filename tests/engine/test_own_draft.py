"""A real model that drafts for itself: the acceptance that must come out is known, all of it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.engine.asking import SPECULATIVE, TEXTS, accepted_at, counters, counters_after, post
from tests.engine.conftest import K
from tuner.engine.server import Server

TOKENS, PROMPTS = 64, 8


@pytest.mark.engine
def test_a_model_accepts_its_own_drafts_at_every_position(real_own_draft: Server) -> None:
    url = real_own_draft.base_url
    before = counters(url)
    bodies = [
        {
            "model": real_own_draft.model,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": TOKENS,
            "temperature": 0,
            "ignore_eos": True,
        }
        for text in TEXTS[:PROMPTS]
    ]
    with ThreadPoolExecutor(PROMPTS) as users:
        answers = list(users.map(lambda body: post(url, "/v1/chat/completions", body), bodies))
    assert [answer.status_code for answer in answers] == [200] * PROMPTS
    tokens = before["vllm:generation_tokens_total"] + PROMPTS * TOKENS
    after = counters_after(url, tokens)
    name = f"{SPECULATIVE}num_drafts_total"
    drafts = after[name] - before.get(name, 0)
    acceptance = [accepted / drafts for accepted in accepted_at(after, before, K)]
    assert len(acceptance) == K
    assert min(acceptance) >= 0.95, acceptance
