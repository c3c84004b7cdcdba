import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import SpecError
from tuner.spec import StudySpec
from tuner.spec_file import MAX_NODES, load_study, parse_study

STUDY = """\
name: a-study
target: {model: org/model}
candidates:
  - method: ngram
    k: [2, 4]
loads:
  - concurrency: 1
"""


def mistakes(text):
    with pytest.raises(SpecError) as error:
        parse_study(text, "study.yaml")
    return [(m.line, m.where, m.message) for m in error.value.mistakes]


def mistake(text):
    (only,) = mistakes(text)
    return only


def test_a_good_file_is_a_study(tmp_path):
    path = tmp_path / "study.yaml"
    path.write_text(STUDY)
    study = load_study(path)
    assert study.name == "a-study"
    assert study.candidates[0].k == (2, 4)


def test_five_mistakes_of_five_kinds_are_told_at_once_with_their_lines():
    text = """\
name: a-study
target:
  modle: org/model
candidates:
  - method: ngram
    k:
      - 2
      - 0
  - method: draft_model
    k: 3
    k: 4
    model: org/draft
loads:
  - concurrency: four
"""
    assert mistakes(text) == [
        (3, "target.model", "is missing; for example model: org/model"),
        (3, "target.modle", "unknown key; did you mean model?"),
        (8, "candidates[0].k[1]", "must be at least 1, is 0"),
        (11, "candidates[1].k", "given twice, first on line 10; keep one"),
        (14, "loads[0].concurrency", "must be a whole number, is 'four'"),
    ]


def test_a_mistake_reads_like_a_compilers():
    with pytest.raises(SpecError) as error:
        parse_study(STUDY + "precision: 0.9\n", "study.yaml")
    assert str(error.value) == "study.yaml:8: precision: must be less than 0.5, is 0.9"


@pytest.mark.parametrize(
    ("addition", "expected"),
    [
        ("price: {usd_per_hour: -1}", "price.usd_per_hour: must be more than 0, is -1"),
        ("price: {usd_per_hour: .inf}", "price.usd_per_hour: must be a finite number, is inf"),
        ("precision: 5e-2", "precision: must be a number, is '5e-2'; write 0.05"),
        ("workload:", "workload: must be a mapping (key: value), is empty"),
        ("workload: {requests: true}", "workload.requests: must be a whole number, is true"),
        ("engine: {side_by_side: 1}", "engine.side_by_side: must be true or false, is 1"),
        ("engine: {env: {A: no}}", "engine.env.A: must be text, is false; put it in quotes"),
        ("engine: {args: {port: 1}}", "engine.args.port: is set by the tuner itself; remove it"),
        ("engine: {command: vllm serve}", "engine.command: must be a list, is 'vllm serve'"),
        ("engine: {command: []}", "engine.command: must have at least 1 entry, is an empty list"),
        ("engine: {python: [a]}", "engine.python: must be a path, is a list"),
        ("objective: speed", "objective: must be 'tpot_p50', 'e2e_p95', 'output_throughput' or"),
        ("objective: cost_per_million_output_tokens", "price: is missing; objective cost_per_"),
        ("budget: !!int x", "budget: 'x' is no int"),
        ("budget: !mine 3", "budget: the tag !mine means nothing here; remove it"),
        ("? [a]\n: 1", "a key must be text"),
    ],
)
def test_messages_say_what_would_be_right(addition, expected):
    _, where, message = mistake(f"{STUDY}{addition}\n")
    assert f"{where}: {message}".removeprefix(": ").startswith(expected)


def test_every_required_part_is_asked_for_with_an_example():
    found = mistakes("precision: 0.1\n")
    assert [where for _, where, _ in found] == ["name", "target", "candidates", "loads"]
    examples = [re.search("for example (.*)", message)[1] for _, _, message in found]
    assert StudySpec.model_validate(yaml.safe_load("\n".join(examples))).name == "my-study"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", None, "is empty"),
        ("# nothing but this\n", None, "is empty"),
        ("\n- a\n- b\n", 2, "must be a mapping"),
        ("name: a\ntarget:\n\tmodel: b\n", 3, "is not YAML: a tab; indent with spaces"),
        ("name: a\ntarget: [b\n", 3, "is not YAML: while parsing a flow sequence"),
        ("name: a\n---\nname: b\n", 2, "expected a single document"),
        ("name: a\ntarget: '\x07'\n", 2, "a character that cannot be printed"),
        ("a: &a [*a]\n", None, "nested too deeply"),
        ("a: " + "[" * 5000, None, "nested too deeply"),
    ],
)
def test_what_is_no_study_at_all_is_one_mistake(text, line, message):
    found_line, _, found = mistake(text)
    assert found_line == line
    assert message in found


