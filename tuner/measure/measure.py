"""Measuring a running server: a round between two readings of its counters."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, replace
from typing import Protocol

from tuner.errors import Failure, FailureKind, RoundError
from tuner.load.plan import Arrival, RoundPlan
from tuner.load.prompts import Prompt
from tuner.load.rounds import run_round
from tuner.measure.caveats import arrived_tokens, caveats
from tuner.measure.counters import (
    DRAFTS,
    GENERATION_TOKENS,
    RUNNING,
    WAITING,
    difference,
    read_counters,
)
from tuner.measure.drafting import finished
from tuner.measure.figures import figures
from tuner.records import Counters, Figures, Round
from tuner.spec import Load, Workload

PROBE_TOKENS = 8

SETTLE_S = 2.0
"""How long the counters may lag behind the last answer; what is still missing then is reported."""
POLL_S = 0.05

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
    tokens = min(PROBE_TOKENS, prompt.output_tokens or workload.output_tokens)
    short = replace(prompt, output_tokens=tokens)
    _answered_round(server, RoundPlan(Load(concurrency=1), (Arrival(short),)), workload)


def warm_up(server: RunningServer, plan: RoundPlan, workload: Workload) -> None:
    """The plan's counted requests, decoding included, at the load to be measured; thrown away.

    Raises as measure_round.
    """
    _answered_round(server, plan, workload, padded=False)


def measure_round(server: RunningServer, plan: RoundPlan, workload: Workload) -> Measured:
    """A round that counts.

    Raises RoundError when any request failed, padding included, when fewer were answered than
    planned, when the server streamed no usage, or when its counters make no sense; EngineDiedError
    when it is no longer there.
    """
    before = read_counters(server.base_url)
    round_ = _answered_round(server, plan, workload)
    after = _settled(server.base_url, before[GENERATION_TOKENS] + arrived_tokens(round_.samples))
    counters = difference(before, after)
    figures_ = figures(round_, counters)
    known = caveats(round_, counters, figures_, workload, speculates=DRAFTS in after)
    return Measured(round_, counters, figures_, known)


def _settled(base_url: str, tokens: float) -> dict[str, float]:
    """The counters once they hold so many tokens and nothing runs, or SETTLE_S later.

    vLLM answers a step before it counts it, and needs one more to drop what was cut off.
    """
    deadline = time.monotonic() + SETTLE_S
    while True:
        now = read_counters(base_url)
        under_way = now.get(RUNNING, 0) + now.get(WAITING, 0)
        is_settled = now[GENERATION_TOKENS] >= tokens and not under_way
        if is_settled or time.monotonic() >= deadline:
            return now
        time.sleep(POLL_S)


def _answered_round(
    server: RunningServer, plan: RoundPlan, workload: Workload, *, padded: bool = True
) -> Round:
    """A round with every request answered; a dead server is named before its failed requests."""
    round_ = run_round(server.base_url, server.model, plan, workload, padded=padded)
    server.check()
    errors = [s.error for s in round_.samples if s.error is not None]
    if errors:
        rejected = [error for error in errors if _REJECTED.match(error)]
        kind = FailureKind.REQUEST_REJECTED if rejected else FailureKind.REQUESTS_FAILED
        sent = len(round_.samples)
        message = f"{len(errors)} of {sent} requests failed: {(rejected or errors)[0]}"
        raise RoundError(Failure(kind, message))
    answered, planned = len(finished(round_.counted)), len(plan.counted)
    if not answered or answered < planned:
        message = f"{answered} of {planned} planned requests were answered"
        raise RoundError(Failure(FailureKind.REQUESTS_FAILED, message))
    if any(s.completion_tokens is None for s in finished(round_.samples)):
        message = (
            "the server streamed no usage, so its tokens can't be counted: it must honour "
            'stream_options {"include_usage": true}; start vLLM with --enable-force-include-usage'
        )
        raise RoundError(Failure(FailureKind.REQUEST_REJECTED, message))
    return round_
