"""A server that speaks like vLLM and costs nothing: for tests, and to try the tuner out.

``python -m tuner.engine.fake MODEL --host 127.0.0.1 --port 8000`` takes vLLM's flags (``serve``
before the model, or ``--model MODEL``, too) and answers chat and completions, streamed or not,
``/tokenize``, ``/v1/models``, ``/metrics``, ``/health`` and ``/version``. A study uses it with
``engine: {command: [python, -m, tuner.engine.fake]}``.

It decodes in steps that take scripted times, and its answers are words without meaning, which it
can score (``prompt_logprobs``). With a ``--speculative-config`` each step of a request drafts k
tokens, accepts as many as a seeded draw says, and sends them in one event; the counters are exact,
and each answer has its steps under ``metrics``. Retired speculative flags, unknown keys
and malformed configs are refused as vLLM refuses them, and the log has vLLM's lines.

The script is JSON in ``TUNER_FAKE_SCRIPT``, inline or in a file it names::

    {"step_ms": 20, "step_ms_per_k": 1.0, "acceptance": {"my-draft": 0.8, "ngram": 0.3},
     "faults": [{"method": "ngram", "k": 8, "kind": "out_of_memory"}]}

:class:`~tuner.engine.fake_script.FakeScript` has all fields and their defaults.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import mmap
import os
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

from aiohttp import web

from tuner.engine import fake_log, live_k
from tuner.engine.fake_answers import Answers
from tuner.engine.fake_decode import Decoder
from tuner.engine.fake_script import (
    FakeScript,
    Fault,
    SpeculativeConfig,
    script_from_environment,
)
from tuner.vllm import MAX_K, METHODS, SPECULATIVE_KEYS

RETIRED = ("--speculative", "--num-speculative", "--num_speculative", "--ngram-prompt-lookup")
SHUTDOWN_S = 0.1
AT_START = frozenset({"out_of_memory", "kv_cache_too_small", "bad_config", "crash", "hang"})
ALWAYS_AT_START = frozenset({"kv_cache_too_small", "bad_config"})


def _speculative_json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise argparse.ArgumentTypeError(
            f"Value {text} cannot be converted to <function loads>."
        ) from error


def parse(argv: list[str]) -> argparse.Namespace:
    """The command line of vLLM, as far as the fake has a use for it; other flags pass unread.

    Exits with 2, as vLLM does, for a speculative flag that vLLM no longer knows.
    """
    parser = argparse.ArgumentParser(prog="fake.py", allow_abbrev=False)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--model")
    parser.add_argument("--served-model-name")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--speculative-config", "-sc", type=_speculative_json)
    parser.add_argument("--scheduler-cls")
    arguments, others = parser.parse_known_args(argv)
    if unknown := [flag for flag in others if flag.startswith(RETIRED)]:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    words = arguments.words[1:] if arguments.words[:1] == ["serve"] else arguments.words
    arguments.model = arguments.model or next(iter(words), None)
    if arguments.model is None:
        parser.error("the following arguments are required: MODEL")
    return arguments


def refuse_bad_config(config: Any) -> None:
    """Exit with 1 and pydantic's report where vLLM's SpeculativeConfig would not take it."""
    own = {"method", "model", "num_speculative_tokens"}
    low, high = config.get("prompt_lookup_min"), config.get("prompt_lookup_max")
    k = config.get("num_speculative_tokens")
    if unknown := sorted(config.keys() - SPECULATIVE_KEYS - own):
        _refuse(unknown[0], "Unexpected keyword argument")
    if config["method"] not in METHODS and not config["method"].endswith("_mtp"):
        _refuse("method", f"Input should be one of {', '.join(sorted(METHODS))}")
    if not isinstance(k, int) or not 0 < k <= MAX_K:
        _refuse("num_speculative_tokens", "Input should be greater than 0")
    if low and high and low > high:
        _refuse("", f"Value error, prompt_lookup_min={low} must be <= prompt_lookup_max={high}")


def _refuse(place: str, reason: str) -> NoReturn:
    fake_log.say_bad_config(place, reason)
    raise SystemExit(1)


def next_k(scheduler: str | None) -> Callable[[], int] | None:
    """What tells the k of each step, where the scheduler is the one that changes it live."""
    if scheduler != live_k.SCHEDULER:
        return None
    with open(os.environ[live_k.VARIABLE], "r+b") as file:  # noqa: PTH123
        wanted_and_in_force = mmap.mmap(file.fileno(), 2)

    def take() -> int:
        wanted_and_in_force[1] = wanted_and_in_force[0]
        return wanted_and_in_force[0]

    return take


def fail_start(fault: Fault) -> None:
    """Fail as the fault says, before the server answers."""
    if fault.kind == "hang":
        while True:
            time.sleep(3600)
    if fault.kind == "bad_config":
        _refuse("", "Value error, scripted: this speculative config is refused")
    if fault.kind == "crash":
        fake_log.say_worker_crashed()
    elif fault.kind == "out_of_memory":
        fake_log.say_core_failed(fake_log.OUT_OF_MEMORY)
    else:
        fake_log.say_core_failed(fake_log.KV_CACHE_TOO_SMALL)
    raise SystemExit(1)


def die(fault: Fault) -> None:
    """End the process in the middle of its work; vLLM exits with 0 then."""
    cause = fake_log.OUT_OF_MEMORY if fault.kind == "out_of_memory" else "RuntimeError: scripted"
    fake_log.say_engine_dead(cause)
    os._exit(1 if fault.kind == "crash" else 0)


def bind(host: str, port: int) -> socket.socket:
    """The server's socket, taken before anything else, as vLLM does."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    return listener


async def serve(
    arguments: argparse.Namespace,
    listener: socket.socket,
    script: FakeScript,
    config: SpeculativeConfig | None,
    faults: list[Fault],
) -> None:
    name = arguments.served_model_name or arguments.model
    decoder = Decoder(script, config, next_k(arguments.scheduler_cls))
    answers = Answers(name, script, decoder, faults=faults, die=die)
    runner = web.AppRunner(
        answers.application(),
        access_log=None,
        handle_signals=True,
        shutdown_timeout=SHUTDOWN_S,
        handler_cancellation=True,  # a request whose client left is not answered to its end
    )
    await runner.setup()
    try:
        await web.SockSite(runner, listener).start()
        fake_log.say("INFO", "Application startup complete.")
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


def main() -> None:
    arguments = parse(sys.argv[1:])
    script = script_from_environment()
    config: SpeculativeConfig | None = arguments.speculative_config
    fake_log.say_what_it_is(arguments.model, script.version, config)
    if config is not None:
        config.setdefault("method", "draft_model")
        refuse_bad_config(config)
    listener = bind(arguments.host, arguments.port)
    faults = script.faults_of_this_start(config)
    time.sleep(script.startup_s)
    for fault in faults:
        if fault.kind in AT_START and (fault.after_requests == 0 or fault.kind in ALWAYS_AT_START):
            fail_start(fault)
    fake_log.say_kv_cache(script.max_model_len)
    try:
        asyncio.run(serve(arguments, listener, script, config, faults))
    except web.GracefulExit:
        fake_log.say("INFO", "Shutting down")


if __name__ == "__main__":
    main()
