from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
        chunk_ms=(50, 70, 90),
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


def with_ids(chunk: dict[str, Any], *ids: int) -> dict[str, Any]:
    (choice,) = chunk["choices"]
    return chunk | {"choices": [choice | {"token_ids": list(ids)}]}


class TestTokenIds:
    def test_of_a_chat(self) -> None:
        answer = read(
            (10, delta("", role="assistant") | {"prompt_token_ids": [1, 2, 3]}),
            (50, with_ids(delta("One"), 4)),
            (70, with_ids(delta(" two three"), 5, 6)),
            (90, with_ids(delta("", finish_reason="stop"), 7)),
            (91, usage(4)),
        )

        assert answer.prompt_token_ids == (1, 2, 3)
        assert answer.token_ids == (4, 5, 6, 7)
        assert (answer.chunk_ms, answer.chunk_tokens) == ((50, 70, 90), (1, 2, 1))

    def test_of_a_completion(self) -> None:
        first = {"text": "One", "prompt_token_ids": [1, 2], "token_ids": [3], "finish_reason": None}
        last = {"text": " two", "prompt_token_ids": None, "token_ids": [4, 5]}

        answer = read(
            (50, {"choices": [first]}),
            (70, {"choices": [last | {"finish_reason": "length"}]}),
            (71, usage(3)),
        )

        assert answer.prompt_token_ids == (1, 2)
        assert (answer.token_ids, answer.chunk_tokens) == ((3, 4, 5), (1, 2))

    def test_a_server_that_returns_none_leaves_them_empty(self) -> None:
        answer = read((20, delta("a")), (50, delta("b", finish_reason="length")), (51, usage(2)))

        assert (answer.prompt_token_ids, answer.token_ids, answer.chunk_tokens) == ((), (), ())
        assert answer.chunk_ms == (20, 50)

    def test_some_of_them_are_none(self) -> None:
        """vLLM hides the ids of reasoning where that is to be hidden."""
        answer = read(
            (20, delta("a")),
            (50, with_ids(delta("b", finish_reason="length"), 7)),
            (51, usage(2)),
        )

        assert (answer.token_ids, answer.chunk_tokens) == ((), ())

    def test_an_end_without_a_token_adds_none(self) -> None:
        answer = read(
            (20, with_ids(delta("a"), 7)), (50, delta("", finish_reason="stop")), (51, usage(1))
        )

        assert (answer.chunk_ms, answer.chunk_tokens, answer.token_ids) == ((20, 50), (1, 0), (7,))


def drafting(**others: Any) -> dict[str, Any]:
    """The usage chunk as vLLM 0.32 sends it with per-request metrics."""
    return usage(4) | {"metrics": {"speculative_decoding": {"num_spec_steps": 2, **others}}}


class TestPerStep:
    def test_detailed(self) -> None:
        last = drafting(per_step_accepted=[1, 0], per_step_drafted=[3, 3])

        answer = read((20, delta("a", finish_reason="length")), (21, last))

        assert (answer.accepted_per_step, answer.drafted_per_step) == ((1, 0), (3, 3))

    def test_a_summary_says_nothing_of_steps(self) -> None:
        answer = read((20, delta("a", finish_reason="length")), (21, drafting()))

        assert (answer.accepted_per_step, answer.drafted_per_step) == (None, None)

    def test_no_step_at_all(self) -> None:
        answer = read((20, delta("a", finish_reason="length")), (21, drafting(num_spec_steps=0)))

        assert (answer.accepted_per_step, answer.drafted_per_step) == ((), ())

    def test_without_metrics(self) -> None:
        answer = read((20, delta("a", finish_reason="length")), (21, usage(1)))

        assert (answer.accepted_per_step, answer.drafted_per_step) == (None, None)


class TestCutOff:
    def test_what_had_arrived_is_kept(self) -> None:
        timeline = [(10, delta("", role="assistant")), (50, delta("Half")), (70, delta(" an"))]

        answer = read_stream([(ms, json.dumps(chunk)) for ms, chunk in timeline], cut_off=True)

        assert answer == StreamedAnswer(ttft_ms=50, text="Half an", chunk_ms=(50, 70))

    def test_before_anything_arrived(self) -> None:
        assert read_stream([], cut_off=True) == StreamedAnswer()

    def test_an_error_stays_one(self) -> None:
        chunk = json.dumps({"error": {"message": "engine dead", "code": 500}})

        assert read_stream([(5, chunk)], cut_off=True).error == "500: engine dead"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "delta",
                    "content",
                    "text",
                    "token_ids",
                    "prompt_token_ids",
                    "finish_reason",
                    "usage",
                    "completion_tokens",
                    "metrics",
                    "speculative_decoding",
                    "per_step_accepted",
                    "error",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(st.lists(JSON.map(json.dumps) | st.text() | st.just("[" * 100_000)), st.booleans())
def test_garbage_is_never_raised(payloads: list[str], cut_off: bool) -> None:
    answer = read_stream([(float(n), p) for n, p in enumerate(payloads)], cut_off=cut_off)

    assert cut_off or answer.error is not None or answer.chunk_ms


@given(st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=4), min_size=1))
def test_chunks_add_up(ids: list[list[int]]) -> None:
    *chunks, last = [with_ids(delta("x" * len(some)), *some) for some in ids]
    last["choices"][0]["finish_reason"] = "length"
    total = sum(map(len, ids))

    answer = read(*enumerate([*chunks, last, usage(total)]))

    assert answer.chunk_tokens == tuple(map(len, ids))
    assert answer.token_ids == tuple(one for some in ids for one in some)
    assert len(answer.chunk_ms) == len(ids)
    assert answer.completion_tokens == total
