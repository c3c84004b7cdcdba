from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import SpecError
from tuner.load.prompts import (
    Prompt,
    load_prompts,
    require_timestamps,
    skipped_conversations,
    workload_sha256,
)
from tuner.spec import Budget, Sampling, Workload


def workload_of(tmp_path: Path, text: str, name: str = "prompts.jsonl") -> Workload:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return Workload(name="own", path=path)


class TestBuiltin:
    def test_thirty_and_more_of_each_kind(self) -> None:
        kinds = Counter(p.kind for p in load_prompts(Workload()))

        assert kinds.keys() == {
            "chat",
            "code_writing",
            "code_editing",
            "summarise",
            "translation",
            "maths",
        }
        assert min(kinds.values()) >= 32

    def test_enough_for_the_screen_even_where_answers_are_short(self) -> None:
        assert len(load_prompts(Workload())) * 32 >= Budget().screen_tokens

    def test_all_different_and_of_moderate_length(self) -> None:
        texts = [
            "\n".join(m["content"] for m in p.messages or ()) for p in load_prompts(Workload())
        ]

        assert len(set(texts)) == len(texts)
        assert all(12 <= len(text.split()) <= 180 for text in texts)


class TestFile:
    def test_prompts_and_messages(self, tmp_path: Path) -> None:
        workload = workload_of(
            tmp_path,
            '\ufeff{"prompt": "def f(", "output_tokens": 9}\n'
            "\n"
            '{"id": 7, "kind": "chat", '
            '"messages": [{"role": "user", "content": "Hi\u2028there"}]}\r\n',
        )

        assert load_prompts(workload) == [
            Prompt("line-1", "unlabelled", None, "def f(", output_tokens=9),
            Prompt("7", "chat", ({"role": "user", "content": "Hi\u2028there"},), None),
        ]

    def test_every_bad_line_is_told_at_once(self, tmp_path: Path) -> None:
        workload = workload_of(
            tmp_path,
            "not JSON\n"
            '{"prompt": "fine", "id": "a"}\n'
            "{}\n"
            '{"prompt": "p", "messages": [{"role": "user", "content": "c"}]}\n'
            '{"messages": []}\n'
            '{"messages": [{"role": "user"}]}\n'
            '{"prompt": "again", "id": "a"}\n',
        )

        with pytest.raises(SpecError) as caught:
            load_prompts(workload)

        assert [(m.line, m.where) for m in caught.value.mistakes] == [
            (1, ""),
            (3, ""),
            (4, ""),
            (5, ""),
            (6, "messages.0.content"),
            (7, "id"),
        ]
        assert "give 'messages' or 'prompt', one of the two, and not empty" in str(caught.value)

    def test_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(SpecError, match="No such file"):
            load_prompts(Workload(path=tmp_path / "none.jsonl"))

    def test_no_text(self, tmp_path: Path) -> None:
        (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
        with pytest.raises(SpecError, match="not UTF-8"):
            load_prompts(Workload(path=tmp_path / "binary"))

    @given(
        st.text() | st.lists(st.sampled_from(["{", "[", "]", "}", '"prompt"', ":", "1", ",", "\n"]))
    )
    def test_garbage_is_told_as_mistakes(self, garbage: str | list[str]) -> None:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "garbage"
            path.write_bytes("".join(garbage).encode(errors="surrogatepass"))

            with pytest.raises(SpecError) as caught:
                load_prompts(Workload(path=path))

        assert caught.value.mistakes

    def test_no_prompts(self, tmp_path: Path) -> None:
        with pytest.raises(SpecError, match="no prompts"):
            load_prompts(workload_of(tmp_path, "\n\n"))


class TestHash:
    def test_depends_on_the_traffic_alone(self, tmp_path: Path) -> None:
        here = workload_of(tmp_path, '{"prompt": "one"}\n')
        there = workload_of(tmp_path, '{"id": "x", "prompt": "one"}\n\n', "elsewhere.jsonl")

        assert workload_sha256(here) == workload_sha256(there)

    def test_each_part_of_the_traffic_changes_it(self, tmp_path: Path) -> None:
        base = workload_of(tmp_path, '{"prompt": "one"}')
        others = [
            workload_of(tmp_path, '{"prompt": "two"}', "two.jsonl"),
            base.model_copy(update={"output_tokens": 99}),
            base.model_copy(update={"requests": 99}),
            base.model_copy(update={"sampling": Sampling(temperature=1)}),
            base.model_copy(update={"ignore_eos": True}),
            base.model_copy(update={"shared_prefixes": True}),
            workload_of(tmp_path, '{"prompt": "one", "output_tokens": 9}', "length.jsonl"),
            workload_of(tmp_path, '{"prompt": "one", "timestamp": 9}', "time.jsonl"),
            workload_of(tmp_path, '{"prompt": "one", "kind": "code"}', "kind.jsonl"),
            workload_of(tmp_path, '{"messages": [{"role": "user", "content": "one"}]}', "chat"),
        ]

        assert len({workload_sha256(w) for w in (base, *others)}) == len(others) + 1


class TestConversations:
    BEGUN_BY_A_MODEL = '{"conversations": [{"from": "gpt", "value": "Hello"}]}'

    def test_the_skipped_are_counted(self, tmp_path: Path) -> None:
        by_a_person = '{"conversations": [{"from": "human", "value": "Hello"}]}'
        workload = workload_of(tmp_path, f"[{by_a_person}, {self.BEGUN_BY_A_MODEL}]")

        assert [p.messages for p in load_prompts(workload)] == [
            ({"role": "user", "content": "Hello"},)
        ]
        assert skipped_conversations(workload) == 1

    def test_none_but_skipped_is_a_mistake(self, tmp_path: Path) -> None:
        workload = workload_of(tmp_path, f"[{self.BEGUN_BY_A_MODEL}]")

        with pytest.raises(SpecError, match="none of the 1 conversations begins with a person's"):
            load_prompts(workload)


class TestTimestamps:
    ONE = Prompt("one", "chat", None, "Hi", at_s=1.0)

    def test_all_there_and_two_of_them_different(self) -> None:
        prompts = [self.ONE, replace(self.ONE, id="two", at_s=2.5)]

        assert require_timestamps(prompts) is None

    def test_some_are_missing(self) -> None:
        prompts = [self.ONE, replace(self.ONE, id="two", at_s=None)]

        mistake = require_timestamps(prompts)

        assert mistake is not None
        assert "1 of 2 have none, two first" in mistake.message

    @pytest.mark.parametrize("count", [1, 3])
    def test_all_are_the_same(self, count: int) -> None:
        mistake = require_timestamps([self.ONE] * count)

        assert mistake is not None
        assert "at least two different" in mistake.message
