"""Failures as vLLM 0.32 logs them, recorded and cut to the lines that matter."""

from __future__ import annotations

import pytest

from tuner.engine.failures import MESSAGE_LENGTH, classify
from tuner.errors import FailureKind

CORE = "(EngineCore pid=9) ERROR 11-29 18:38:11 [core.py:1512] "
WORKER = "(Worker pid=11) ERROR 11-29 18:38:11 [multiproc_executor.py:953] "
GENERIC = (
    "RuntimeError: Engine core initialization failed. See root cause above."
    " Failed core proc(s): {'EngineCore': 1}"
)
PYDANTIC = "pydantic_core._pydantic_core.ValidationError: 1 validation error for "
LINK = "    For further information visit https://errors.pydantic.dev/2.14/v/value_error"
TRACEBACK = '  File "speculative.py", line 1, in f\n    raise LocalEntryNotFoundError('

LOGS = [
    pytest.param(
        "usage: api_server.py [-h]\n"
        "api_server.py: error: unrecognized arguments: --speculative-model",
        2,
        FailureKind.BAD_FLAG,
        "unrecognized arguments: --speculative-model",
        id="retired flag",
    ),
    pytest.param(
        'api_server.py: error: argument --speculative-config/-sc: Value {"method": ngram cannot'
        " be converted to <function loads at 0x7f48db7859e0>.",
        2,
        FailureKind.BAD_SPECULATIVE_CONFIG,
        'argument --speculative-config/-sc: Value {"method": ngram cannot be converted to'
        " <function loads at 0x7f48db7859e0>.",
        id="speculative config that is no JSON",
    ),
    pytest.param(
        f"{PYDANTIC}SpeculativeConfig\n  Value error, prompt_lookup_min=5 must be <= "
        f"prompt_lookup_max=2 [type=value_error, input_value=ArgsKwargs(())]\n{LINK}",
        1,
        FailureKind.BAD_SPECULATIVE_CONFIG,
        "prompt_lookup_min=5 must be <= prompt_lookup_max=2",
        id="speculative config with bad values",
    ),
    pytest.param(
        f"{PYDANTIC}SpeculativeConfig\nfoo\n  Unexpected keyword argument "
        f"[type=unexpected_keyword_argument, input_value=5, input_type=int]\n{LINK}",
        1,
        FailureKind.BAD_SPECULATIVE_CONFIG,
        "foo: Unexpected keyword argument",
        id="speculative config with an unknown key",
    ),
    pytest.param(
        f"{PYDANTIC}SpeculativeConfig\n  Value error, Invalid repository ID or local directory"
        " specified: '/models/nowhere'.\nPlease verify the following requirements:\n"
        f" [type=value_error, input_value=ArgsKwargs(())]\n{LINK}",
        1,
        FailureKind.MISSING_MODEL,
        "Invalid repository ID or local directory specified: '/models/nowhere'. Please verify the"
        " following requirements:",
        id="missing draft",
    ),
    pytest.param(
        f"{PYDANTIC}ModelConfig\n  Value error, User-specified max_model_len (9999999) is greater"
        f" than the derived max_model_len [type=value_error]\n{LINK}",
        1,
        FailureKind.BAD_FLAG,
        "User-specified max_model_len (9999999) is greater than the derived max_model_len",
        id="flag with a bad value",
    ),
    pytest.param(
        f"Traceback (most recent call last):\n{TRACEBACK}\nhuggingface_hub.errors."
        "HFValidationError: Repo id must be in the form 'repo_name': '/models/nowhere'.",
        1,
        FailureKind.MISSING_MODEL,
        "Repo id must be in the form 'repo_name': '/models/nowhere'.",
        id="missing model",
    ),
    pytest.param(
        f"{TRACEBACK}\nhuggingface_hub.errors.LocalEntryNotFoundError: Cannot find an appropriate"
        " cached snapshot folder",
        1,
        FailureKind.MISSING_MODEL,
        "Cannot find an appropriate cached snapshot folder",
        id="model not in the cache",
    ),
    pytest.param(
        "huggingface_hub.errors.RepositoryNotFoundError: 401 Client Error. Repository Not Found.",
        1,
        FailureKind.MISSING_MODEL,
        "401 Client Error. Repository Not Found.",
        id="repository that does not exist",
    ),
    pytest.param(
        "huggingface_hub.errors.GatedRepoError: 403 Client Error. Cannot access gated repo",
        1,
        FailureKind.GATED_MODEL,
        "403 Client Error. Cannot access gated repo",
        id="gated",
    ),
    pytest.param(
        "ImportError: Arctic Inference is required for suffix decoding. Install via `pip install"
        " arctic-inference==0.1.1`.",
        1,
        FailureKind.MISSING_PACKAGE,
        "Arctic Inference is required for suffix decoding. Install via `pip install"
        " arctic-inference==0.1.1`.",
        id="suffix without its package",
    ),
    pytest.param(
        "OSError: [Errno 98] Address already in use",
        1,
        FailureKind.PORT_TAKEN,
        "[Errno 98] Address already in use",
        id="port taken",
    ),
    pytest.param(
        f"{CORE}EngineCore failed to start.\n{CORE}ValueError: No available memory for the cache"
        f" blocks. Try increasing `gpu_memory_utilization`.\n{GENERIC}",
        1,
        FailureKind.KV_CACHE_TOO_SMALL,
        "No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.",
        id="no KV cache",
    ),
    pytest.param(
        f"{CORE}ValueError: To serve at least one request with the model's max seq len (131072),"
        f" (16.0 GiB KV cache is needed\n{GENERIC}",
        1,
        FailureKind.KV_CACHE_TOO_SMALL,
        "To serve at least one request with the model's max seq len (131072), (16.0 GiB KV cache"
        " is needed",
        id="KV cache too small",
    ),
    pytest.param(
        f"{WORKER}WorkerProc failed to start.\n{WORKER}torch.OutOfMemoryError: CUDA out of memory."
        f" Tried to allocate 2 GiB.\n{GENERIC}",
        1,
        FailureKind.OUT_OF_MEMORY,
        "CUDA out of memory. Tried to allocate 2 GiB.",
        id="GPU memory, behind a worker's generic line",
    ),
    pytest.param(
        f"{CORE}ValueError: Available memory on node 0 (1.0/12.96 GiB) is less than desired",
        1,
        FailureKind.OUT_OF_MEMORY,
        "Available memory on node 0 (1.0/12.96 GiB) is less than desired",
        id="host memory",
    ),
    pytest.param(
        f"{WORKER}WorkerProc failed to start.\n{WORKER}Traceback (most recent call last):\n"
        f"{WORKER}RuntimeError: CUDA error: an illegal memory access\n{GENERIC}",
        1,
        FailureKind.WORKER_CRASHED,
        "CUDA error: an illegal memory access",
        id="worker crash with its cause",
    ),
    pytest.param(
        f"{WORKER}Worker proc VllmWorker-0 died unexpectedly (exit code: -9), shutting down"
        f" executor.\n{GENERIC}",
        1,
        FailureKind.WORKER_CRASHED,
        "Worker proc VllmWorker-0 died unexpectedly (exit code: -9), shutting down executor.",
        id="killed worker: nothing says that memory was the reason",
    ),
    pytest.param(
        f"{CORE}EngineCore encountered a fatal error.\n{CORE}AssertionError: no such slot\n"
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
        0,
        FailureKind.DIED,
        "no such slot",
        id="death in use, exit code 0",
    ),
    pytest.param(
        f"Traceback (most recent call last):\nKeyError: 'x'\n{GENERIC}",
        1,
        FailureKind.UNKNOWN,
        "'x'",
        id="an error nobody has met",
    ),
    pytest.param("", -9, FailureKind.UNKNOWN, "the log names no error", id="killed in silence"),
]


