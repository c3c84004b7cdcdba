"""What pydantic says of a study, in plain English: what would be right, and what is there."""

from __future__ import annotations

from typing import Any, get_args

from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from tuner.spec import Part, StudySpec, unknown_key

Location = tuple[str | int, ...]

_RIGHT = {
    "bool_type": "must be true or false",
    "dict_type": "must be a mapping (key: value)",
    "finite_number": "must be a finite number",
    "float_type": "must be a number",
    "greater_than": "must be more than {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "int_type": "must be a whole number",
    "less_than": "must be less than {lt:g}",
    "less_than_equal": "must be at most {le:g}",
    "literal_error": "must be {expected}",
    "model_type": "must be a mapping (key: value)",
    "path_type": "must be a path",
    "string_too_short": "must not be empty",
    "string_type": "must be text",
    "too_short": "must have at least {min_length} entry",
    "tuple_type": "must be a list",
}
_SHOWN = 60


def plain(error: ErrorDetails) -> str:
    """One of pydantic's errors about a :class:`StudySpec` as a sentence for its author."""
    kind, location, context = error["type"], error["loc"], error.get("ctx", {})
    field = field_at(location)
    if kind == "missing" and field:
        example = field.examples[0] if field.examples else "..."
        return f"is missing; for example {location[-1]}: {example}"
    if kind == "extra_forbidden":
        part = part_at(location[:-1])
        return unknown_key(str(location[-1]), part.model_fields if part else ())
    if kind == "value_error":
        return str(context["error"])
    if kind == "string_pattern_mismatch" and field and field.description:
        return f"must be {field.description}, is {_shown(error['input'])}"
    if kind not in _RIGHT:
        return f"{error['msg'][:1].lower()}{error['msg'][1:]}"
    right = _RIGHT[kind].format_map(context)
    return f"{right}, is {_shown(error['input'])}{_advice(kind, error['input'])}"


def field_at(location: Location) -> FieldInfo | None:
    """The study's field at a location such as ``("loads", 0, "concurrency")``; None: no field."""
    part = part_at(location[:-1]) if location else None
    return part.model_fields.get(str(location[-1])) if part else None


def part_at(location: Location) -> type[Part] | None:
    """The part of a study that lies at a location; None where there is a plain value."""
    part: type[Part] | None = StudySpec
    for step in location:
        if isinstance(step, int):
            continue
        if part is None or step not in part.model_fields:
            return None
        part = _part_of(part.model_fields[step].annotation)
    return part


def _part_of(annotation: Any) -> type[Part] | None:
    """The part inside ``Price | None`` or ``tuple[Load, ...]``."""
    if isinstance(annotation, type) and issubclass(annotation, Part):
        return annotation
    return next((part for inner in get_args(annotation) if (part := _part_of(inner))), None)


def _advice(kind: str, value: object) -> str:
    if kind == "string_type" and isinstance(value, bool | int | float):
        return "; put it in quotes"
    if kind in {"int_type", "float_type"} and isinstance(value, str):
        try:
            number = float(value)
        except ValueError:
            return ""
        return f"; write {number:g}"
    return ""


def _shown(value: object) -> str:
    match value:
        case None:
            return "empty"
        case bool():
            return str(value).lower()
        case dict():
            return "a mapping"
        case list() | tuple():
            return "a list" if value else "an empty list"
        case _:
            text = repr(value)
            return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
