from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.load.prompt_files import PromptFile, read_prompt_file
from tuner.load.prompt_line import Line

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
CHAT = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "user", "assistant"]), "content": TEXT}
    ),
    min_size=1,
    max_size=4,
)
TIME = st.integers(0, 2**33).map(lambda ms: ms * 251 / 1000)
"""Some seconds since 1970, to the millisecond."""

KEYS = [
    "prompt",
    "messages",
    "role",
    "content",
    "conversations",
    "from",
    "value",
    "body",
    "request",
    "model",
    "id",
    "custom_id",
    "kind",
    "max_tokens",
    "output_tokens",
    "timestamp",
    "created",
    "type",
    "text",
]
ENTRY = st.dictionaries(
    st.sampled_from(KEYS),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
        ),
        max_leaves=15,
    ),
)


def read(*entries: Any) -> PromptFile:
    return read_prompt_file("\n".join(json.dumps(entry) for entry in entries))


def one(entry: Any) -> Line:
    file = read(entry)
    assert file.mistakes == ()
    (line,) = file.lines
    return line


def chat(line: Line) -> list[dict[str, str]]:
    return [{"role": m.role, "content": m.content} for m in line.messages or ()]


def mistakes(*entries: Any) -> list[tuple[int | None, str, str]]:
    return [(m.line, m.where, m.message) for m in read(*entries).mistakes]


def mistake(entry: Any) -> tuple[str, str]:
    ((line, where, message),) = mistakes(entry)
    assert line == 1
    return where, message


class TestOurs:
    @given(
        asked=st.fixed_dictionaries({"prompt": TEXT}) | st.fixed_dictionaries({"messages": CHAT}),
        others=st.fixed_dictionaries(
            {},
            optional={
                "id": TEXT,
                "kind": TEXT,
                "output_tokens": st.integers(2, 9999),
                "timestamp": TIME,
                "reference": st.text(),
            },
        ),
    )
    def test_comes_back_as_it_was_written(
        self, asked: dict[str, Any], others: dict[str, Any]
    ) -> None:
        line = one(asked | others)

        assert line.prompt == asked.get("prompt")
        assert chat(line) == asked.get("messages", [])
        assert line.id == others.get("id", "line-1")
        assert line.kind == others.get("kind", "unlabelled")
        assert line.output_tokens == others.get("output_tokens")
        assert line.timestamp == others.get("timestamp")

    def test_vllms_custom_data_set(self) -> None:
        lines = read(
            {"prompt": "What is the capital of Peru?", "output_tokens": 10},
            {"prompt": "Name three rivers.", "output_tokens": 1520.0},
        ).lines

        assert [(line.prompt, line.output_tokens) for line in lines] == [
            ("What is the capital of Peru?", 10),
            ("Name three rivers.", 1520),
        ]

    def test_a_list_of_them_is_read_too(self) -> None:
        file = read_prompt_file('[{"prompt": "a"},\n {"prompt": "b", "id": "second"}\n]\n')

        assert [(line.id, line.prompt) for line in file.lines] == [("line-1", "a"), ("second", "b")]

    def test_other_columns_are_left_alone(self) -> None:
        line = one({"prompt": "p", "created": "a while ago", "time": [], "body": 3})

        assert (line.prompt, line.timestamp) == ("p", None)

    def test_an_id_given_twice_is_a_mistake(self) -> None:
        told = mistakes({"prompt": "a", "id": "x"}, {"prompt": "b", "id": "x"})

        assert told == [(2, "id", "'x' is taken by an earlier line")]

    @pytest.mark.parametrize("tokens", [[1, 2, 3], [[1], [2]], []])
    @pytest.mark.parametrize("inside", [None, "body"])
    def test_case_19_token_ids_are_refused(self, tokens: list[Any], inside: str | None) -> None:
        """Random tokens as prompts give meaningless acceptance (vllm#52536)."""
        asked = {"prompt": tokens}

        where, message = mistake({inside: asked} if inside else asked)

        assert where == (f"{inside}.prompt" if inside else "prompt")
        assert "must be text, not token ids" in message
        assert "vllm#52536" in message

    def test_several_prompts_on_a_line_are_refused(self) -> None:
        assert mistake({"prompt": ["a", "b"]}) == (
            "prompt",
            "must be one text; write a line for each",
        )

    @pytest.mark.parametrize("tokens", [1, 0, -5, True, 7.5, "many", [8]])
    def test_a_length_must_be_a_number_of_tokens(self, tokens: Any) -> None:
        assert mistake({"prompt": "p", "output_tokens": tokens})[0] == "output_tokens"

    def test_half_a_character_is_refused(self) -> None:
        file = read_prompt_file('{"prompt": "a\\ud83d"}')

        (told,) = file.mistakes
        assert told.where == "prompt"
        assert "holds half a character (\\ud83d without its other half)" in told.message