@pytest.mark.parametrize(("log", "exit_code", "kind", "message"), LOGS)
def test_the_first_error_decides(log: str, exit_code: int, kind: FailureKind, message: str) -> None:
    failure = classify(log, exit_code)
    assert (failure.kind, failure.message, failure.exit_code) == (kind, message, exit_code)


def test_of_two_errors_the_first() -> None:
    log = f"{CORE}torch.OutOfMemoryError: CUDA out of memory.\nOSError: Address already in use"
    assert classify(log, 1).kind is FailureKind.OUT_OF_MEMORY


@pytest.mark.parametrize(
    "line",
    [
        "(APIServer pid=7) WARNING 11-29 18:38:01 [parallel.py:746] Address already in use. Retry",
        "(APIServer pid=7) INFO 11-29 18:38:01 [a.py:1] chat: ImportError: how do I install it?",
        "(APIServer pid=7) ERROR 11-29 18:38:01 [utils.py:65] 401 Client Error, retrying 1 of 2",
        '    raise RuntimeError("CUDA out of memory")',
    ],
)
def test_harmless_lines_are_no_failure(line: str) -> None:
    assert classify(line, None).kind is FailureKind.UNKNOWN


def test_a_long_message_is_cut() -> None:
    message = classify(f"ValueError: {'x' * 5000}", 1).message
    assert len(message) == MESSAGE_LENGTH
    assert message.endswith("…")
