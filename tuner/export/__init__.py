"""A recommendation in forms that start without the tuner, one module per form."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from tuner.answers import Recommendation
from tuner.errors import UsageError
from tuner.export.sh import shell_script

FORMATS: Mapping[str, Callable[[Recommendation], str]] = MappingProxyType({"sh": shell_script})


def export(answer: Recommendation, form: str) -> str:
    """The recommendation in one of FORMATS. Raises ``UsageError`` where there is no such form."""
    if form not in FORMATS:
        raise UsageError(f"no export format '{form}'; there is {', '.join(FORMATS)}")
    return FORMATS[form](answer)


__all__ = ["FORMATS", "export", "shell_script"]
