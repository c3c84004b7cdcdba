from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.load.sse import EventParser

TEXT = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]))


@given(
    payloads=st.lists(TEXT),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    cuts=st.lists(st.integers(min_value=0, max_value=400)),
)
def test_events_come_out_whole_however_the_bytes_are_cut(
    payloads: list[str], end: str, cuts: list[int]
) -> None:
    sent = "".join(f"data: {payload}{end}{end}" for payload in payloads).encode()
    places = sorted({0, *(cut for cut in cuts if cut < len(sent)), len(sent)})
    parser = EventParser()

    received = [
        payload for start, stop in pairwise(places) for payload in parser.feed(sent[start:stop])
    ]

    # A lone CR at the very end may yet turn out to be half of a CRLF.
    received += parser.feed(b"\n") if end == "\r" else []
    assert received == payloads


@pytest.mark.parametrize(
    ("sent", "payloads"),
    [
        (b": ping\n\ndata: a\n\n: ping\n\n", ["a"]),
        (b"data: a\ndata: b\n\n", ["a\nb"]),
        (b"event: token\nid: 7\ndata: a\nretry: 5\n\n", ["a"]),
        (b"data:a\n\n", ["a"]),
        (b"data:  a\n\n", [" a"]),
        (b"data\n\n", [""]),
        (b"\n\n\ndata: a\n\n\n", ["a"]),
        ("data: one\u2028line\x85\n\n".encode(), ["one\u2028line\x85"]),
    ],
    ids=[
        "comments",
        "lines of one event",
        "other fields",
        "no space",
        "one space taken",
        "no colon",
        "blank lines",
        "line separators inside",
    ],
)
def test_reads_what_the_format_allows(sent: bytes, payloads: list[str]) -> None:
    assert EventParser().feed(sent) == payloads


def test_an_event_cut_off_by_the_end_is_dropped() -> None:
    assert EventParser().feed(b"data: a\n\ndata: b\n") == ["a"]
