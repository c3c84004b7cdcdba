"""What the machine is that the engine will run on."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import psutil
import pynvml

from tuner.records import HostFacts


def host_facts() -> HostFacts:
    """The host's CPU, memory and NVIDIA GPUs; the device is ``cuda`` where there are any."""
    gpus, driver = _gpus()
    return HostFacts(
        device="cuda" if gpus else "cpu",
        cpu_model=_cpu_model(Path("/proc/cpuinfo")),
        cpus=len(os.sched_getaffinity(0)),
        memory_bytes=psutil.virtual_memory().total,
        gpus=gpus,
        driver=driver,
    )


def _cpu_model(cpuinfo: Path) -> str:
    """The processor's own name; ARM kernels give none, so there it is the architecture."""
    for line in cpuinfo.read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def _gpus() -> tuple[tuple[str, ...], str | None]:
    """Names of the visible NVIDIA GPUs and their driver's version."""
    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError_DriverNotLoaded):
        return (), None
    try:
        names = tuple(
            pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(index))
            for index in range(pynvml.nvmlDeviceGetCount())
        )
        return names, pynvml.nvmlSystemGetDriverVersion() if names else None
    finally:
        pynvml.nvmlShutdown()
