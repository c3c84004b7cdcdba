"""The lines that vLLM 0.32 logs, for the fake: what it is, and how it fails to start."""

# ruff: noqa: T201 - printing is what this module is for

from __future__ import annotations

import time

from tuner.engine.fake_script import SpeculativeConfig

ASYNC_METHODS = frozenset({"draft_model", "eagle", "eagle3", "ngram_gpu", "dspark", "dflash"})
KV_CACHE_TOKENS = 15_488
API_SERVER = "APIServer pid=1"
ENGINE_CORE = "EngineCore pid=2"

OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total"
    " capacity of 79.11 GiB of which 1.02 GiB is free."
)
KV_CACHE_TOO_SMALL = (
    "ValueError: No available memory for the cache blocks. Try increasing"
    " `gpu_memory_utilization` when initializing the engine."
)
CORE_FAILED = (
    "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
)
ENGINE_DEAD = (
    "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue."
    " See stack trace (above) for the root cause."
)


def say(level: str, text: str, process: str = API_SERVER) -> None:
    """One log line with vLLM's prefix."""
    print(f"({process}) {level} {time.strftime('%m-%d %H:%M:%S')} [fake.py:1] {text}", flush=True)


def say_what_it_is(model: str, version: str, config: SpeculativeConfig | None) -> None:
    say("INFO", f"  version {version}")
    say("INFO", f"non-default args: {{'model': {model!r}, 'speculative_config': {config!r}}}")
    say("WARNING", "Model Runner V2 requires Triton; using the V1 model runner instead.")
    if config and config["method"] not in ASYNC_METHODS:
        say(
            "WARNING",
            f"Async scheduling not supported with {config['method']}-based speculative decoding"
            " and will be disabled.",
        )
    say(
        "INFO",
        f"Initializing a V1 LLM engine (v{version}) with config: model={model!r},"
        " compilation_config={'cudagraph_mode': <CUDAGraphMode.NONE: 0>}",
        ENGINE_CORE,
    )


def say_kv_cache(max_model_len: int) -> None:
    say(
        "INFO",
        f"CPU KV cache size: {KV_CACHE_TOKENS:,} tokens, Maximum concurrency for {max_model_len:,}"
        f" tokens per request: {KV_CACHE_TOKENS / max_model_len:.2f}x",
        ENGINE_CORE,
    )


def say_core_failed(error: str) -> None:
    """An error in the engine core, then the generic one that vLLM ends with."""
    say("ERROR", "EngineCore failed to start.", ENGINE_CORE)
    say("ERROR", "Traceback (most recent call last):", ENGINE_CORE)
    say("ERROR", error, ENGINE_CORE)
    print(CORE_FAILED, flush=True)


def say_worker_crashed() -> None:
    say("ERROR", "WorkerProc failed to start.", "Worker pid=3")
    say_core_failed("RuntimeError: scripted crash of a worker")


def say_engine_dead(cause: str) -> None:
    """An engine that dies while it serves."""
    say("ERROR", "EngineCore encountered a fatal error.", ENGINE_CORE)
    say("ERROR", cause, ENGINE_CORE)
    say("ERROR", ENGINE_DEAD)


def say_bad_config(place: str, reason: str) -> None:
    """The report of pydantic on a refused speculative config; of the whole of it, without place."""
    lines = [
        "Traceback (most recent call last):",
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for SpeculativeConfig",
        *([place] if place else []),
        f"  {reason} [type=value_error, input_value=ArgsKwargs(()), input_type=ArgsKwargs]",
        "    For further information visit https://errors.pydantic.dev/2.14/v/value_error",
    ]
    print("\n".join(lines), flush=True)
