from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import SpecError
from tuner.load.prompts import Prompt, load_prompts, round_prompts, workload_sha256
from tuner.spec import Sampling, Workload

SOME = [
    Prompt(f"{kind}-{n}", kind, None, f"{kind} {n}")
    for kind, count in (("chat", 4), ("code", 2))
    for n in range(count)
]

PINNED = [("code-1", "Request dd1894df\n\ncode 1"), ("chat-2", "Request e1b27f21\n\nchat 2")]


def workload_of(tmp_path: Path, text: str, name: str = "prompts.jsonl") -> Workload:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return Workload(name="own", path=path)


def body(prompt: Prompt) -> str:
    """A drawn plain prompt without its own first line."""
    assert prompt.prompt is not None
    start, _, rest = prompt.prompt.partition("\n\n")
    assert start.startswith("Request ")
    return rest


class TestBuiltin:
    def test_about_ten_of_each_kind(self) -> None:
        kinds = Counter(p.kind for p in load_prompts(Workload()))

        assert kinds.keys() == {
            "chat",
            "code_writing",
            "code_editing",
            "summarise",
            "translation",
            "maths",
        }
        assert min(kinds.values()) >= 10

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
            Prompt("line-1", "unlabelled", None, "def f("),
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
        ]

        assert len({workload_sha256(w) for w in (base, *others)}) == 5


class TestDraw:
    def test_the_same_seed_draws_the_same(self) -> None:
        first = round_prompts(SOME, count=5, seed="study/1/1")

        assert round_prompts(SOME, count=5, seed="study/1/1") == first
        assert round_prompts(SOME, count=5, seed="study/2/1") != first

    def test_a_draw_stays_what_it_was(self) -> None:
        """Pairs measured before an upgrade and after it must have had the same prompts."""
        drawn = round_prompts(SOME, count=2, seed="study/1/1")

        assert [(p.id, p.prompt) for p in drawn] == PINNED

    @given(st.integers(min_value=1, max_value=40), st.text())
    def test_goes_through_all_before_repeating_any(self, count: int, seed: str) -> None:
        drawn = round_prompts(SOME, count=count, seed=seed)

        times = Counter(p.id for p in drawn)
        assert len(drawn) == count
        assert max(times.values()) - min(times[p.id] for p in SOME) <= 1

    @given(st.text())
    def test_kinds_are_spread_over_the_draw(self, seed: str) -> None:
        first_half = round_prompts(SOME, count=3, seed=seed)

        assert Counter(p.kind for p in first_half) == {"chat": 2, "code": 1}

    def test_case_18_no_two_rounds_share_a_prefix(self) -> None:
        """vllm#54227: with fixed prompts a second round hits the first one's prefix cache."""
        rounds = [round_prompts(SOME, count=20, seed=f"study/{pair}/1") for pair in range(10)]

        starts = [(p.prompt or "")[:16] for drawn in rounds for p in drawn]
        assert len(set(starts)) == 200
        assert {body(p) for drawn in rounds for p in drawn} == {p.prompt for p in SOME}

    def test_messages_begin_with_the_line_and_are_otherwise_kept(self) -> None:
        messages = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"})

        (drawn,) = round_prompts([Prompt("p", "chat", messages, None)], count=1, seed="s")

        assert drawn.messages is not None
        assert drawn.messages[0]["role"] == "system"
        assert drawn.messages[0]["content"].startswith("Request ")
        assert drawn.messages[0]["content"].endswith("\n\nBe brief.")
        assert drawn.messages[1] == messages[1]
        assert messages[0]["content"] == "Be brief."
