import signal
import weakref

import pytest

from studies.events import Event, Warned
from tuner.interrupts import interruptible


class Thing:
    """Something to be referred to weakly."""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_interrupts_at_once(how: signal.Signals) -> None:
    with pytest.raises(KeyboardInterrupt), interruptible(lambda _: None):
        signal.raise_signal(how)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_one_that_python_drops_interrupts_at_the_next_event(how: signal.Signals) -> None:
    seen: list[Event] = []

    def is_dropped() -> bool:
        thing = Thing()
        reference = weakref.ref(thing, lambda _: signal.raise_signal(how))
        del thing
        return reference() is None

    with interruptible(seen.append) as observe:
        assert is_dropped()
        with pytest.raises(KeyboardInterrupt):
            observe(Warned("the next event"))
    assert seen == [Warned("the next event")]


def test_what_was_ignored_stays_ignored_and_all_is_as_before_afterwards() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interruptible(lambda _: None):
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    with interruptible(lambda _: None):
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
