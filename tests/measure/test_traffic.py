from __future__ import annotations

import pytest
from aiohttp import web

from tests.load.scripted import serving
from tuner.errors import RoundError
from tuner.load.prompts import Prompt
from tuner.measure.traffic import tokenize

HELLO = Prompt("p", "chat", None, "Hello")


async def unused(_: web.Request) -> web.StreamResponse:
    raise AssertionError


def test_a_server_without_tokenize_leaves_lengths_unknown() -> None:
    with serving(unused) as base_url:
        assert tokenize(base_url, "m", [HELLO]) == []


def test_a_server_that_does_not_answer_is_an_error_of_the_round() -> None:
    with serving(unused) as base_url:
        gone = base_url
    with pytest.raises(RoundError, match="/tokenize"):
        tokenize(gone, "m", [HELLO])
