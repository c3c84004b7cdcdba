"""Studies that come with the package, to run as they are or to copy and change."""

from __future__ import annotations

from importlib.resources import files

from tuner.errors import NotFoundError


def names() -> list[str]:
    """The presets, in alphabetical order."""
    entries = (entry.name for entry in files(__name__).iterdir())
    return sorted(name.removesuffix(".yaml") for name in entries if name.endswith(".yaml"))


def read(name: str) -> str:
    """A preset's YAML text. Raises ``NotFoundError`` with the presets there are."""
    if name not in names():
        raise NotFoundError(f"no preset '{name}'; there are {', '.join(names())}")
    return (files(__name__) / f"{name}.yaml").read_text(encoding="utf-8")
