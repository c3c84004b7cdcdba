from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.engine.asking import SPECULATIVE, counters, events, post
from tests.engine.fakes import fake
from tuner.engine.failures import classify
from tuner.engine.fake import fail_start, parse, refuse_bad_config
from tuner.engine.fake_script import VARIABLE, Fault, script_from_environment
from tuner.engine.fake_text import BENIGN_GAP
from tuner.engine.server import Engine, Server
from tuner.errors import EngineDiedError, FailureKind

DRAFT = {"method": "draft_model", "model": "/models/draft", "num_speculative_tokens": 3}
NGRAM = {"method": "ngram", "num_speculative_tokens": 3}


def _engine(folder: Path, config: dict[str, Any] | None = None, **script: Any) -> Engine:
    return Engine(
        fake(config, **script),
        log_path=folder / "log",
        run_dir=folder / "run",
        startup_timeout_s=60,
    )


@pytest.mark.parametrize(
    "argv",
    [
        ["serve", "/models/target", "--enforce-eager", "--max-model-len", "2048"],
        ["/models/target", "--dtype", "bfloat16"],
        ["--model", "/models/target", "--compilation-config", '{"mode": 3}'],
        ["/models/target", "--per-request-spec-decode-metrics", "detailed"],
    ],
)
def test_takes_vllms_command_line(argv: list[str]) -> None:
    arguments = parse([*argv, "--host", "127.0.0.1", "--port", "8123"])
    assert arguments.model == "/models/target"
    assert arguments.port == 8123
    assert arguments.speculative_config is None


