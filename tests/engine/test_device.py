import pynvml
import pytest

from tuner.engine import device


class Gpu:
    """An NVIDIA driver with one GPU, as far as the look at the device asks it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, pids: list[int], reasons: int) -> None:
        processes = [type("Process", (), {"pid": pid}) for pid in pids]
        answers = {
            "nvmlInit": lambda: None,
            "nvmlShutdown": lambda: None,
            "nvmlDeviceGetCount": lambda: 1,
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetComputeRunningProcesses": lambda _: processes,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _: reasons,
        }
        for name, answer in answers.items():
            monkeypatch.setattr(pynvml, name, answer)


@pytest.fixture
def cpus(monkeypatch: pytest.MonkeyPatch):
    def busy(percent: float) -> None:
        monkeypatch.setattr(device.psutil, "cpu_percent", lambda **_: percent)

    return busy


def test_an_idle_machine_is_not_talked_about(cpus, monkeypatch: pytest.MonkeyPatch) -> None:
    cpus(3.0)
    Gpu(monkeypatch, pids=[], reasons=pynvml.nvmlClocksThrottleReasonGpuIdle)
    assert device.disturbances() == []


def test_busy_cpus_and_who_keeps_them_busy_are_named(cpus) -> None:
    cpus(80.0)
    [text] = [text for text in device.disturbances() if "CPU" in text]
    assert "80%" in text
    assert "% of a core" in text


def test_other_processes_on_a_gpu_and_a_clock_held_down_are_named(
    cpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpus(3.0)
    hot = pynvml.nvmlClocksThrottleReasonHwThermalSlowdown
    Gpu(monkeypatch, pids=[4242], reasons=hot | pynvml.nvmlClocksThrottleReasonGpuIdle)
    used, held_down = device.disturbances()
    assert "4242" in used
    assert "temperature" in held_down


def test_the_machines_own_cpus_can_be_looked_at() -> None:
    assert all(isinstance(text, str) for text in device.disturbances())
