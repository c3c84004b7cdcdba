"""What is installed is what is in the checkout, and it works where there is nothing else."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("tuner", "api", "studies", "migrations")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy: a build leaves its own folders in the tree, and takes from them again."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for package in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, source / package, ignore=ignored)
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        if (ROOT / file).exists():
            shutil.copy(ROOT / file, source)
    flags = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(out)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *flags, str(source)], check=True)
    (path,) = out.iterdir()
    return path


def test_the_wheel_holds_every_file_of_the_packages_and_nothing_else(wheel):
    packed = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}
    files = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert packed == files


def test_the_wheel_holds_the_data_files(wheel):
    packed = set(ZipFile(wheel).namelist())
    assert {
        "studies/presets/quickstart.yaml",
        "tuner/load/prompts.jsonl",
        "tuner/engine/inside/family.py",
        "tuner/engine/inside/probe.py",
        "tuner/py.typed",
        "migrations/env.py",
    } <= packed
    assert any(name.startswith("migrations/versions/") for name in packed)


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The folder of the programs of an environment that has the wheel and nothing else."""
    folder = tmp_path_factory.mktemp("elsewhere") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    flags = ["--quiet", "--quiet", "--disable-pip-version-check"]
    python = folder / "bin/python"
    subprocess.run([python, "-m", "pip", "install", *flags, str(wheel)], check=True)
    return folder / "bin"


@pytest.fixture
def program(installed, tmp_path):
    """Runs a program of that environment, away from the checkout and from the user's data."""

    def run(name, *arguments):
        environment = {
            k: v for k, v in os.environ.items() if not k.startswith(("TUNER_", "PYTHON"))
        }
        return subprocess.run(
            [installed / name, *arguments],
            cwd=tmp_path,
            env=environment | {"TUNER_DATA_DIR": str(tmp_path / "data")},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_installed_alone_it_has_no_torch(program):
    code = "from importlib.util import find_spec as f; print(f('torch'), f('vllm'), f('tests'))"
    assert program("python", "-c", code).stdout.split() == ["None", "None", "None"]


def test_installed_alone_it_shows_its_commands(program):
    result = program("tuner", "--help")
    assert result.returncode == 0, result.stderr
    assert "optimize" in result.stdout


def test_installed_alone_it_makes_its_database(program, tmp_path):
    result = program("tuner", "db", "upgrade")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "data/tuner.db").is_file()


def test_installed_alone_it_checks_a_preset(program):
    result = program("tuner", "check", "quickstart", "--output", "json")
    assert result.returncode == 0, result.stderr
    body = json.loads(result.stdout)
    assert body["study"] == "quickstart"
    assert body["problems"] == []
