"""Measuring a running server: a round between two readings of its counters."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tuner.errors import Failure, FailureKind, RoundError
from tuner.load.prompts import Prompt
from tuner.load.rounds import run_round
from tuner.measure.counters import DRAFTS, GENERATION_TOKENS, difference, read_counters
from tuner.measure.figures import figures
from tuner.records import Counters, Figures, Round
from tuner.spec import Load, Workload

PROBE_TOKENS = 8

SETTLE_S = 2.0
"""How long the counters may lag behind the last answer; what is still missing then is reported."""
POLL_S = 0.05

CACHE_HIT_SHARE = 0.2
"""Above this, prompts were found in the prefix cache. What a chat template puts before every prompt
is found there too, one or two blocks of it, and stays below.
"""

OTHER_TRAFFIC_SHARE = 0.01

_REJECTED = re.compile(r"4(?!08|29)\d\d:")
"""An error that the same request would meet again: a 4xx, but for a time-out or an overload."""


class RunningServer(Protocol):
    """What measuring needs of a server."""

    @property
    def base_url(self) -> str: ...

    @property
    def model(self) -> str: ...

    def check(self) -> None:
        """Raises EngineDiedError if the server is no longer well."""


@dataclass(frozen=True)
class Measured:
    """A round with what the server counted over it, and what a reader should know of it."""

    round: Round
    counters: Counters
    figures: Figures
    warnings: tuple[str, ...]


def probe_request(server: RunningServer, prompt: Prompt, workload: Workload) -> None:
    """One short request with the workload's own sampling parameters.

    Raises RoundError (REQUEST_REJECTED) with the server's text where it refuses them, as it does
    ``min_p`` with speculation (vllm#42744); EngineDiedError where the server died of it.
    """
    tokens = min(PROBE_TOKENS, workload.output_tokens)
    short = workload.model_copy(update={"output_tokens": tokens})
    _answered_round(server, [prompt], Load(concurrency=1), short)


def warm_up(
    server: RunningServer, prompts: Sequence[Prompt], load: Load, workload: Workload
) -> None:
    """A round, decoding included, at the load to be measured; thrown away.

    Raises as measure_round.
    """
    _answered_round(server, prompts, load, workload)


def measure_round(
    server: RunningServer, prompts: Sequence[Prompt], load: Load, workload: Workload
) -> Measured:
    """A round that counts.

    Raises RoundError when any request failed, when the server streamed no usage, or when its
    counters make no sense; EngineDiedError when it is no longer there.
    """
    before = read_counters(server.base_url)
    round_ = _answered_round(server, prompts, load, workload)
    tokens = sum(s.completion_tokens or 0 for s in round_.samples)
    after = _settled(server.base_url, before[GENERATION_TOKENS] + tokens)
    counters = difference(before, after)
    figures_ = figures(round_, counters)
    return Measured(round_, counters, figures_, _warnings(figures_, counters, DRAFTS in after))


def _settled(base_url: str, tokens: float) -> dict[str, float]:
    """The counters once they hold so many tokens: vLLM answers a step before it counts it."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        now = read_counters(base_url)
        if now[GENERATION_TOKENS] >= tokens or time.monotonic() >= deadline:
            return now
        time.sleep(POLL_S)


def _answered_round(
    server: RunningServer, prompts: Sequence[Prompt], load: Load, workload: Workload
) -> Round:
    """A round with every prompt answered; a dead server is named before its failed requests."""
    round_ = run_round(server.base_url, server.model, prompts, load, workload)
    server.check()
    errors = [s.error for s in round_.samples if s.error is not None]
    if errors:
        rejected = [error for error in errors if _REJECTED.match(error)]
        kind = FailureKind.REQUEST_REJECTED if rejected else FailureKind.REQUESTS_FAILED
        message = (
            f"{len(errors)} of {len(round_.samples)} requests failed: {(rejected or errors)[0]}"
        )
        raise RoundError(Failure(kind, message))
    if not round_.samples:
        raise RoundError(Failure(FailureKind.REQUESTS_FAILED, "no request was sent"))
    if any(s.completion_tokens is None for s in round_.samples):
        message = "the server streamed no usage; it must honour stream_options.include_usage"
        raise RoundError(Failure(FailureKind.REQUEST_REJECTED, message))
    return round_


def _warnings(figures_: Figures, counters: Counters, speculates: bool) -> tuple[str, ...]:
    warnings = []
    if speculates and counters.drafts == 0:
        warnings.append("no drafts: acceptance is unknown")
    if speculates and counters.draft_tokens > 0 and counters.accepted_tokens == 0:
        warnings.append(
            f"none of {counters.draft_tokens} draft tokens was accepted: "
            "the draft looks broken or does not belong to this target"
        )
    if counters.preemptions:
        warnings.append(
            f"{counters.preemptions} preemptions: the KV cache is too small for this load"
        )
    hits, queries = counters.prefix_cache_hits, counters.prefix_cache_queries
    if queries and hits / queries > CACHE_HIT_SHARE:
        warnings.append(f"{hits / queries:.0%} of prompt tokens came from the prefix cache")
    counted, answered = counters.generation_tokens, figures_.output_tokens
    if abs(counted - answered) > OTHER_TRAFFIC_SHARE * answered:
        warnings.append(
            f"the server generated {counted} tokens, this round's requests got {answered}: "
            "it had other traffic, or misreports its usage"
        )
    return tuple(warnings)
