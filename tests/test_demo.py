import ast
import json
import subprocess
import sys
from importlib.resources import files

import pytest

from studies import presets
from tuner import demo
from tuner.errors import EngineStartError, FailureKind, PreflightError
from tuner.settings import Settings
from tuner.spec import Candidate, Load, StudySpec, Target
from tuner.spec_file import parse_study

TARGET, DRAFT = "smollm2-family/target", "smollm2-family/draft-noise-0.1"
STUDY = StudySpec(
    name="a-study",
    target=Target(model=TARGET),
    candidates=(
        Candidate(method="draft_model", model=DRAFT, k=1),
        Candidate(method="draft_model", model="org/draft", k=1),
        Candidate(method="ngram", k=1),
    ),
    loads=(Load(concurrency=1),),
)


def test_names_of_the_family_become_paths_and_others_stay(tmp_path):
    study = demo.located(STUDY, tmp_path)
    assert study.target.model == str(tmp_path / TARGET)
    assert [c.model for c in study.candidates] == [str(tmp_path / DRAFT), "org/draft", None]
    assert demo.locate("smollm2-family/other", tmp_path) == "smollm2-family/other"


def test_a_relative_folder_still_gives_absolute_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert demo.locate(TARGET, Settings(data_dir="data").models_dir) == str(
        tmp_path / "data/models" / TARGET
    )


def test_missing_are_the_members_used_and_not_built(tmp_path):
    assert demo.missing(STUDY, tmp_path) == [TARGET, DRAFT]
    (tmp_path / TARGET).mkdir(parents=True)
    assert demo.missing(STUDY, tmp_path) == [DRAFT]


def test_the_presets_use_members_that_exist():
    for name in presets.names():
        study = parse_study(presets.read(name), name)
        for model in (study.target.model, *(c.model for c in study.candidates if c.model)):
            assert model in demo.NAMES


def test_every_name_is_a_member_that_the_script_can_build():
    script = (files("tuner.engine.inside") / "family.py").read_text()
    words = {n.value for n in ast.walk(ast.parse(script)) if isinstance(n, ast.Constant)}
    assert {name.rpartition("/")[2] for name in demo.NAMES} <= words


def test_what_is_there_needs_no_interpreter(tmp_path):
    (tmp_path / TARGET).mkdir(parents=True)
    demo.build(tmp_path / "no-such-python", tmp_path, [TARGET])


def test_an_interpreter_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(PreflightError, match="no-such-python cannot be run"):
        demo.build(tmp_path / "no-such-python", tmp_path, [TARGET])


def test_an_interpreter_without_torch_is_told_as_a_missing_package(tmp_path):
    with pytest.raises(EngineStartError, match="No module named 'torch'") as error:
        demo.build(sys.executable, tmp_path, [TARGET])
    assert error.value.failure.kind is FailureKind.MISSING_PACKAGE
    assert not (tmp_path / TARGET).exists()


@pytest.mark.engine
def test_building_clears_what_was_cut_off_and_lets_two_run_at_once(tmp_path):
    member = "smollm2-family/draft-10-layers"
    stale = tmp_path / demo.FAMILY / ".draft-10-layers.unfinished"
    stale.mkdir(parents=True)
    (stale / "half.safetensors").touch()
    code = (
        "import sys; from pathlib import Path; from tuner import demo;"
        "demo.build(Path(sys.argv[1]), Path(sys.argv[2]), [sys.argv[3]])"
    )
    python = Settings().default_engine_python
    argv = [sys.executable, "-c", code, str(python), str(tmp_path), member]
    both = [subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate()[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert "".join(said).count("[1/1]") == 1
    built = {path.name for path in (tmp_path / demo.FAMILY).iterdir()}
    assert built == {"draft-10-layers", ".lock"}
    assert (tmp_path / member / "model.safetensors").stat().st_size > 0
    defaults = json.loads((tmp_path / member / "generation_config.json").read_text())
    assert defaults["temperature"] == 0