def test_aliases_cannot_blow_a_short_text_up():
    layers = [f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 10)}]" for i in range(1, 10)]
    text = "\n".join(["l0: &l0 [x]", *layers])
    assert str(MAX_NODES) in mistake(text)[2]


def test_k_is_found_under_both_its_names():
    text = STUDY.replace("k: [2, 4]", "num_speculative_tokens: [2, 0]")
    assert mistake(text)[:2] == (5, "candidates[0].num_speculative_tokens[1]")


def test_a_date_is_text():
    assert parse_study(STUDY.replace("a-study", "2026-01-31"), "x").name == "2026-01-31"


def test_paths_are_taken_from_the_files_folder(tmp_path, monkeypatch):
    path = tmp_path / "studies/study.yaml"
    path.parent.mkdir()
    path.write_text(
        """\
name: a-study
target: {model: ../models/target}
candidates:
  - {method: draft_model, model: ./draft, k: 1}
  - {method: draft_model, model: org/draft, k: 1}
loads: [{concurrency: 1}]
engine: {python: ../env/bin/python}
workload: {path: prompts.jsonl}
"""
    )
    monkeypatch.chdir(tmp_path)
    study = load_study(Path("studies/study.yaml"))
    assert study.target.model == str(tmp_path / "models/target")
    assert [c.model for c in study.candidates] == [str(path.parent / "draft"), "org/draft"]
    assert study.engine.python == tmp_path / "env/bin/python"
    assert study.workload.path == path.parent / "prompts.jsonl"


def test_a_link_to_an_interpreter_stays_a_link(tmp_path):
    (tmp_path / "python").symlink_to(sys.executable)
    path = tmp_path / "study.yaml"
    path.write_text(STUDY + "engine: {python: python}\n")
    assert load_study(path).engine.python == tmp_path / "python"


@pytest.mark.parametrize(
    ("content", "message"), [(None, "No such file"), (b"\xff\xfe\x00", "is not UTF-8 text")]
)
def test_a_file_that_cannot_be_read_is_a_mistake(tmp_path, content, message):
    path = tmp_path / "study.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SpecError, match=message):
        load_study(path)


def test_reading_a_study_imports_neither_torch_nor_fastapi_nor_optuna():
    code = "import sys, tuner.spec_file; print({'torch', 'fastapi', 'optuna'} & set(sys.modules))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "set()"


WORDS = st.sampled_from(
    [
        *("name", "target", "model", "candidates", "method", "k", "num_speculative_tokens"),
        *("loads", "concurrency", "engine", "args", "env", "price", "usd_per_hour", "min", "max"),
        *("ngram", "suffix", "draft_model", "prompt_lookup_min", "prompt_lookup_max", "a-study"),
    ]
)
SCALARS = WORDS | st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
TREES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(WORDS | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)
PATHS = st.lists(
    WORDS | st.sampled_from(["workload", "sampling", "budget", "precision"]) | st.integers(0, 1),
    min_size=1,
    max_size=3,
)


def is_study_or_spec_error(text):
    try:
        return isinstance(parse_study(text, "random"), StudySpec)
    except SpecError as error:
        return bool(error.mistakes) and bool(str(error))


@given(st.text() | st.text(alphabet="ab:-[]{}&*!|>'\"#\n\t ,?0.", max_size=60))
def test_any_text_is_a_study_or_a_spec_error(text):
    assert is_study_or_spec_error(text)


@given(TREES)
def test_any_yaml_is_a_study_or_a_spec_error(tree):
    assert is_study_or_spec_error(yaml.safe_dump(tree, allow_unicode=True))


@given(PATHS, TREES)
def test_a_good_study_with_anything_anywhere_is_a_study_or_a_spec_error(path, value):
    study = yaml.safe_load(STUDY)
    inner = study
    for step in path[:-1]:
        known = step in inner if isinstance(inner, dict) else isinstance(step, int) and inner
        following = inner[step if isinstance(inner, dict) else 0] if known else None
        if not isinstance(following, dict | list):
            break
        inner = following
    if isinstance(inner, dict):
        inner[str(path[-1])] = value
    else:
        inner.append(value)
    assert is_study_or_spec_error(yaml.safe_dump(study))
