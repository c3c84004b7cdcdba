"""What may be stored: nothing that is NaN or infinite, and no count or time below zero."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tuner.errors import Failure, FailureKind, RoundError, StorageError
from tuner.records import Counters, Figures, RequestSample


def require_sound(what: str, record: Figures | Counters | RequestSample) -> None:
    """``RoundError`` (bad counters) where a number of the record is NaN, infinite or negative."""
    for where, number in _numbers(asdict(record)):
        if not (_is_finite(number) and number >= 0):
            raise RoundError(
                Failure(FailureKind.BAD_COUNTERS, f"{what}: {where} is {number}; nothing stored")
            )


def require_finite(what: str, value: Any) -> None:
    """``StorageError`` where a number within a JSON-able value is NaN or infinite."""
    for where, number in _numbers(value):
        if not _is_finite(number):
            raise StorageError(f"{what}: {where} is {number}; nothing stored")


def require_duration(what: str, seconds: float) -> None:
    """``StorageError`` where a time is NaN, infinite or negative."""
    if not (math.isfinite(seconds) and seconds >= 0):
        raise StorageError(f"{what} is {seconds}; nothing stored")


def _is_finite(number: float) -> bool:
    return isinstance(number, int) or math.isfinite(number)  # isfinite fails on an int above 1e308


def _numbers(value: Any, where: str = "") -> Iterator[tuple[str, float]]:
    """Every number within, with its place: ``accepted_at_position[1]``."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _numbers(item, f"{where}.{key}" if where else str(key))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for index, item in enumerate(value):
            yield from _numbers(item, f"{where}[{index}]")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield where, value
