from dataclasses import replace

from tests.factories import context
from tuner.answers import EngineName
from tuner.differences import differences
from tuner.records import EngineFacts, HostFacts

ENGINE = EngineName(name="vllm", version="0.32.0", runner="V1")


def test_nothing_differs_from_itself() -> None:
    assert differences(context(), context(), ENGINE, ENGINE) == []


def test_an_upgrade_is_told_by_its_parts() -> None:
    then = context(
        host=HostFacts("cuda", "A CPU", 2, 8, ("A GPU",), "570.1"),
        engine=EngineFacts("vllm", "0.32.0", packages={"torch": "2.13.0", "triton": "3.5"}),
    )
    now = replace(
        then,
        host=replace(then.host, driver="580.2"),
        engine=EngineFacts("vllm", "0.33.0", packages={"torch": "2.14.0", "flashinfer": "0.6"}),
    )
    upgraded = EngineName(name="vllm", version="0.33.0", runner="V2")
    assert differences(then, now, ENGINE, upgraded) == [
        "engine: vllm 0.32.0 → vllm 0.33.0",
        "runner: V1 → V2",
        "driver: 570.1 → 580.2",
        "package flashinfer: none → 0.6",
        "package torch: 2.13.0 → 2.14.0",
        "package triton: 3.5 → none",
    ]


def test_what_was_asked_of_the_engine_can_differ_too() -> None:
    then = context()
    now = replace(
        then,
        target_digest="beef",
        baseline_argv=(*then.baseline_argv, "--enforce-eager"),
        env={"VLLM_CPU_KVCACHE_SPACE": "2"},
        workload_sha256="cd" * 32,
    )
    found = differences(then, now, ENGINE, ENGINE)
    assert found[:2] == [
        "target: its files or its revision are others",
        "workload: its prompts are others",
    ]
    assert found[2].endswith("--max-model-len 2048 --enforce-eager")
    assert found[3] == "environment VLLM_CPU_KVCACHE_SPACE: 1 → 2"


def test_what_is_unknown_on_one_side_is_no_difference() -> None:
    unknown = ENGINE.model_copy(update={"runner": None})
    assert differences(context(), context(), ENGINE, unknown) == []
    never_asked = context(engine=EngineFacts("vllm", "0.32.0"))
    assert differences(context(), never_asked, ENGINE, ENGINE) == []
