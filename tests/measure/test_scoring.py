"""Scoring against a scripted engine; what real vLLM says is in tests/engine/test_scoring.py."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import Any

import pytest

from tuner.errors import FailureKind, RoundError
from tuner.measure.scoring import (
    LEAST_ANSWERS,
    MARGIN,
    SCORED_TOKENS,
    agreements,
    mean_prompt_logprob,
    score_answers,
)
from tuner.records import RequestSample, ScoredText

BEST = 7
"""The id that is the likeliest everywhere, with a log-probability of -1."""

GAPS = {BEST: 0.0, 8: MARGIN - 0.01, 9: MARGIN + 0.01, 10: 9.0}
"""By how much each id lies below it."""

CONTEXT = 4096

Body = dict[str, Any]
Reply = tuple[int, Any]


class Engine:
    """Scores by GAPS; keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Body] = []
        self.models: Body = {"data": [{"id": "m", "max_model_len": CONTEXT}]}
        self.answer: Callable[[Body], Reply] = self.score

    def score(self, body: Body) -> Reply:
        self.asked.append(body)
        places: list[Body | None] = [None]
        for token in body["prompt"][1:]:
            entries = {str(BEST): {"logprob": -1.0, "rank": 1}}
            entries[str(token)] = {"logprob": -1.0 - GAPS[token], "rank": 1 + (token != BEST)}
            places.append(entries)
        return 200, {"choices": [{"text": "x", "prompt_logprobs": places}]}


class Server(ThreadingHTTPServer):
    def handle_error(self, *_: Any) -> None:
        """A client that one request failed hangs up on its others."""


@contextmanager
def serving(engine: Engine) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply(200, engine.models)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.reply(*engine.answer(body))

        def reply(self, status: int, value: Any) -> None:
            text = value if isinstance(value, str) else json.dumps(value)
            self.send_response(status)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def base_url(engine: Engine) -> Iterator[str]:
    with serving(engine) as url:
        yield url


def sample(prompt: tuple[int, ...], tokens: tuple[int, ...]) -> RequestSample:
    return RequestSample("p", "chat", 0.0, prompt_token_ids=prompt, token_ids=tokens)


def answers(*samples: RequestSample) -> list[tuple[str, int, RequestSample]]:
    return [("m1", number, each) for number, each in enumerate(samples)]


class TestAnswers:
    def test_a_token_is_off_target_beyond_the_margin(self, base_url: str) -> None:
        """The prompt's own tokens do not count, however unlikely."""
        [found] = score_answers(base_url, "m", answers(sample((10, 10), (BEST, 8, 9, 10))))

        mean = -1 - sum(GAPS[token] for token in (BEST, 8, 9, 10)) / 4
        assert found == ScoredText("m1", 0, 4, 2, pytest.approx(mean))

    def test_what_is_sent(self, engine: Engine, base_url: str) -> None:
        score_answers(base_url, "m", answers(sample((10, 9), (BEST,))))

        assert engine.asked == [
            {
                "model": "m",
                "prompt": [10, 9, BEST],
                "max_tokens": 1,
                "temperature": 0,
                "prompt_logprobs": 1,
            }
        ]

    def test_many_keep_their_order_and_their_numbers(self, base_url: str) -> None:
        given = [sample((10,), (BEST,) * (1 + number % 5)) for number in range(30)]

        found = score_answers(base_url, "m", answers(*given))

        assert [(each.request, each.tokens) for each in found] == [
            (number, 1 + number % 5) for number in range(30)
        ]

    def test_samples_without_ids_are_left_out(self, base_url: str) -> None:
        found = score_answers(
            base_url,
            "m",
            answers(sample((), (BEST,)), sample((10,), ()), sample((10,), (BEST,))),
        )

        assert [each.request for each in found] == [2]

    def test_nothing_to_score(self, engine: Engine, base_url: str) -> None:
        assert score_answers(base_url, "m", []) == []
        assert engine.asked == []

    def test_an_answer_that_filled_the_context(self, engine: Engine, base_url: str) -> None:
        """The engine must have room for the one token that it answers: the last is left out."""
        engine.models["data"][0]["max_model_len"] = 6

        [found] = score_answers(base_url, "m", answers(sample((10, 10), (BEST, BEST, 8, 9))))

        assert engine.asked[0]["prompt"] == [10, 10, BEST, BEST, 8]
        assert (found.tokens, found.off_target) == (3, 0)

    def test_an_engine_that_does_not_tell_its_context(self, engine: Engine, base_url: str) -> None:
        del engine.models["data"][0]["max_model_len"]

        [found] = score_answers(base_url, "m", answers(sample((10,), (BEST,))))

        assert found.tokens == 1

    def test_more_than_enough_is_thinned_evenly(self, base_url: str) -> None:
        """Whole answers, so that their lengths still say something."""
        tokens = SCORED_TOKENS // 20
        given = [sample((10,), (BEST,) * tokens) for _ in range(50)]

        found = score_answers(base_url, "m", answers(*given))

        assert len(found) == 20
        assert {each.tokens for each in found} == {tokens}
        numbers = [each.request for each in found]
        assert numbers[0] == 0
        assert {b - a for a, b in pairwise(numbers)} == {2, 3}

    def test_long_answers_are_still_enough_of_them(self, base_url: str) -> None:
        given = [sample((10,), (BEST,) * 2000) for _ in range(2 * LEAST_ANSWERS)]

        assert len(score_answers(base_url, "m", answers(*given))) == LEAST_ANSWERS


