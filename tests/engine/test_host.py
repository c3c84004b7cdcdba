from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest

from tuner.engine.host import _cpu_model, emulates_bfloat16, host_facts


def test_the_host_as_it_is() -> None:
    facts = host_facts()
    assert facts.cpus == len(os.sched_getaffinity(0))
    assert facts.memory_bytes > 2**30
    assert facts.cpu_model
    assert facts.device == ("cuda" if facts.gpus else "cpu")
    assert (facts.driver is None) == (not facts.gpus)


def test_the_processor_by_its_name(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nmodel\t\t: 1\nmodel name\t: Fast CPU @ 3.0GHz: v2\n")
    assert _cpu_model(cpuinfo) == "Fast CPU @ 3.0GHz: v2 (model 1)"


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("flags: fpu avx avx2", "AMD EPYC (family 25, model 1, AVX2)"),
        ("flags: avx2 avx512f avx512_bf16", "AMD EPYC (family 25, model 1, AVX512 with bfloat16)"),
        ("flags: amx_bf16 avx2 avx512f", "AMD EPYC (family 25, model 1, AMX)"),
        ("flags: fpu", "AMD EPYC (family 25, model 1)"),
    ],
)
def test_processors_of_one_name_are_told_apart(tmp_path: Path, lines: str, told: str) -> None:
    """Two machines that both said "AMD EPYC" took 84 and 250 ms for the same token."""
    cpuinfo = tmp_path / "cpuinfo"
    one = f"processor: 0\ncpu family: 25\nmodel: 1\nmodel name: AMD EPYC\n{lines}\n\n"
    cpuinfo.write_text(one + one.replace("processor: 0", "processor: 1"))
    assert _cpu_model(cpuinfo) == told
    assert emulates_bfloat16(cpuinfo) == told.endswith("AVX2)")


def test_an_arm_processor(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n")
    assert _cpu_model(cpuinfo) == f"{platform.machine()} (part 0xd40)"
    assert not emulates_bfloat16(cpuinfo)


def test_a_processor_without_a_name(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nBogoMIPS\t: 100.00\n")
    assert _cpu_model(cpuinfo) == platform.machine()
