from __future__ import annotations

import math
import socket
from pathlib import Path

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from tests.load.scripted import serving
from tests.measure.exposition import exposition
from tuner.errors import FailureKind, RoundError
from tuner.measure.counters import RUNNING, WAITING, difference, parse_counters, read_counters
from tuner.records import Counters

RECORDED = Path(__file__).with_name("metrics-0.32.0.txt")
"""The lines that matter of a vLLM 0.32.0 in the middle of a round: draft_model at k=3. Those of the
queue are of another one, with three requests in its batch.
"""

COUNTERS = {
    "generation_tokens": 40.0,
    "spec_decode_num_drafts": 17.0,
    "spec_decode_num_draft_tokens": 51.0,
    "spec_decode_num_accepted_tokens": 24.0,
}


def bad(before: dict[str, float], after: dict[str, float]) -> str:
    with pytest.raises(RoundError) as caught:
        difference(before, after)
    assert caught.value.failure.kind is FailureKind.BAD_COUNTERS
    return caught.value.failure.message


async def no_answer(_: web.Request) -> web.Response:
    return web.Response(status=404)


class TestRead:
    def test_what_vllm_shows(self) -> None:
        with serving(no_answer, RECORDED.read_text) as base_url:
            counters = read_counters(base_url)

        assert difference({}, counters) == Counters(
            drafts=30,
            draft_tokens=90,
            accepted_tokens=43,
            accepted_at_position=(17, 14, 12),
            generation_tokens=72,
            prompt_tokens=264,
            prefix_cache_queries=264,
            prefix_cache_hits=0,
            preemptions=0,
            queued_requests=17,
            queue_time_s=0.00031246500043380365,
        )
        assert (counters[RUNNING], counters[WAITING]) == (3, 0)

    def test_case_9_engines_are_summed_and_timestamps_ignored(self) -> None:
        """A data-parallel server shows eight series per counter (vllm#24049)."""
        counters = parse_counters(
            exposition(
                COUNTERS, [12, 8, 4], engines=8, running=2, waiting=1, queued=3, queue_time_s=0.5
            )
        )

        assert counters == {
            **{name: 8 * value for name, value in COUNTERS.items()},
            "num_requests_running": 16,
            "num_requests_waiting": 8,
            "request_queue_time_seconds_count": 24,
            "request_queue_time_seconds_sum": 4.0,
            "spec_decode_num_accepted_tokens_per_pos[0]": 96,
            "spec_decode_num_accepted_tokens_per_pos[1]": 64,
            "spec_decode_num_accepted_tokens_per_pos[2]": 32,
        }

    def test_log_stats_switched_off(self) -> None:
        with pytest.raises(RoundError, match="--disable-log-stats"):
            parse_counters("# TYPE process_open_fds gauge\nprocess_open_fds 9.0\n")

    @pytest.mark.parametrize("text", ["<html>no metrics here</html>", 'a{b="c} 1'])
    def test_no_exposition(self, text: str) -> None:
        with pytest.raises(RoundError) as caught:
            parse_counters(text)

        assert caught.value.failure.kind is FailureKind.BAD_COUNTERS

    def test_nobody_there(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = listening.getsockname()[1]

        with pytest.raises(
            RoundError, match=f"can't read http://127.0.0.1:{port}/metrics"
        ) as caught:
            read_counters(f"http://127.0.0.1:{port}")

        assert caught.value.failure.kind is FailureKind.REQUESTS_FAILED


class TestDifference:
    def test_a_round_is_what_was_added(self) -> None:
        before = parse_counters(exposition(COUNTERS, [12, 8, 4]))
        grown = {name: value + 10 for name, value in COUNTERS.items()}
        after = parse_counters(exposition(grown, [17, 11, 6]))

        assert difference(before, after) == Counters(
            drafts=10,
            draft_tokens=10,
            accepted_tokens=10,
            accepted_at_position=(5, 3, 2),
            generation_tokens=10,
        )

    def test_gauges_may_fall(self) -> None:
        before = parse_counters(exposition(COUNTERS, running=5, waiting=2))
        after = parse_counters(exposition(COUNTERS, running=0, waiting=0))

        assert difference(before, after) == Counters()

    def test_time_in_the_queue_keeps_its_fractions(self) -> None:
        before = parse_counters(exposition(COUNTERS, queued=2, queue_time_s=0.25))
        after = parse_counters(exposition(COUNTERS, queued=5, queue_time_s=0.75))

        assert difference(before, after) == Counters(queued_requests=3, queue_time_s=0.5)

    @given(
        st.lists(st.integers(min_value=0, max_value=10**12), min_size=1, max_size=12),
        st.lists(st.integers(min_value=0, max_value=10**12), min_size=12, max_size=12),
    )
    def test_positions_keep_their_order(self, before: list[int], added: list[int]) -> None:
        after = [b + a for b, a in zip(before, added, strict=False)]
        always = {"generation_tokens": 1.0}

        counters = difference(
            parse_counters(exposition(always, before)), parse_counters(exposition(always, after))
        )

        assert counters.accepted_at_position == tuple(added[: len(before)])

    @pytest.mark.parametrize("accepted", [-1, math.nan, math.inf])
    def test_case_7_impossible_counters_fail_the_round(self, accepted: float) -> None:
        """Accepted = -1 on a counter; NaN logits (vllm#27077, vllm#26372)."""
        after = parse_counters(exposition(COUNTERS | {"spec_decode_num_accepted_tokens": accepted}))

        assert bad({}, after) == (
            f"vllm:spec_decode_num_accepted_tokens went from 0 to {accepted:g} over the round"
        )

    def test_case_7_a_counter_that_went_backwards(self) -> None:
        after = COUNTERS | {"spec_decode_num_drafts": 3.0}

        assert "spec_decode_num_drafts went from 17 to 3" in bad(COUNTERS, after)

    def test_case_7_a_counter_that_was_negative_before(self) -> None:
        negative = COUNTERS | {"spec_decode_num_accepted_tokens": -3.0}

        assert "went from -3 to 24" in bad(negative, COUNTERS)

    def test_a_counter_that_vanished(self) -> None:
        assert "was on /metrics before" in bad(COUNTERS, {"generation_tokens": 41.0})
