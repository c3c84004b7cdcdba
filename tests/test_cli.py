import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.factories import recommendation, study_spec
from tuner.records import Stage
from tuner.settings import Settings
from tuner.store import Store, upgrade

FIVE_MISTAKES = """\
name: Not A Name
target:
  model: owner/model
candidates:
  - method: ngramm
    k: 3
  - method: suffix
    k: 0
loads:
  - concurrency: none
objectiv: tpot_p50
"""


@pytest.fixture
def store():
    """The store of the default settings, with one finished study."""
    settings = Settings()
    upgrade(settings.storage_url)
    with Store.open(settings.storage_url, settings.data_dir) as opened:
        opened.save_study(study_spec(name="chat"))
        answers = [recommendation(study="chat", load=load) for load in study_spec().loads]
        opened.save_recommendations("chat", answers)
        opened.set_stage("chat", Stage.DONE)
        yield opened


def test_five_mistakes_are_five_messages_and_nothing_heavy_is_imported(tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(FIVE_MISTAKES)
    code = (
        "import sys; sys.argv = ['tuner', 'optimize', sys.argv[1]]\n"
        "from tuner.cli import main\n"
        "try: main()\n"
        "finally: print('imported', sorted({'torch', 'fastapi'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(study)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert done.stdout.strip() == "imported []"
    lines = done.stderr.strip().splitlines()
    assert [line.split(": ")[0] for line in lines] == [
        f"{study}:{number}" for number in (1, 5, 8, 10, 11)
    ]
    assert not Settings().data_dir.exists()


def test_a_draft_of_another_vocabulary_exits_3_and_starts_nothing(tuner, tmp_path: Path) -> None:
    for name, size in (("target", 49152), ("draft", 32000)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps({"vocab_size": size}))
    study = {
        "name": "s",
        "target": {"model": str(tmp_path / "target")},
        "engine": {"command": ["no-such-program"]},
        "candidates": [{"method": "draft_model", "model": str(tmp_path / "draft"), "k": 2}],
        "loads": [{"concurrency": 1}],
    }
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(study))
    for command in (("optimize", str(path)), ("check", str(path))):
        code, out, err = tuner(*command)
        assert code == 3
        assert "32000" in out + err
        assert "49152" in out + err
    assert not (Settings().data_dir / "logs").exists()


def test_a_study_that_exists_nowhere_names_where_it_was_looked_for(tuner) -> None:
    code, out, err = tuner("optimize", "nothing-like-it")
    assert (code, out) == (2, "")
    assert "quickstart" in err
    assert tuner("optimize", "no/such/file.yaml")[0] == 2


def test_without_a_database_reading_says_what_to_do(tuner) -> None:
    code, out, err = tuner("recommend")
    assert (code, out) == (2, "")
    assert "tuner db upgrade" in err


def test_the_schema_is_made_and_checked(tuner) -> None:
    assert tuner("db", "check")[0] == 2
    assert tuner("db", "upgrade")[0] == 0
    assert tuner("db", "upgrade")[0] == 0
    assert tuner("db", "check")[0] == 0
    code, _, err = tuner("recommend")
    assert code == 2
    assert "tuner optimize quickstart" in err


def test_recommend_prints_json_on_stdout_alone(tuner, store) -> None:
    code, out, err = tuner("recommend", "chat", "--output", "json")
    assert (code, err) == (0, "")
    body = json.loads(out)
    assert [r["load"] for r in body["recommendations"]] == [
        load.model_dump() for load in study_spec().loads
    ]
    assert tuner("recommend", "--output", "json")[1] == out


def test_recommend_for_people_says_against_what_on_what_and_how_sure(tuner, store) -> None:
    code, out, _ = tuner("recommend", "chat")
    assert code == 0
    for part in ("chat", "1.30x (1.20-1.40)", "concurrency 4", "95%", "tuner export chat"):
        assert part in out


def test_an_unfinished_study_has_no_recommendation_and_says_so(tuner, store) -> None:
    store.save_study(study_spec(name="new"))
    code, out, err = tuner("recommend", "new")
    assert (code, out) == (2, "")
    assert "stage preflight" in err


def test_export_writes_a_script_that_can_be_run(tuner, store, tmp_path: Path) -> None:
    path = tmp_path / "serve.sh"
    assert tuner("export", "chat", "--format", "sh", "-o", str(path))[0] == 0
    assert path.stat().st_mode & 0o111
    assert path.read_text() == tuner("export", "chat")[1]
    assert "concurrency 1" in tuner("export", "chat", "--load", "concurrency=1")[1]
    code, _, err = tuner("export", "chat", "--load", "concurrency=3")
    assert code == 2
    assert "concurrency=4, concurrency=1" in err
    code, _, err = tuner("export", "chat", "--format", "pdf")
    assert code == 2
    assert "sh" in err


def test_studies_and_trials_are_listed(tuner, store) -> None:
    body = json.loads(tuner("studies", "--output", "json")[1])
    assert [(s["name"], s["done"]) for s in body["studies"]] == [("chat", True)]
    assert "chat" in tuner("studies")[1]
    body = json.loads(tuner("trials", "chat", "--output", "json")[1])
    assert {t["state"] for t in body["trials"]} == {"not explored"}
    assert "ngram k=3" in tuner("trials", "chat")[1]


def test_every_command_explains_itself(tuner) -> None:
    _, out, _ = tuner("--help")
    commands = ["optimize", "check", "recommend", "verify", "export", "studies", "trials", "serve"]
    for command in commands:
        assert command in out
        code, page, _ = tuner(command, "--help")
        assert code == 0
        assert "--storage" in page


def test_a_preset_can_be_checked_anywhere(tuner) -> None:
    code, out, _ = tuner("check", "quickstart", "--output", "json")
    assert code == 0
    body = json.loads(out)
    assert body["settings"] > 5
    assert "smollm2-family/target" in body["warnings"][0]