class TestShareGpt:
    @given(
        system=st.none() | TEXT,
        words=st.lists(TEXT, min_size=1, max_size=3),
        speaker=st.sampled_from(["human", "user"]),
        answerer=st.sampled_from(["gpt", "assistant"]),
    )
    def test_all_before_the_first_answer_is_the_prompt(
        self, system: str | None, words: list[str], speaker: str, answerer: str
    ) -> None:
        asked = [{"from": speaker, "value": text} for text in words]
        before = [] if system is None else [{"from": "system", "value": system}]
        rest = [{"from": answerer, "value": "A"}, {"from": speaker, "value": "B"}]

        file = read([{"id": "x_0", "conversations": [*before, *asked, *rest]}])

        (line,) = file.lines
        assert line.id == "x_0"
        roles = ["system"] * len(before) + ["user"] * len(words)
        texts = [*([system] if system is not None else []), *words]
        assert [(m["role"], m["content"]) for m in chat(line)] == list(
            zip(roles, texts, strict=True)
        )
        assert line.output_tokens is None

    @pytest.mark.parametrize(
        "turns",
        [
            [],
            [{"from": "gpt", "value": "Hello"}, {"from": "human", "value": "Hi"}],
            [{"from": "system", "value": "Be brief."}, {"from": "gpt", "value": "Yes"}],
            [{"from": "human", "value": ""}, {"from": "gpt", "value": "?"}],
        ],
        ids=["empty", "the model begins", "nobody asks", "nothing asked"],
    )
    def test_one_that_no_person_begins_is_skipped(self, turns: list[dict[str, str]]) -> None:
        file = read([{"conversations": turns}, {"conversations": turns}])

        assert (file.lines, file.skipped, file.mistakes) == ((), 2, ())

    def test_ids_that_repeat_are_told_apart(self) -> None:
        entry = {"id": "x", "conversations": [{"from": "human", "value": "Hi"}]}

        file = read_prompt_file(f"[{json.dumps(entry)},\n{json.dumps(entry)}]")

        assert [line.id for line in file.lines] == ["x", "x-line-2"]

    def test_what_is_wrong_is_told_in_the_files_own_words(self) -> None:
        file = read_prompt_file(
            "[\n"
            '  {"conversations": "Hi"},\n'
            '  {"conversations": [{"from": "narrator", "value": "Once"}]},\n'
            '  {"conversations": ["Hi"]},\n'
            '  {"conversations": [{"from": "human", "value": 7}]}\n'
            "]"
        )

        assert [(m.line, m.where) for m in file.mistakes] == [
            (2, "conversations"),
            (3, "conversations.0.from"),
            (4, "conversations.0.from"),
            (5, "conversations.0.value"),
        ]
        assert "must be one of assistant, gpt, human, system, user" in file.mistakes[1].message


class TestRequestLog:
    @given(
        asked=st.fixed_dictionaries({"prompt": TEXT}) | st.fixed_dictionaries({"messages": CHAT}),
        limit=st.sampled_from(["max_tokens", "max_completion_tokens"]),
        tokens=st.integers(2, 9999),
        at_s=TIME,
        time=st.sampled_from(["timestamp", "created", "created_at", "time"]),
        place=st.sampled_from([None, "body", "request"]),
        sampling=st.fixed_dictionaries({}, optional={"temperature": st.floats(0, 2)}),
    )
    def test_a_request_wherever_it_lies(
        self,
        *,
        asked: dict[str, Any],
        limit: str,
        tokens: int,
        at_s: float,
        time: str,
        place: str | None,
        sampling: dict[str, Any],
    ) -> None:
        request = {"model": "m", limit: tokens, **asked, **sampling}
        entry = request if place is None else {place: request}

        line = one(entry | {time: at_s})

        assert line.prompt == asked.get("prompt")
        assert chat(line) == asked.get("messages", [])
        assert (line.output_tokens, line.timestamp) == (tokens, at_s)

    def test_a_line_of_a_batch_file(self) -> None:
        line = one(
            {
                "custom_id": "request-1",
                "method": "POST",
                "url": "/v1/chat/completions",
                "body": {"model": "m", "messages": [{"role": "user", "content": "Hi"}]},
            }
        )

        assert (line.id, chat(line)) == ("request-1", [{"role": "user", "content": "Hi"}])
        assert (line.output_tokens, line.timestamp) == (None, None)

    def test_parts_of_text_are_joined(self) -> None:
        parts = [{"type": "text", "text": "One, "}, {"type": "text", "text": "two."}]

        line = one({"model": "m", "messages": [{"role": "user", "content": parts}]})

        assert chat(line) == [{"role": "user", "content": "One, two."}]

    @pytest.mark.parametrize(
        ("part", "held"),
        [
            ({"type": "image_url", "image_url": {"url": "data:"}}, "holds an image"),
            ({"type": "input_audio", "input_audio": {}}, "holds a part of type input_audio"),
        ],
    )
    def test_parts_that_are_no_text_are_mistakes(self, part: dict[str, Any], held: str) -> None:
        content = [{"type": "text", "text": "What is this?"}, part]

        where, message = mistake({"body": {"messages": [{"role": "user", "content": content}]}})

        assert where == "body.messages.0.content"
        assert message.startswith(held)
        assert "only text" in message

    def test_what_is_wrong_is_told_in_the_logs_own_words(self) -> None:
        ask = {"prompt": "p"}

        told = mistakes(
            {"body": ["Hi"]},
            {"request": {"prompt": "p", "max_tokens": 1}},
            {"model": "m", **ask, "created_at": "yesterday"},
            {"request": {"input": "to embed"}},
        )

        assert told == [
            (1, "body", "must be the request, an object with messages or a prompt"),
            (2, "request.max_tokens", "must be at least 2, is 1"),
            (3, "created_at", "must be seconds, or a date and time: 2026-11-29T12:00:00Z"),
            (4, "", "give 'messages' or 'prompt', one of the two, and not empty"),
        ]

    def test_ids_that_repeat_are_told_apart(self) -> None:
        entry = {"model": "m", "prompt": "p", "id": "user-7"}

        assert [line.id for line in read(entry, entry).lines] == ["user-7", "user-7-line-2"]


