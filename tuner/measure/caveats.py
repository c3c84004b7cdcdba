"""What a reader should know of a round before trusting it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from tuner.measure.drafting import finished, is_finished, request_tallies, token_chunks
from tuner.records import Counters, Figures, RequestSample, Round
from tuner.spec import Workload

CACHE_HIT_SHARE = 0.2
"""Above this, prompts were found in the prefix cache. What a chat template puts before every prompt
is found there too, one or two blocks of it, and stays below.
"""

LOOPING_SHARE = 0.1

OTHER_TRAFFIC_SHARE = 0.01

AFTER_CUT_S = 0.1
"""How long a server may go on with a request that was cut off before it notices."""

LATE_MS = 20.0
"""A client that is late by less does not change an open loop's arrivals."""

QUEUE_GROWTH = 3.0
FEWEST_FOR_GROWTH = 9

BUNDLED_SHARE = 0.25
SPLIT_SHARE = 0.02


def caveats(
    round_: Round, counters: Counters, figures: Figures, workload: Workload, *, speculates: bool
) -> tuple[str, ...]:
    """One sentence each, most serious first. ``speculates``: the server counts drafts at all."""
    return (
        *_of_drafts(counters, speculates=speculates),
        *_of_server(counters, figures, workload),
        *_of_open_loop(round_, figures),
        *_of_traffic(counters, round_.samples),
        *reconcile(counters, round_.samples),
    )


def arrived_tokens(samples: Sequence[RequestSample]) -> int:
    """Tokens that are known to have reached the client; at least one in each chunk."""
    return sum(
        len(s.chunk_ms)
        if s.completion_tokens is None and not s.chunk_tokens
        else s.completion_tokens or sum(s.chunk_tokens)
        for s in samples
    )


def reconcile(counters: Counters, samples: Sequence[RequestSample]) -> list[str]:
    """Where the server's counters, its accounts of single answers and the stream disagree.

    The counters may exceed the accounts by what was cut off: a last step in each answer, and what
    padding got.
    """
    return [*_of_accounts(counters, samples), *_of_ids(samples), *_of_chunks(counters, samples)]


def _of_drafts(counters: Counters, *, speculates: bool) -> Iterator[str]:
    if speculates and counters.drafts == 0:
        yield "no drafts: acceptance is unknown"
    if speculates and counters.draft_tokens > 0 and counters.accepted_tokens == 0:
        yield (
            f"none of {counters.draft_tokens} draft tokens was accepted: "
            "the draft looks broken or does not belong to this target"
        )


def _of_server(counters: Counters, figures: Figures, workload: Workload) -> Iterator[str]:
    if counters.preemptions:
        yield f"{counters.preemptions} preemptions: the KV cache is too small for this load"
    hits = figures.prefix_cache_hit_share or 0.0
    if hits > CACHE_HIT_SHARE and not workload.shared_prefixes:
        yield f"{hits:.0%} of prompt tokens came from the prefix cache"
    looping = figures.looping_share or 0.0
    if looping > LOOPING_SHARE:
        yield (
            f"{looping:.0%} of the output only repeats itself, which flatters ngram and suffix"
            + (": let answers end by themselves (ignore_eos)" if workload.ignore_eos else "")
        )


def _of_open_loop(round_: Round, figures: Figures) -> Iterator[str]:
    if round_.load.request_rate is None:
        return
    due = [s.due_s for s in round_.samples if s.due_s is not None]
    lag_ms = figures.max_send_lag_ms or 0.0
    gap_ms = (due[-1] - due[0]) / (len(due) - 1) * 1000 if len(due) > 1 else 0.0
    if lag_ms > max(LATE_MS, gap_ms):
        yield (
            f"the client sent a request {lag_ms:.0f} ms late: "
            "this machine is too busy to keep up the rate"
        )
    ttfts = [s.ttft_ms for s in round_.counted if s.ttft_ms is not None]
    third = len(ttfts) // 3
    if len(ttfts) < FEWEST_FOR_GROWTH:
        return
    first, last = median(ttfts[:third]), median(ttfts[-third:])
    if last > QUEUE_GROWTH * first:
        yield (
            f"the queue grew: the median TTFT went from {first:.0f} ms in the round's first third "
            f"to {last:.0f} ms in its last; the server can't keep up with this rate"
        )


def _of_traffic(counters: Counters, samples: Sequence[RequestSample]) -> Iterator[str]:
    counted, arrived = counters.generation_tokens, arrived_tokens(samples)
    slack = OTHER_TRAFFIC_SHARE * arrived
    unseen = len(_cut_off(samples)) * _tokens_after_cut(counters, samples)
    if not arrived - slack <= counted <= arrived + slack + unseen:
        yield (
            f"the server generated {counted} tokens, this round's requests got {arrived}: "
            "it had other traffic, or misreports its usage"
        )


def _of_accounts(counters: Counters, samples: Sequence[RequestSample]) -> Iterator[str]:
    tallies = request_tallies(samples)
    if tallies is None:
        return
    cut_off = _cut_off(samples)
    unseen = arrived_tokens(cut_off) + len(cut_off) * _tokens_after_cut(counters, samples)
    last_steps = len(finished(samples)) * len(counters.accepted_at_position)
    compared = (
        ("drafts", counters.drafts, sum(t.drafts for t in tallies), unseen),
        (
            "accepted tokens",
            counters.accepted_tokens,
            sum(t.accepted for t in tallies),
            unseen + last_steps,
        ),
    )
    for what, counted, told, more in compared:
        if not told <= counted <= told + more:
            yield (
                f"the server counted {counted} {what}, its accounts of the answers say {told}: "
                "acceptance is uncertain"
            )


def _cut_off(samples: Sequence[RequestSample]) -> list[RequestSample]:
    return [sample for sample in samples if not is_finished(sample)]


def _tokens_after_cut(counters: Counters, samples: Sequence[RequestSample]) -> float:
    """How many tokens one request may have got unseen: the step under way, and AFTER_CUT_S."""
    tpots = [tpot_ms for s in finished(samples) if (tpot_ms := s.tpot_ms)]
    step = 1 + len(counters.accepted_at_position)
    return step + (AFTER_CUT_S * 1000 / median(tpots) if tpots else 0.0)


def _of_ids(samples: Sequence[RequestSample]) -> Iterator[str]:
    told = [s for s in finished(samples) if s.token_ids]
    wrong = sum(len(s.token_ids) != s.completion_tokens for s in told)
    if wrong:
        yield f"{wrong} of {len(told)} answers carried another number of token ids than usage says"


def _of_chunks(counters: Counters, samples: Sequence[RequestSample]) -> Iterator[str]:
    tallies = request_tallies(samples)
    decoded = [s for s in finished(samples) if (s.completion_tokens or 0) > 1]
    if tallies is not None:
        steps = sum(t.steps for t in tallies)
    elif counters.drafts == 0:
        steps = sum((s.completion_tokens or 1) - 1 for s in decoded)
    else:
        return
    chunks = sum(token_chunks(s) - 1 for s in decoded)
    # Some servers finish an answer with a chunk of its own that carries nothing.
    most = steps * (1 + SPLIT_SHARE) + len(decoded)
    if not steps * (1 - BUNDLED_SHARE) <= chunks <= most:
        yield (
            f"{steps} decode steps arrived in {chunks} chunks: the server or something before it "
            "sends several steps together or one in pieces"
        )
