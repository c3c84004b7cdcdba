"""Servers that a session starts once: the fake and real vLLM, without and with speculation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.engine.fakes import fake
from tuner.engine.command import EngineCommand, engine_command
from tuner.engine.probe import probe
from tuner.engine.server import Engine, Server
from tuner.records import OFF, Setting
from tuner.settings import Settings
from tuner.spec import EngineSpec, Target

K = 5
FAKE_CONTEXT = 50_000
"""So long that no answer of the fake's is over before it was looked at."""

ENGINE = EngineSpec(
    args={"enforce_eager": True, "max_model_len": 2048, "dtype": "bfloat16"},
    env={
        "VLLM_CPU_OMP_THREADS_BIND": "0-1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    },
)


@dataclass(frozen=True)
class RealVllm:
    """The installed vLLM and the small model it serves in tests."""

    python: Path
    model: str

    def command(
        self, config: dict[str, Any] | None = None, *, model: str = "", **args: Any
    ) -> EngineCommand:
        engine = ENGINE.model_copy(update={"args": {**ENGINE.args, **args}})
        setting = OFF if config is None else Setting.of(config)
        facts = probe(engine, self.python)
        target = Target(model=model or self.model)
        return engine_command(engine, target, setting, facts, self.python)


@pytest.fixture(scope="session")
def real_vllm() -> RealVllm:
    settings = Settings()
    model = settings.models_dir / "smollm2-family" / "smollm2"
    if not model.is_dir():
        pytest.fail(f"{model} is missing: `make models` builds it")
    return RealVllm(settings.default_engine_python, str(model))


@contextmanager
def _running(command: EngineCommand, folder: Path) -> Iterator[Server]:
    engine = Engine(
        command, log_path=folder / "engine.log", run_dir=folder / "run", startup_timeout_s=300
    )
    with engine as server:
        yield server
    assert server._process.members() == []
    assert list((folder / "run").iterdir()) == []


@pytest.fixture(scope="session")
def real_baseline(
    real_vllm: RealVllm, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    with _running(real_vllm.command(), tmp_path_factory.mktemp("baseline")) as server:
        yield server


@pytest.fixture(scope="session")
def real_own_draft(
    real_vllm: RealVllm, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """The target as its own draft. In float32, where drafting and verifying round alike enough."""
    config = {"method": "draft_model", "model": real_vllm.model, "num_speculative_tokens": K}
    command = real_vllm.command(config, dtype="float32")
    assert command.observe
    with _running(command, tmp_path_factory.mktemp("own-draft")) as server:
        yield server


@pytest.fixture(scope="session")
def fake_baseline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with _running(
        fake(max_model_len=FAKE_CONTEXT), tmp_path_factory.mktemp("fake-baseline")
    ) as server:
        yield server


@pytest.fixture(scope="session")
def fake_own_draft(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    config = {"method": "draft_model", "model": "/models/target", "num_speculative_tokens": K}
    command = fake(config, acceptance={"target": 1.0}, max_model_len=FAKE_CONTEXT)
    with _running(command, tmp_path_factory.mktemp("fake-own-draft")) as server:
        yield server
