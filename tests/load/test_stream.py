from __future__ import annotations

import json
from typing import Any

import pytest

from tests.load.scripted import delta, usage
from tuner.load.stream import StreamedAnswer, read_stream
from tuner.records import RequestSample


def read(*timeline: tuple[float, Any]) -> StreamedAnswer:
    return read_stream(
        (at_ms, chunk if isinstance(chunk, str) else json.dumps(chunk)) for at_ms, chunk in timeline
    )


def test_times_are_those_of_the_first_and_the_last_token() -> None:
    answer = read(
        (10, delta("", role="assistant")),
        (50, delta("One")),
        (70, delta(" two")),
        (90, delta(" three", finish_reason="length")),
        (95, usage(3, prompt_tokens=11)),
        (99, "[DONE]"),
    )

    assert answer == StreamedAnswer(
        ttft_ms=50,
        e2e_ms=90,
        prompt_tokens=11,
        completion_tokens=3,
        finish_reason="length",
        text="One two three",
    )


def test_a_chunk_may_carry_several_tokens() -> None:
    """With speculation, chunks are verify steps: TPOT follows usage, not the number of chunks."""
    answer = read(
        (100, delta("a")),
        (130, delta(" b c d")),
        (160, delta(" e f g", finish_reason="length")),
        (161, usage(7)),
    )

    sample = RequestSample(
        "p", "chat", 0.0, answer.ttft_ms, answer.e2e_ms, None, answer.completion_tokens
    )

    assert sample.tpot_ms == pytest.approx(60 / 6)


def test_the_end_of_sequence_token_counts_though_it_has_no_text() -> None:
    answer = read((40, delta("Hi")), (60, delta("", finish_reason="stop")), (61, usage(2)))

    assert (answer.ttft_ms, answer.e2e_ms) == (40, 60)


def test_an_answer_of_the_end_of_sequence_token_alone() -> None:
    role = delta("", role="assistant")
    answer = read((10, role), (30, delta("", finish_reason="stop")), (31, usage(1)))

    assert (answer.ttft_ms, answer.e2e_ms, answer.text, answer.error) == (30, 30, "", None)


@pytest.mark.parametrize(
    "others",
    [
        {"reasoning": "Hm"},
        {"reasoning_content": "Hm"},
        {"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]},
    ],
    ids=["reasoning", "older reasoning", "tool call"],
)
def test_reasoning_and_tool_calls_are_tokens(others: dict[str, Any]) -> None:
    first = {"choices": [{"delta": others, "finish_reason": None}]}

    answer = read((20, first), (50, delta("4", finish_reason="stop")), (51, usage(2)))

    assert answer.ttft_ms == 20


def test_token_ids_without_text_are_tokens() -> None:
    first = {"choices": [{"text": "", "token_ids": [1234], "finish_reason": None}]}
    last = {"choices": [{"text": "é", "token_ids": [1235], "finish_reason": "length"}]}

    answer = read((20, first), (50, last), (51, usage(2)))

    assert (answer.ttft_ms, answer.e2e_ms, answer.text) == (20, 50, "é")


def test_usage_on_every_chunk_ends_as_the_last_one_says() -> None:
    answer = read(
        (20, delta("a") | {"usage": usage(1)["usage"]}),
        (50, delta("b", finish_reason="length") | {"usage": usage(2)["usage"]}),
    )

    assert (answer.e2e_ms, answer.completion_tokens) == (50, 2)


def test_without_usage_the_tokens_are_unknown() -> None:
    answer = read((20, delta("a")), (50, delta("b", finish_reason="length")), (51, "[DONE]"))

    assert answer.completion_tokens is None
    assert answer.error is None


@pytest.mark.parametrize(
    ("timeline", "error"),
    [
        ([], "the stream ended without an answer"),
        ([(1, "[DONE]")], "the stream ended without an answer"),
        ([(1, delta("", role="assistant"))], "the stream ended without an answer"),
        ([(1, delta("Half an"))], "the stream ended before the answer did"),
        ([(1, "{not JSON")], "the stream carried no JSON object: '{not JSON'"),
        ([(1, "[1]")], "the stream carried no JSON object: '[1]'"),
        (
            [(1, delta("a")), (2, {"error": {"message": "engine dead", "code": 500}})],
            "500: engine dead",
        ),
        ([(1, {"error": {"message": "no code"}})], "no code"),
        ([(1, {"error": {"code": 400, "type": "odd"}})], '400: {"code": 400, "type": "odd"}'),
        ([(1, {"error": "plain"})], "plain"),
    ],
)
def test_a_stream_that_is_no_answer_is_an_error(
    timeline: list[tuple[float, Any]], error: str
) -> None:
    assert read(*timeline) == StreamedAnswer(error=error)
