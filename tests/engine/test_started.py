from __future__ import annotations

import pytest

from tuner.engine.started import started_facts
from tuner.records import StartedFacts

CPU = """\
(APIServer pid=7) INFO 11-29 18:37:18 [api_utils.py:347]  ▄▄ ▄█ █  █  █ ▀▄▀ █  version 0.32.0
(APIServer pid=7) WARNING 11-29 18:37:30 [vllm.py:1703] Enforce eager set, disabling \
torch.compile, CUDAGraphs, and JIT kernel warmup. This is equivalent to setting -cc.mode=none \
-cc.cudagraph_mode=none and --kernel_config.enable_jit_warmup=False
(APIServer pid=7) WARNING 11-29 18:37:30 [vllm.py:725] Model Runner V2 requires Triton; using \
the V1 model runner instead.
(EngineCore pid=9) INFO 11-29 18:37:40 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with \
config: model='m', compilation_config={'cudagraph_mode': <CUDAGraphMode.NONE: 0>}
(EngineCore pid=9) INFO 11-29 18:38:11 [kv_cache_utils.py:2327] CPU KV cache size: 11,648 tokens, \
Maximum concurrency for 2,048 tokens per request: 5.69x
"""
GPU = """\
(EngineCore pid=9) INFO 11-29 18:37:40 [core.py:133] Initializing a V1 LLM engine (v0.33.0) with \
config: model='m', compilation_config={'cudagraph_mode': <CUDAGraphMode.FULL_AND_PIECEWISE: (2, 1)>}
(Worker pid=11) INFO 11-29 18:38:01 [gpu_worker.py:518] Using V2 Model Runner
(EngineCore pid=9) INFO 11-29 18:38:11 [kv_cache_utils.py:2327] GPU KV cache size: 1,234,567 tokens
"""


def test_a_cpu_log() -> None:
    assert started_facts(CPU) == StartedFacts("0.32.0", "V1", None, "none", 11_648, 5.69)


def test_a_gpu_log() -> None:
    facts = StartedFacts("0.33.0", "V2", None, "full_and_piecewise", 1_234_567, None)
    assert started_facts(GPU) == facts


def test_nothing_said() -> None:
    assert started_facts("") == StartedFacts()
    assert started_facts("Initializing a V1 LLM engine").runner is None


@pytest.mark.parametrize(
    ("line", "runner"),
    [
        ("Model Runner V2 does not yet support suffix; using the V1 model runner instead.", "V1"),
        ("Model Runner V2 requires Triton; using the V1 model runner instead.", "V1"),
        ("Using V2 Model Runner", "V2"),
    ],
)
def test_runners(line: str, runner: str) -> None:
    assert started_facts(line).runner == runner


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ("Async scheduling not supported with ngram-based decoding and will be disabled.", False),
        ("Async scheduling will be disabled because it is not supported with the `ray`", False),
        ("Async scheduling is not compatible with padding and will be disabled.", False),
        ("non-default args: {'model': 'm', 'async_scheduling': False}", False),
        ("non-default args: {'model': 'm', 'async_scheduling': True}", True),
        ("Asynchronous scheduling is enabled.", True),
        ("nothing about scheduling", None),
    ],
)
def test_async_scheduling(log: str, expected: bool | None) -> None:
    assert started_facts(log).async_scheduling is expected
