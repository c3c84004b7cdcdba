"""Column types that read back exactly what was written, on SQLite and PostgreSQL alike."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, DateTime, Dialect, Text, TypeDecorator
from sqlalchemy.dialects.postgresql import JSONB

_ESCAPE = "\ufdd0"  # a code point that Unicode keeps out of texts
_UNSTORABLE = re.compile(f"[\x00\ud800-\udfff{_ESCAPE}]")
_ESCAPED = re.compile(f"{_ESCAPE}([0-9a-f]{{4}})")


def _escape(text: str) -> str:
    return _UNSTORABLE.sub(lambda found: f"{_ESCAPE}{ord(found[0]):04x}", text)


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)


def _map_text(value: Any, change: Callable[[str], str]) -> Any:
    """A JSON value with every text in it changed, keys included."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list | tuple):
        return [_map_text(item, change) for item in value]
    if isinstance(value, dict):
        return {change(key): _map_text(item, change) for key, item in value.items()}
    return value


class AnyText(TypeDecorator[str]):
    """Text from outside, such as a log. PostgreSQL refuses NUL, UTF-8 lone surrogates: escaped."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        return None if value is None else _escape(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        return None if value is None else _unescape(value)


class JsonBody(TypeDecorator[Any]):
    """JSON on SQLite, JSONB on PostgreSQL, with texts as in ``AnyText``. JSONB orders keys anew."""

    impl = JSON().with_variant(JSONB(), "postgresql")
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:  # noqa: ARG002
        return _map_text(value, _escape)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:  # noqa: ARG002
        return _map_text(value, _unescape)


class UtcTime(TypeDecorator[datetime]):
    """A point in time: UTC when read, with a zone when written (``ValueError`` without)."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"the time {value} has no time zone")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
