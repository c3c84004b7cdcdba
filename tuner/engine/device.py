"""What else is going on on this machine: looked at before anything is measured."""

from __future__ import annotations

from collections.abc import Iterator

import psutil
import pynvml

LOOK_S = 1.0
"""How long the CPUs are watched."""

BUSY_CPU_SHARE = 0.25
"""Above this share of all CPUs, what others compute shows in what is measured here."""

LISTED = 3

THROTTLED = {
    pynvml.nvmlClocksThrottleReasonSwPowerCap: "its power limit",
    pynvml.nvmlClocksThrottleReasonHwSlowdown: "a hardware slowdown",
    pynvml.nvmlClocksThrottleReasonSwThermalSlowdown: "its temperature",
    pynvml.nvmlClocksThrottleReasonHwThermalSlowdown: "its temperature",
    pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown: "a power brake",
}


def disturbances() -> list[str]:
    """One sentence for each thing that will disturb a measurement; takes LOOK_S seconds."""
    return [*_busy_cpus(), *_gpus()]


def _busy_cpus() -> Iterator[str]:
    watched = list(psutil.process_iter(["name"]))
    for process in watched:
        _cpu_percent(process)  # the first call only begins the count
    share = psutil.cpu_percent(interval=LOOK_S) / 100
    if share <= BUSY_CPU_SHARE:
        return
    used = [(_cpu_percent(process), str(process.info["name"])) for process in watched]
    busiest = [f"{name} ({percent:.0f} % of a core)" for percent, name in sorted(used)[::-1]]
    yield (
        f"the CPUs are {share:.0%} busy before anything was started: "
        f"{', '.join(busiest[:LISTED])}; stop what can be stopped"
    )


def _cpu_percent(process: psutil.Process) -> float:
    """Since the last call, 100 being one core; 0 for a process that is gone or hidden."""
    try:
        return process.cpu_percent()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return 0.0


def _gpus() -> Iterator[str]:
    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError_DriverNotLoaded):
        return
    try:
        for index in range(pynvml.nvmlDeviceGetCount()):
            gpu = pynvml.nvmlDeviceGetHandleByIndex(index)
            yield from _strangers(index, gpu)
            yield from _throttled(index, gpu)
    finally:
        pynvml.nvmlShutdown()


def _strangers(index: int, gpu: object) -> Iterator[str]:
    pids = [process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(gpu)]
    if pids:
        yield f"GPU {index} is used by other processes ({', '.join(map(str, pids))}); stop them"


def _throttled(index: int, gpu: object) -> Iterator[str]:
    reasons = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)
    for text in dict.fromkeys(text for bit, text in THROTTLED.items() if reasons & bit):
        yield f"GPU {index}'s clock is held down by {text}"