class TestRefusals:
    def test_the_server_s_own_text(self, engine: Engine, base_url: str) -> None:
        engine.answer = lambda _: (400, {"error": {"message": "no logprobs today"}})

        with pytest.raises(RoundError, match=r"400.*no logprobs today") as caught:
            score_answers(base_url, "m", answers(sample((10,), (BEST,))))

        assert caught.value.failure.kind is FailureKind.REQUEST_REJECTED

    @pytest.mark.parametrize(
        "reply",
        [
            (503, "overloaded"),
            (429, "slow down"),
            (200, "no JSON"),
            (200, {"choices": []}),
            (200, {"choices": [{"prompt_logprobs": None}]}),
            (200, {"choices": [{"prompt_logprobs": [None]}]}),
            (200, {"choices": [{"prompt_logprobs": [None, {"3": {"logprob": -1.0}}]}]}),
        ],
    )
    def test_an_answer_that_cannot_be_used(
        self, engine: Engine, base_url: str, reply: Reply
    ) -> None:
        engine.answer = lambda _: reply

        with pytest.raises(RoundError, match="baseline engine") as caught:
            score_answers(base_url, "m", answers(*[sample((10,), (BEST,))] * 9))

        assert caught.value.failure.kind is FailureKind.REQUESTS_FAILED

    def test_nobody_there(self) -> None:
        with serving(Engine()) as gone:
            pass

        with pytest.raises(RoundError, match="connection failed"):
            score_answers(gone, "m", answers(sample((10,), (BEST,))))


class TestPrompts:
    def test_the_median_of_their_means(self, base_url: str) -> None:
        prompts = [(10, BEST, BEST), (10, 10, 10, 10), (10, 9, BEST)]

        assert mean_prompt_logprob(base_url, "m", prompts) == pytest.approx(-1 - GAPS[9] / 2)

    def test_prompts_of_one_token_say_nothing(self, engine: Engine, base_url: str) -> None:
        assert mean_prompt_logprob(base_url, "m", [(10,), ()]) is None
        assert engine.asked == []


class TestAgreements:
    def test_a_token_agrees_where_it_is_the_likeliest(self, base_url: str) -> None:
        texts = [((BEST, 9), (BEST, 8, BEST)), ((8,), (10, BEST))]
        assert agreements(base_url, "m", texts) == [[True, False, True], [False, True]]

    def test_beyond_the_context_nothing_does(self, engine: Engine, base_url: str) -> None:
        engine.models = {"data": [{"id": "m", "max_model_len": 4}]}
        assert agreements(base_url, "m", [((BEST,), (BEST,) * 4)]) == [[True, True, False, False]]
