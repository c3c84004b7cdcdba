"""What the README says exists, exists; what exists, the README says."""

import re
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from api.app import create_app
from studies import presets
from tuner.cli import app
from tuner.settings import Settings
from tuner.spec import StudySpec

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_every_command_is_documented_and_every_documented_command_exists() -> None:
    commands = get_command(app).commands
    known = {name for name in commands if name != "db"}
    known |= {f"db {name}" for name in commands["db"].commands}
    shown = set(re.findall(r"`tuner ((?:db )?[a-z]+)", README))
    assert shown == known


def test_every_setting_is_documented() -> None:
    shown = set(re.findall(r"TUNER_[A-Z_]+", README))
    assert shown == {f"TUNER_{name.upper()}" for name in Settings.model_fields}


def test_every_preset_is_documented() -> None:
    for name in presets.names():
        assert f"`{name}`" in README


def test_every_path_shown_is_served(tmp_path: Path) -> None:
    paths = create_app(f"sqlite:///{tmp_path}/x.db", tmp_path).openapi()["paths"]
    patterns = [re.sub(r"\{\w+\}", "[^/]+", path) for path in paths]
    shown = re.findall(r"127\.0\.0\.1:8765(/v1[^ '?\n]*)", README)
    assert len(shown) == 4
    for path in shown:
        assert any(re.fullmatch(pattern, path) for pattern in patterns), path


@pytest.mark.parametrize("text", re.findall(r"```yaml\n(.*?)```", README, re.DOTALL))
def test_every_study_shown_is_valid(text: str) -> None:
    StudySpec.model_validate(yaml.safe_load(text))
