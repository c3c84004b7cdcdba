"""The server's counters: read from ``/metrics``, and their difference over a round."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tuner.errors import Failure, FailureKind, RoundError
from tuner.records import Counters

TIMEOUT_S = 60.0

GENERATION_TOKENS = "generation_tokens"
DRAFTS = "spec_decode_num_drafts"
"""On ``/metrics`` exactly when a speculative config is set."""

_DRAFT_TOKENS = "spec_decode_num_draft_tokens"
_ACCEPTED_TOKENS = "spec_decode_num_accepted_tokens"
_ACCEPTED_AT_POSITION = "spec_decode_num_accepted_tokens_per_pos"
_PROMPT_TOKENS = "prompt_tokens"
_CACHE_QUERIES = "prefix_cache_queries"
_CACHE_HITS = "prefix_cache_hits"
_PREEMPTIONS = "num_preemptions"
_QUEUE_TIME = "request_queue_time_seconds"
RUNNING = "num_requests_running"
WAITING = "num_requests_waiting"

_GAUGES = frozenset({RUNNING, WAITING})
_SERIES = {
    f"vllm:{name}_total": name
    for name in (
        GENERATION_TOKENS,
        DRAFTS,
        _DRAFT_TOKENS,
        _ACCEPTED_TOKENS,
        _ACCEPTED_AT_POSITION,
        _PROMPT_TOKENS,
        _CACHE_QUERIES,
        _CACHE_HITS,
        _PREEMPTIONS,
    )
} | {
    f"vllm:{name}": name
    for name in (f"{_QUEUE_TIME}_count", f"{_QUEUE_TIME}_sum", *sorted(_GAUGES))
}
"""What is read, by its name on ``/metrics``."""


def read_counters(base_url: str) -> dict[str, float]:
    """Counters of vLLM now, by name without prefix and suffix, summed over engines.

    Beside them RUNNING and WAITING, the gauges of requests in the batch and before it.

    Raises RoundError when ``/metrics`` can't be read, or has no counter of generated tokens.
    """
    try:
        # No proxy of the environment may come between us and the server.
        answer = httpx.get(f"{base_url}/metrics", timeout=TIMEOUT_S, trust_env=False)
        answer.raise_for_status()
    except httpx.HTTPError as error:
        message = f"can't read {base_url}/metrics: {error}"
        raise RoundError(Failure(FailureKind.REQUESTS_FAILED, message)) from error
    return parse_counters(answer.text)


def parse_counters(exposition: str) -> dict[str, float]:
    """The counters in a Prometheus text exposition; a position's has its number: ``name[0]``.

    Data-parallel servers export one series per engine (vllm#24049): they are added up. The
    ``_created`` timestamps beside each counter are left out.
    """
    counters: dict[str, float] = {}
    try:
        for family in text_string_to_metric_families(exposition):
            for sample in family.samples:
                name = _SERIES.get(sample.name)
                if name is None:
                    continue
                if name == _ACCEPTED_AT_POSITION:
                    name = f"{name}[{sample.labels['position']}]"
                counters[name] = counters.get(name, 0.0) + sample.value
    except (ValueError, KeyError) as error:
        raise _bad(f"/metrics is not in Prometheus' text format: {error}") from error
    if GENERATION_TOKENS not in counters:
        raise _bad(
            "/metrics has no vllm:generation_tokens_total; "
            "remove --disable-log-stats from the engine's arguments"
        )
    return counters


def difference(before: Mapping[str, float], after: Mapping[str, float]) -> Counters:
    """What the counters grew by between two readings.

    Raises RoundError (BAD_COUNTERS) when a counter is negative, no number, or went backwards: the
    server was restarted, or counted something impossible (vllm#27077).
    """
    if gone := sorted(before.keys() - after.keys()):
        raise _bad(f"vllm:{gone[0]} was on /metrics before the round and not after it")
    grown = {
        name: _growth(name, before.get(name, 0.0), value)
        for name, value in after.items()
        if name not in _GAUGES
    }
    counts = {name: round(value) for name, value in grown.items()}
    return Counters(
        drafts=counts.get(DRAFTS, 0),
        draft_tokens=counts.get(_DRAFT_TOKENS, 0),
        accepted_tokens=counts.get(_ACCEPTED_TOKENS, 0),
        accepted_at_position=_by_position(counts),
        generation_tokens=counts.get(GENERATION_TOKENS, 0),
        prompt_tokens=counts.get(_PROMPT_TOKENS, 0),
        prefix_cache_queries=counts.get(_CACHE_QUERIES, 0),
        prefix_cache_hits=counts.get(_CACHE_HITS, 0),
        preemptions=counts.get(_PREEMPTIONS, 0),
        queued_requests=counts.get(f"{_QUEUE_TIME}_count", 0),
        queue_time_s=grown.get(f"{_QUEUE_TIME}_sum", 0.0),
    )


def _growth(name: str, before: float, after: float) -> float:
    if not (math.isfinite(before) and math.isfinite(after) and 0 <= before <= after):
        raise _bad(f"vllm:{name} went from {before:g} to {after:g} over the round")
    return after - before


def _by_position(counts: Mapping[str, int]) -> tuple[int, ...]:
    at = {
        int(match[1]): value
        for name, value in counts.items()
        if (match := re.fullmatch(rf"{_ACCEPTED_AT_POSITION}\[(\d+)\]", name))
    }
    return tuple(at.get(position, 0) for position in range(max(at, default=-1) + 1))


def _bad(message: str) -> RoundError:
    return RoundError(Failure(FailureKind.BAD_COUNTERS, message))
