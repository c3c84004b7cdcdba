"""What the fake and real vLLM say of a prompt's tokens before it is sent."""

from __future__ import annotations

import pytest

from tests.engine.asking import post
from tuner.engine.server import Server
from tuner.load.prompts import Prompt
from tuner.measure.traffic import tokenize

CHAT = Prompt("chat", "chat", ({"role": "user", "content": "Name three rivers of Europe."},), None)
PLAIN = Prompt("plain", "chat", None, "The longest river of Europe is")


@pytest.fixture(
    scope="session",
    params=["fake_baseline", pytest.param("real_baseline", marks=pytest.mark.engine)],
)
def server(request: pytest.FixtureRequest) -> Server:
    running: Server = request.getfixturevalue(request.param)
    return running


def test_a_prompt_is_as_long_as_usage_says_when_it_is_sent(server: Server) -> None:
    chat, plain = tokenize(server.base_url, server.model, [CHAT, PLAIN])
    common = {"model": server.model, "max_tokens": 2}
    asked = {"messages": list(CHAT.messages or ())}
    sent = post(server.base_url, "/v1/chat/completions", {**common, **asked}).json()
    assert len(chat.token_ids) == sent["usage"]["prompt_tokens"]
    sent = post(server.base_url, "/v1/completions", {**common, "prompt": PLAIN.prompt}).json()
    assert len(plain.token_ids) == sent["usage"]["prompt_tokens"]
    assert chat.context_tokens == plain.context_tokens >= 2048
