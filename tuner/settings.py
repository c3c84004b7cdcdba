"""What an installation sets through ``TUNER_*`` environment variables."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

from platformdirs import user_data_path
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Made by a call, never at import, so that a test or a command sees its own environment."""

    model_config = SettingsConfigDict(env_prefix="TUNER_", frozen=True)

    data_dir: Path = Field(default_factory=lambda: user_data_path("draftpick"))
    """Where the default database, logs, samples and the quickstart's models live."""

    storage: str | None = None
    """Database URL; the default is a SQLite file in ``data_dir``."""

    engine_python: Path | None = None
    """An interpreter that has vLLM, for studies that name none."""

    @property
    def storage_url(self) -> str:
        return self.storage or f"sqlite:///{self.data_dir / 'tuner.db'}"

    @property
    def models_dir(self) -> Path:
        return self.data_dir / "models"

    @property
    def default_engine_python(self) -> Path:
        """The set one; else the tuner's own if it has vLLM; else ``.venv-vllm`` next door, as
        ``make`` lays it out; else the tuner's own, which preflight then finds wanting.
        """
        own, next_door = Path(sys.executable), Path(sys.prefix).parent / ".venv-vllm/bin/python"
        if self.engine_python:
            return self.engine_python.absolute()
        if find_spec("vllm") is None and next_door.exists():
            return next_door
        return own
