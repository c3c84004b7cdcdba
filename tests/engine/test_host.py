from __future__ import annotations

import os
import platform
from pathlib import Path

from tuner.engine.host import _cpu_model, host_facts


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
    assert _cpu_model(cpuinfo) == "Fast CPU @ 3.0GHz: v2"


def test_a_processor_without_a_name(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nBogoMIPS\t: 100.00\n")
    assert _cpu_model(cpuinfo) == platform.machine()
