"""Ctrl-C and SIGTERM end a long command, whatever Python was doing when they came."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from studies.events import Event, Observer

ENDING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def interruptible(observe: Observer) -> Iterator[Observer]:
    """The observer to be used within: KeyboardInterrupt is raised at once, else at the next event.

    Python drops what is raised while a weak reference's callback or a destructor runs, and a signal
    may well find it there: SQLAlchemy has such a callback for every connection. A signal that was
    ignored from the start, as under nohup, stays so.
    """
    asked = False

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        nonlocal asked
        asked = True
        raise KeyboardInterrupt

    def observing(event: Event) -> None:
        observe(event)
        if asked:
            raise KeyboardInterrupt

    heeded = [each for each in ENDING if signal.getsignal(each) is not signal.SIG_IGN]
    before = {each: signal.signal(each, interrupt) for each in heeded}
    try:
        yield observing
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
