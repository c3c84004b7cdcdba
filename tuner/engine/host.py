"""What the machine is that the engine will run on."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import psutil
import pynvml

from tuner.records import HostFacts

CPU_KIND = {"cpu family": "family", "model": "model", "CPU part": "part"}
"""What /proc/cpuinfo says of a processor beside its name, on x86 and on ARM."""

INSTRUCTION_SETS = {
    "amx_bf16": "AMX",
    "avx512_bf16": "AVX512 with bfloat16",
    "avx512f": "AVX512",
    "avx2": "AVX2",
}
"""By their flags, the widest first: those that decide how vLLM computes on x86."""


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
    """The processor's name, family, model and widest instruction set, as far as they are told.

    A virtual machine often says "AMD EPYC" of processors that differ by a factor of three: vLLM
    picks its kernels by their instruction sets. ARM kernels give no name; there it is the
    architecture.
    """
    told = _first_cpu(cpuinfo)
    flags = set(told.get("flags", "").split())
    kind = [f"{name} {told[key]}" for key, name in CPU_KIND.items() if key in told]
    kind += [name for flag, name in INSTRUCTION_SETS.items() if flag in flags][:1]
    model = told.get("model name", platform.machine())
    return f"{model} ({', '.join(kind)})" if kind else model


def emulates_bfloat16(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether this x86 processor has AVX2 at most, so no instructions to compute bfloat16 with."""
    flags = _first_cpu(cpuinfo).get("flags", "").split()
    return "avx2" in flags and "avx512f" not in flags


def _first_cpu(cpuinfo: Path) -> dict[str, str]:
    """What the kernel tells of the first processor, and once of all."""
    told: dict[str, str] = {}
    for line in cpuinfo.read_text().splitlines():
        name, _, value = line.partition(":")
        told.setdefault(name.strip(), value.strip())
    return told


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
