"""Studies over the fake server: real processes, real HTTP, scripted speed and faults."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from studies.clock import Clock
from studies.events import Event
from studies.ledger import Ledger
from studies.loop import engine_python, study_context
from studies.projection import make_optuna_tables
from studies.run import Run
from studies.space import enumerate_settings
from tests.factories import study_spec
from tuner.answers import Recommendation
from tuner.engine.fake_script import VARIABLE
from tuner.load.prompts import load_prompts
from tuner.records import Stage
from tuner.settings import Settings
from tuner.spec import StudySpec
from tuner.store import Store, upgrade

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
    """An interpreter without vLLM: a draft that only it could score stays unscreened."""
    python = Path(sys.executable)
    return Settings(data_dir=tmp_path / "data", storage=storage_url, engine_python=python)


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


@pytest.fixture
def script(tmp_path):
    return tmp_path / "script.json"


@pytest.fixture
def upgrade_to(script):
    """Changes what the engine does from now on."""

    def change(**changes):
        script.write_text(json.dumps(json.loads(script.read_text()) | changes))

    return change


@pytest.fixture
def scripted(fake_study, script):
    """A study of the fake whose script is in the file."""

    def make(**changes):
        workload = {"output_tokens": 24, "requests": 2}
        spec = fake_study(**{"workload": workload, **changes})
        script.write_text(spec.engine.env[VARIABLE])
        engine = spec.engine.model_copy(update={"env": {VARIABLE: str(script)}})
        return spec.model_copy(update={"engine": engine})

    return make


@pytest.fixture
def answered(scripted, opened, settings):
    """A study that is done, with these answers; returns them as the store has them."""

    def make(*answers: Recommendation, **changes) -> list[Recommendation]:
        loads = [answer.load.model_dump() for answer in answers]
        spec = scripted(loads=loads, **changes)
        opened.save_study(spec)
        opened.set_context(spec.name, study_context(spec, engine_python(spec, settings)))
        opened.save_recommendations(spec.name, answers)
        opened.set_stage(spec.name, Stage.DONE)
        return opened.recommendations(spec.name)

    return make


@pytest.fixture
def opened(settings: Settings) -> Iterator[Store]:
    upgrade(settings.storage_url, also=make_optuna_tables)
    with Store.open(settings.storage_url, settings.data_dir) as store:
        yield store


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def make_run(fake_study, opened: Store, settings: Settings, events: list[Event]):
    """A study of the fake as its stages see it; what it tells is appended to ``events``."""

    def make(script: dict[str, Any] | None = None, **changes: Any) -> Run:
        spec = fake_study(script, **changes)
        opened.save_study(spec)
        context = study_context(spec, settings.default_engine_python)
        digest = opened.set_context(spec.name, context)
        return Run(
            ledger=Ledger(opened, spec, enumerate_settings(spec), digest),
            context=context,
            data_dir=settings.data_dir,
            python=settings.default_engine_python,
            prompts=load_prompts(spec.workload),
            clock=Clock(opened, spec.name),
            observe=events.append,
        )

    return make
