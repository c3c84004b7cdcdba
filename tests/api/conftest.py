import asyncio
from datetime import UTC, datetime

import httpx
import pytest

from api.app import create_app
from tuner.answers import (
    Cost,
    EngineName,
    Evidence,
    Measured,
    Recommendation,
    Speedup,
    WorkloadName,
)
from tuner.records import Stage
from tuner.spec import Load, StudySpec

MEASURED = Measured(
    tpot_ms_p50=8.0,
    ttft_ms_p50=20.0,
    ttft_ms_p95=30.0,
    e2e_ms_p50=700.0,
    e2e_ms_p95=900.0,
    output_throughput_tok_s=25.0,
    rounds=4,
    requests=64,
)


@pytest.fixture
def storage_url(request, tmp_path):
    """SQLite unless a test asks for more: the store's own tests try everything on both."""
    if getattr(request, "param", "sqlite") == "postgres":
        return request.getfixturevalue("postgres_database_url")
    return f"sqlite:///{tmp_path / 'tuner.db'}"


@pytest.fixture
def send():
    """Sends requests to an application at once, inside this process; returns their responses."""

    def send(app, *requests):
        async def gather():
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://api") as client:
                return await asyncio.gather(*(client.request(*request) for request in requests))

        return asyncio.run(gather())

    return send


@pytest.fixture
def app(store, tmp_path):
    return create_app(store.url, tmp_path)


@pytest.fixture
def get(app, send):
    return lambda path: send(app, ("GET", path))[0]


@pytest.fixture
def add_study(store):
    """Stores a study at a stage, with its answers."""

    def add_study(name, *answers, stage=Stage.DONE, **fields):
        spec = {
            "name": name,
            "target": {"model": "org/target"},
            "candidates": [{"method": "ngram", "k": [1, 3], "prompt_lookup_max": 4}],
            "loads": [{"concurrency": 4}, {"concurrency": 1}],
        }
        store.save_study(StudySpec.model_validate(spec | fields))
        store.save_recommendations(name, answers)
        store.set_stage(name, stage)

    return add_study


@pytest.fixture
def answer():
    return _answer


def _answer(
    *,
    study="s",
    target="org/target",
    objective="tpot_p50",
    concurrency=1,
    k=3,
    tpot=8.0,
    e2e=900.0,
    throughput=25.0,
    usd_per_million=None,
    measured_at=datetime(2026, 1, 1, tzinfo=UTC),
    confirmed=True,
):
    config = k and {"method": "ngram", "num_speculative_tokens": k, "prompt_lookup_max": 4}
    figures = {"tpot_ms_p50": tpot, "e2e_ms_p95": e2e, "output_throughput_tok_s": throughput}
    return Recommendation(
        study=study,
        target=target,
        objective=objective,
        load=Load(concurrency=concurrency),
        speculative_config=config,
        engine_args={"max_model_len": 2048},
        launch_command=["vllm", "serve", target, "--max-num-seqs", str(concurrency)],
        environment={"VLLM_CPU_KVCACHE_SPACE": "1"},
        speedup=Speedup(value=1.3, low=1.2, high=1.4, confidence=0.95),
        measured=MEASURED.model_copy(update=figures),
        baseline=MEASURED,
        acceptance_length=1.9,
        acceptance_at_position=[0.6, 0.2, 0.1],
        tokens_per_decode_step=1.5,
        kv_cache_tokens=4096,
        cost=usd_per_million
        and Cost(
            usd_per_hour=1.0,
            usd_per_million_output_tokens=usd_per_million,
            baseline_usd_per_million_output_tokens=4.0,
            saving_usd_per_million_output_tokens=4.0 - usd_per_million,
            saving_share=1 - usd_per_million / 4.0,
        ),
        confirmed=confirmed,
        considered=[],
        evidence=Evidence(engine_starts=["start"], measurements=["measurement"]),
        engine=EngineName(name="vllm", version="0.32.0", runner="V1"),
        hardware="CPU: 2 x some processor",
        workload=WorkloadName(name="builtin", sha256="0" * 64),
        measured_at=measured_at,
        warnings=["measured on a CPU: says nothing about a GPU"],
    )
