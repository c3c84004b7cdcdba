"""What a vLLM log says of the engine that wrote it."""

from __future__ import annotations

import re

from tuner.records import StartedFacts

VERSION = re.compile(r"\bversion (\d\S*)|LLM engine \(v(\d[^)\s]*)\)")
RUNNER = re.compile(r"Using (V\d) Model Runner|using the (V\d) model runner", re.IGNORECASE)
ASYNC = re.compile(
    r"'async_scheduling': (?P<asked>True|False)"
    r"|Asynchronous scheduling is (?P<said>enabled|disabled)"
    r"|Async scheduling (?:is|will be|not)[^\n]*(?P<off>disabled)"
)
GRAPH_MODE = re.compile(r"'cudagraph_mode': <CUDAGraphMode\.(\w+)|-cc\.cudagraph_mode=(\w+)")
KV_CACHE = re.compile(
    r"KV cache size: ([\d,]+) tokens(?:, Maximum concurrency for [\d,]+ tokens per request: "
    r"([\d.]+)x)?"
)


def started_facts(log: str) -> StartedFacts:
    """Facts from a log's text; each is None where the log does not say.

    vLLM 0.32 names its runner only when it is V2 or when it fell back to V1, and mentions async
    scheduling only when it was asked for or had to be switched off.
    """
    version = VERSION.search(log)
    runner = RUNNER.search(log)
    graph_mode = GRAPH_MODE.search(log)
    kv_cache = KV_CACHE.search(log)
    concurrency = kv_cache and kv_cache[2]
    return StartedFacts(
        version=version and (version[1] or version[2]),
        runner=runner and (runner[1] or runner[2]).upper(),
        async_scheduling=_async_scheduling(log),
        graph_mode=graph_mode and (graph_mode[1] or graph_mode[2]).lower(),
        kv_cache_tokens=int(kv_cache[1].replace(",", "")) if kv_cache else None,
        max_concurrency=float(concurrency) if concurrency else None,
    )


def _async_scheduling(log: str) -> bool | None:
    found = list(ASYNC.finditer(log))
    if not found:
        return None
    last = found[-1]
    return last["asked"] == "True" or last["said"] == "enabled"