@pytest.mark.parametrize(
    ("flags", "kind"),
    [
        (("--speculative-model", "x"), FailureKind.BAD_FLAG),
        (("--num-speculative-tokens", "5"), FailureKind.BAD_FLAG),
        (("--speculative-config", "{oops"), FailureKind.BAD_SPECULATIVE_CONFIG),
    ],
)
def test_refuses_flags_as_vllm_does(
    flags: tuple[str, ...], kind: FailureKind, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        parse(["/models/target", *flags])
    assert raised.value.code == 2
    assert classify(capsys.readouterr().err, 2).kind is kind


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"foo": 1}, "foo: Unexpected keyword argument"),
        ({"num_speculative_tokens": 0}, "num_speculative_tokens: Input should be greater than 0"),
        (
            {"prompt_lookup_min": 5, "prompt_lookup_max": 2},
            "prompt_lookup_min=5 must be <= prompt_lookup_max=2",
        ),
    ],
)
def test_refuses_speculative_configs_as_vllm_does(
    changes: dict[str, Any], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        refuse_bad_config({**NGRAM, **changes})
    failure = classify(capsys.readouterr().out, 1)
    assert raised.value.code == 1
    assert (failure.kind, failure.message) == (FailureKind.BAD_SPECULATIVE_CONFIG, message)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("out_of_memory", FailureKind.OUT_OF_MEMORY),
        ("kv_cache_too_small", FailureKind.KV_CACHE_TOO_SMALL),
        ("bad_config", FailureKind.BAD_SPECULATIVE_CONFIG),
        ("crash", FailureKind.WORKER_CRASHED),
    ],
)
def test_fails_to_start_as_vllm_does(
    kind: str, expected: FailureKind, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        fail_start(Fault.model_validate({"kind": kind}))
    assert raised.value.code == 1
    assert classify(capsys.readouterr().out, 1).kind is expected


@pytest.mark.parametrize(("kind", "status"), [("reject_requests", 400), ("fail_requests", 500)])
def test_request_faults_wait_for_their_turn(kind: str, status: int, tmp_path: Path) -> None:
    with _engine(tmp_path, faults=[{"kind": kind, "after_requests": 2}]) as server:
        body = {"model": server.model, "prompt": "A", "max_tokens": 2}
        answers = [post(server.base_url, "/v1/completions", body) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, status]
        assert answers[-1].json()["error"]["message"]
        server.check()


def test_no_usage_and_counters_that_fall(tmp_path: Path) -> None:
    faults = [{"kind": "no_usage"}, {"kind": "negative_counters"}]
    with _engine(tmp_path, DRAFT, faults=faults) as server:
        body = {
            "model": server.model,
            "prompt": "A",
            "max_tokens": 9,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        before = counters(server.base_url)
        chunks = events(post(server.base_url, "/v1/completions", body))
        assert not any("usage" in chunk for chunk in chunks)
        name = f"{SPECULATIVE}num_accepted_tokens_total"
        assert counters(server.base_url)[name] < min(0, before[name] + 1)


def _tokens(chunks: list[dict[str, Any]]) -> list[int]:
    """How many tokens each chunk carried."""
    return [len(chunk["choices"][0]["token_ids"]) for chunk in chunks if chunk["choices"]]


def test_a_chunk_may_carry_the_tokens_of_several_steps(tmp_path: Path) -> None:
    with _engine(tmp_path, DRAFT, steps_per_chunk=3, acceptance={"draft": 1.0}) as server:
        body = {
            "model": server.model,
            "prompt": "A",
            "max_tokens": 31,
            "stream": True,
            "return_token_ids": True,
        }
        assert _tokens(events(post(server.base_url, "/v1/completions", body))) == [1, 12, 12, 6]


def test_what_an_engine_corrupts_shows_where_another_scores_it(tmp_path: Path) -> None:
    script = {"corruption": {"draft": 0.3}, "divergence": 0.2, "seed": 4}
    with (
        _engine(tmp_path / "off", **script) as off,
        _engine(tmp_path / "on", DRAFT, **script) as speculating,
    ):

        def gaps(server: Server) -> list[float]:
            """By how much each token lies below the best, as the baseline sees it."""
            body = {"model": off.model, "prompt": "Tell a story.", "max_tokens": 200}
            asked = {**body, "return_token_ids": True}
            [answer] = post(server.base_url, "/v1/completions", asked).json()["choices"]
            ids = answer["prompt_token_ids"] + answer["token_ids"]
            scored = {**body, "prompt": ids, "max_tokens": 1, "prompt_logprobs": 1}
            [choice] = post(off.base_url, "/v1/completions", scored).json()["choices"]
            pairs = zip(ids, choice["prompt_logprobs"], strict=True)
            return [
                max(entry["logprob"] for entry in entries.values()) - entries[str(token)]["logprob"]
                for token, entries in list(pairs)[-200:]
            ]

        benign, corrupted = gaps(off), gaps(speculating)
    assert 20 <= sum(gap > 0 for gap in benign) <= 60
    assert max(benign) == pytest.approx(BENIGN_GAP)
    assert 30 <= sum(gap > 1 for gap in corrupted) <= 90


def test_memory_that_runs_out_under_load(tmp_path: Path) -> None:
    with _engine(tmp_path, faults=[{"kind": "out_of_memory", "after_requests": 1}]) as server:
        body = {"model": server.model, "prompt": "A", "max_tokens": 2}
        assert post(server.base_url, "/v1/completions", body).status_code == 200
        with pytest.raises(httpx.TransportError):
            post(server.base_url, "/v1/completions", body)
        server._process.exit_code(wait_s=30)
        with pytest.raises(EngineDiedError) as raised:
            server.check()
    assert raised.value.failure.kind is FailureKind.OUT_OF_MEMORY


def test_a_script_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "script.json"
    path.write_text(json.dumps({"step_ms": 7}))
    monkeypatch.setenv(VARIABLE, str(path))
    assert script_from_environment().step_ms == 7
    monkeypatch.setenv(VARIABLE, '{"step_ms": 8}')
    assert script_from_environment().step_ms == 8
    monkeypatch.delenv(VARIABLE)
    assert script_from_environment().step_ms == 20
