import math
from dataclasses import fields

import pytest

from tests import factories
from tuner.errors import FailureKind, RoundError, StorageError
from tuner.records import Counters, Figures, RequestSample
from tuner.store.sound import require_duration, require_finite, require_sound

UNSOUND = [math.nan, math.inf, -math.inf, -1.0]


@pytest.mark.parametrize("number", UNSOUND)
@pytest.mark.parametrize("name", [f.name for f in fields(Figures)])
def test_unsound_figure(name, number):
    value = (0.5, number) if name == "acceptance_at_position" else number
    with pytest.raises(RoundError, match=rf"m1: {name}.* is {number}") as refused:
        require_sound("m1", factories.figures(**{name: value}))
    assert refused.value.failure.kind is FailureKind.BAD_COUNTERS


@pytest.mark.parametrize("name", [f.name for f in fields(Counters)])
def test_negative_counter(name):
    value = (1, -1) if name == "accepted_at_position" else -1
    with pytest.raises(RoundError, match=f"m1: {name}.* is -1"):
        require_sound("m1", factories.counters(**{name: value}))


def test_sound_records_pass():
    require_sound("m1", factories.figures(tpot_ms_p50=None, acceptance_at_position=None))
    require_sound("m1", factories.counters(drafts=10**400))
    require_sound("m1", RequestSample("p1", "chat", 0.0, text="nan", error="-1"))


def test_place_of_a_number_that_is_not_finite():
    with pytest.raises(StorageError, match=r"event: body\.list\[1\]\.deep is nan; nothing stored"):
        require_finite("event", {"body": {"list": [1, {"deep": math.nan}]}})


def test_finite_values_pass():
    require_finite("event", {"below": -1.5, "huge": 10**400, "flag": True, "none": None})


@pytest.mark.parametrize("seconds", UNSOUND)
def test_unsound_duration(seconds):
    with pytest.raises(StorageError, match=f"startup_s is {seconds}"):
        require_duration("startup_s", seconds)
