"""k is changed while an engine runs: its command, the file, the fake and real vLLM."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.engine.asking import SPECULATIVE, counters, counters_after, post
from tests.engine.conftest import ENGINE, RealVllm
from tests.engine.fakes import FAKE, FAST
from tuner.engine.command import EngineCommand
from tuner.engine.fake_script import VARIABLE as SCRIPT
from tuner.engine.live_k import VARIABLE, LiveK, live_command, live_setting
from tuner.engine.probe import probe
from tuner.engine.server import Engine, Server
from tuner.records import EngineFacts, Setting
from tuner.spec import EngineSpec, Target

TOKENS = 24
GENERATED = "vllm:generation_tokens_total"
DRAFT = {"method": "draft_model", "model": "/models/draft"}
INSIDE = Path(__file__).parents[2] / "tuner" / "engine" / "inside"


def of_k(config: dict[str, Any], *ks: int) -> list[Setting]:
    return [Setting.of({**config, "num_speculative_tokens": k}) for k in ks]


def drafted(server: Server) -> dict[str, Any]:
    """What one answer's steps drafted and accepted: by the answer itself, and by the counters."""
    before = counters(server.base_url)
    body = {"model": server.model, "prompt": "The sky is", "ignore_eos": True, "temperature": 0}
    answer = post(server.base_url, "/v1/completions", {**body, "max_tokens": TOKENS}).json()
    after = counters_after(server.base_url, before[GENERATED] + TOKENS)
    told = answer["metrics"]["speculative_decoding"]
    count = {
        name: after[f"{SPECULATIVE}{name}_total"] - before[f"{SPECULATIVE}{name}_total"]
        for name in ("num_drafts", "num_draft_tokens", "num_accepted_tokens")
    }
    assert count["num_accepted_tokens"] == sum(told["per_step_accepted"])
    return {"per_step": set(told["per_step_drafted"]), **count}


class TestCommand:
    def test_it_is_the_largest_ks_with_a_schedule_that_names_each(self) -> None:
        setting = live_setting(of_k(DRAFT, 4, 1, 2))
        assert setting.speculative_config == {
            **DRAFT,
            "num_speculative_tokens": 4,
            "num_speculative_tokens_per_batch_size": [[1, 1, 1], [2, 2, 2], [3, 3, 4]],
        }

    def command(self, monkeypatch: pytest.MonkeyPatch, **env: str) -> dict[str, str]:
        monkeypatch.delenv("PYTHONPATH", raising=False)
        engine = EngineSpec(env=env)
        settings = of_k(DRAFT, 1, 2)
        facts = EngineFacts("vllm", "0.32.0")
        command = live_command(
            engine, Target(model="t"), settings, facts, Path("/python"), control=Path("/file")
        )
        assert command.argv[-2:] == ("--scheduler-cls", "live_k_scheduler.live_k_scheduler")
        assert json.loads(command.argv[-3]) == live_setting(settings).speculative_config
        assert command.observe
        return dict(command.env)

    def test_it_reaches_the_folder_of_what_runs_inside_and_nothing_else(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert self.command(monkeypatch) == {VARIABLE: "/file", "PYTHONPATH": str(INSIDE)}

    def test_a_path_that_was_there_is_kept(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = self.command(monkeypatch, PYTHONPATH="/theirs", A="1")
        assert found["PYTHONPATH"] == f"{INSIDE}{os.pathsep}/theirs"
        assert found["A"] == "1"


class TestFile:
    def test_it_is_gone_afterwards(self) -> None:
        with LiveK(3) as control:
            assert control.path.read_bytes() == bytes([3, 0])
            control.set(5)
            assert control.path.read_bytes() == bytes([5, 0])
            assert control.in_force == 0
        assert not control.path.exists()

    @pytest.mark.parametrize("k", [0, -1, 129, 300])
    def test_a_k_that_no_engine_drafts_is_refused(self, k: int) -> None:
        with LiveK(3) as control:
            with pytest.raises(ValueError, match=f"k={k} "):
                control.set(k)
            assert control.path.read_bytes()[0] == 3


@contextmanager
def running(command: EngineCommand, folder: Path) -> Iterator[Server]:
    engine = Engine(command, log_path=folder / "log", run_dir=folder / "run", startup_timeout_s=300)
    with engine as server:
        yield server


def test_the_fake_drafts_what_is_set(tmp_path: Path) -> None:
    engine = EngineSpec(
        command=FAKE[:-1], env={SCRIPT: json.dumps({**FAST, "acceptance": {"draft": 0.7}})}
    )
    target, facts = Target(model="/models/target"), EngineFacts("python")
    with LiveK(4) as control:
        settings = of_k(DRAFT, 1, 2, 4)
        command = live_command(engine, target, settings, facts, Path(), control=control.path)
        with running(command, tmp_path) as server:
            assert control.in_force == 0
            for k in (4, 1, 2):
                control.set(k)
                found = drafted(server)
                assert control.in_force == k
                assert found["per_step"] == {k}
                assert found["num_draft_tokens"] == k * found["num_drafts"] > 0


@pytest.mark.engine
def test_vllm_drafts_what_is_set(real_vllm: RealVllm, tmp_path: Path) -> None:
    """Its own draft in float32: nearly all is accepted, so a wrong k shows in the steps too."""
    engine = ENGINE.model_copy(update={"args": {**ENGINE.args, "dtype": "float32"}})
    target, facts = Target(model=real_vllm.model), probe(engine, real_vllm.python)
    settings = of_k({"method": "draft_model", "model": real_vllm.model}, 1, 2, 4)
    with LiveK(4) as control:
        command = live_command(
            engine, target, settings, facts, real_vllm.python, control=control.path
        )
        with running(command, tmp_path) as server:
            assert server.facts.runner == "V1"
            for k in (4, 1, 2, 4):
                control.set(k)
                found = drafted(server)
                assert control.in_force == k
                assert found["per_step"] == {k}
                assert found["num_draft_tokens"] == k * found["num_drafts"]
                fewest = (TOKENS - 1) / (k + 1)
                assert fewest <= found["num_drafts"] <= 1.3 * fewest + 1
