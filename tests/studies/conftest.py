"""Studies over the fake server: real processes, real HTTP, scripted speed and faults."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.factories import study_spec
from tuner.engine.fake_script import VARIABLE
from tuner.settings import Settings
from tuner.spec import StudySpec

FAST = {"step_ms": 6, "step_ms_per_k": 0.2, "step_ms_per_request": 0.1, "prefill_ms": 2}


@pytest.fixture
def storage_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """SQLite, where a test does not ask for PostgreSQL: the store's own suite has both."""
    if getattr(request, "param", "sqlite") == "postgres":
        url: str = request.getfixturevalue("postgres_database_url")
        return url
    return f"sqlite:///{tmp_path / 'tuner.db'}"


@pytest.fixture
def settings(tmp_path: Path, storage_url: str) -> Settings:
    return Settings(data_dir=tmp_path / "data", storage=storage_url)


@pytest.fixture
def fake_study():
    """A study of the fake; ``script`` changes its script, anything else the study."""

    def make(script: dict[str, Any] | None = None, **changes: Any) -> StudySpec:
        given = FAST | {"acceptance": {"suffix": 0.9, "ngram": 0.1}} | (script or {})
        return study_spec(
            **{
                "name": "fake",
                "target": {"model": "owner/target"},
                "engine": {
                    "command": [sys.executable, "-m", "tuner.engine.fake"],
                    "env": {VARIABLE: json.dumps(given)},
                    "startup_timeout_s": 30,
                },
                "candidates": [{"method": "suffix", "k": 4}, {"method": "ngram", "k": 4}],
                "workload": {"output_tokens": 8, "requests": 2},
                "loads": [{"concurrency": 2}],
                "price": {"usd_per_hour": 2.0},
                "precision": 0.49,
                **changes,
            }
        )

    return make