class TestTimes:
    @pytest.mark.parametrize(
        "time",
        [
            1764417600.25,
            "1764417600.25",
            1764417600250,
            "2025-11-29T12:00:00.250Z",
            "2025-11-29T12:00:00.250",
            "2025-11-29 14:00:00.250+02:00",
        ],
    )
    def test_seconds_milliseconds_and_dates(self, time: Any) -> None:
        assert one({"prompt": "p", "timestamp": time}).timestamp == 1764417600.25

    @given(st.datetimes(datetime(1970, 1, 2), datetime(2999, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001
    def test_any_date_in_iso_8601(self, moment: datetime) -> None:
        line = one({"prompt": "p", "timestamp": moment.isoformat()})

        assert line.timestamp == moment.timestamp()

    @given(st.floats(0, 9e10))
    def test_small_numbers_are_seconds(self, seconds: float) -> None:
        assert one({"prompt": "p", "timestamp": seconds}).timestamp == seconds

    @pytest.mark.parametrize("time", ["soon", "", True, [], {}, 1764417600250000000, float("nan")])
    def test_what_is_no_time(self, time: Any) -> None:
        told = read({"prompt": "p", "timestamp": time}).mistakes

        assert [m.where for m in told] == (["timestamp"] if time != "" else [])


class TestForm:
    def test_a_list_tells_the_line_of_each_of_its_entries(self) -> None:
        file = read_prompt_file('[\n{"prompt": "a"},\n7,\n\n{"prompt": ""}, {"prompt": "b"}]')

        assert [(m.line, m.where) for m in file.mistakes] == [(3, ""), (5, "")]
        assert [line.id for line in file.lines] == ["line-2", "line-5"]

    @pytest.mark.parametrize(
        ("text", "line", "message"),
        [
            ("not JSON", 1, "is no JSON"),
            ('\n\n{"prompt": "a"', 3, "is no JSON"),
            ("7", 1, "must be an object"),
            ('[{"prompt": "a"}', 1, "must be followed by a comma"),
            ('[{"prompt": "a"},\n]', 2, "is no JSON"),
            ('[{"prompt": "a"}]\n{"prompt": "b"}', 1, "nothing may follow"),
            ("[" * 100_000, 1, "is no JSON"),
            ('{"prompt": ' + "1" * 5000 + "}", 1, "is no JSON"),
        ],
        ids=["words", "cut", "number", "open", "comma", "more", "deep", "long"],
    )
    def test_what_is_no_such_file(self, text: str, line: int, message: str) -> None:
        (told,) = read_prompt_file(text).mistakes

        assert told.line == line
        assert message in told.message

    @given(st.lists(ENTRY, min_size=1), st.booleans())
    def test_every_entry_is_a_line_or_skipped_or_mistaken(
        self, entries: list[Any], listed: bool
    ) -> None:
        each = [json.dumps(entry) for entry in entries]

        file = read_prompt_file("[" + ",\n".join(each) + "]" if listed else "\n".join(each))

        mistaken = {m.line for m in file.mistakes}
        assert len(file.lines) + file.skipped + len(mistaken) == len(entries)
        assert all(m.message for m in file.mistakes)
        assert len({line.id for line in file.lines}) == len(file.lines)

    @given(st.text())
    def test_any_text_can_be_read(self, text: str) -> None:
        file = read_prompt_file(text)

        assert file.lines == ()
        assert file.mistakes or "".join(text.split()) in {"", "[]"}
