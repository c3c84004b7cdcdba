"""Server-sent events, as a stream of bytes cut anywhere."""

from __future__ import annotations

import re

_LINE = re.compile(rb"(.*?)(?:\r\n|\n|\r(?!\Z))", re.DOTALL)
"""A finished line. A CR at the very end may be half of a CRLF, so it waits for the next bytes."""


class EventParser:
    """Turns received bytes into the ``data`` payloads of whole events.

    Follows the event stream format of the HTML standard (section 9.2.6): lines end in LF, CR or
    CRLF, a blank line ends an event, several ``data`` lines are joined by LF, a line that starts
    with a colon is a comment, and an event that the stream's end cuts off is dropped.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[str] = []

    def feed(self, received: bytes) -> list[str]:
        """The payloads of the events that ``received`` completes."""
        self._rest += received
        payloads = []
        end = 0
        for match in _LINE.finditer(self._rest):
            end = match.end()
            line = match[1].decode()
            if not line and self._data:
                payloads.append("\n".join(self._data))
                self._data.clear()
            name, _, value = line.partition(":")
            if name == "data":
                self._data.append(value.removeprefix(" "))
        self._rest = self._rest[end:]
        return payloads
