import json
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.answers import (
    Considered,
    EngineName,
    Evidence,
    Measured,
    Recommendation,
    Speedup,
    WorkloadName,
)
from tuner.errors import UsageError
from tuner.export import export
from tuner.export.sh import shell_script
from tuner.spec import Load

CONFIG = {"method": "ngram", "num_speculative_tokens": 4}
FIGURES = Measured(
    tpot_ms_p50=10.0,
    ttft_ms_p50=10.0,
    ttft_ms_p95=10.0,
    e2e_ms_p50=10.0,
    e2e_ms_p95=10.0,
    output_throughput_tok_s=100.0,
    rounds=3,
    requests=12,
)
SPEEDUP = Speedup(value=1.234, low=1.101, high=1.349, confidence=0.95)
ANSWER = Recommendation(
    study="a-study",
    target="org/model",
    objective="tpot_p50",
    load=Load(concurrency=4),
    speculative_config=CONFIG,
    engine_args={},
    launch_command=["vllm", "serve", "org/model", "--speculative-config", json.dumps(CONFIG)],
    environment={},
    speedup=SPEEDUP,
    measured=FIGURES,
    baseline=FIGURES,
    acceptance_length=2.0,
    acceptance_at_position=[0.5],
    tokens_per_decode_step=2.0,
    kv_cache_tokens=None,
    cost=None,
    confirmed=True,
    considered=[],
    evidence=Evidence(engine_starts=[], measurements=[]),
    engine=EngineName(name="vllm", version="0.32.0", runner="V1"),
    hardware="CPU: 2 x A Processor",
    workload=WorkloadName(name="builtin", sha256="0" * 64),
    measured_at=datetime(2026, 1, 31, tzinfo=UTC),
    warnings=[],
)
OFF = ANSWER.model_copy(
    update={
        "speculative_config": None,
        "launch_command": ["vllm", "serve", "org/model"],
        "speedup": Speedup(value=1, low=1, high=1, confidence=0.95),
        "considered": [Considered(speculative_config=CONFIG, speedup=SPEEDUP)],
    }
)

# The C0 controls but NUL, quotes and the shell's own characters, and the rest of Unicode.
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
TRICKY = st.text("'\"\\$`!*?~#&|;<>(){}[] \t\n=%-", max_size=12)
JSON = st.dictionaries(TEXT, TEXT | st.integers() | st.none(), max_size=2).map(json.dumps)
ARGUMENTS = st.lists(TEXT | TRICKY | JSON, max_size=6)
ENVIRONMENTS = st.dictionaries(
    st.from_regex(r"X_[A-Z0-9_]{0,6}", fullmatch=True), TEXT | TRICKY | JSON, max_size=3
)


@pytest.fixture(scope="module")
def stub(tmp_path_factory):
    """A program that prints its arguments and environment as JSON."""
    path = tmp_path_factory.mktemp("a folder's name") / "vllm stub"
    path.write_text(
        f"#!{sys.executable} -IS\n"
        "import json, os, sys\n"
        "json.dump([sys.argv[1:], dict(os.environ)], sys.stdout)\n"
    )
    path.chmod(0o755)
    return path


def run(script, *arguments, **environment):
    """What the script's program was started with."""
    result = subprocess.run(
        ["/bin/sh", "-s", "--", *arguments],
        input=script.encode(),
        env={"PYTHONUTF8": "1"} | environment,
        capture_output=True,
        check=True,
    )
    assert result.stderr == b""
    argv, env = json.loads(result.stdout)
    return argv, env


@settings(max_examples=60, deadline=None)
@given(arguments=ARGUMENTS, environment=ENVIRONMENTS, name=TEXT | TRICKY)
def test_any_argument_and_variable_survives_the_shell(stub, arguments, environment, name):
    answer = ANSWER.model_copy(
        update={
            "launch_command": [str(stub), *arguments],
            "environment": environment,
            "target": name,
            "warnings": [name],
        }
    )
    argv, env = run(shell_script(answer))
    assert argv == [*arguments, "--host", "127.0.0.1", "--port", "8000"]
    assert {key: value for key, value in env.items() if key in environment} == environment


def test_host_port_and_further_arguments_come_from_outside(stub):
    answer = ANSWER.model_copy(update={"launch_command": [str(stub)], "environment": {"PORT": "1"}})
    argv, env = run(shell_script(answer), "--api-key", "a b", HOST="0.0.0.0", PORT="9000")  # noqa: S104
    assert argv == ["--host", "0.0.0.0", "--port", "9000", "--api-key", "a b"]  # noqa: S104
    assert env["PORT"] == "1"


def test_the_header_says_what_was_measured():
    header = shell_script(ANSWER).partition("set -eu")[0]
    for fact in (
        "speculative decoding by ngram k=4, as recommended for concurrency 4",
        "Study: a-study, objective tpot_p50",
        "Target: org/model",
        "measured against the baseline: 1.23 times (95% interval 1.10 to 1.35)",
        "Hardware: CPU: 2 x A Processor",
        "Engine: vllm 0.32.0",
        "Runner: V1",
        "Measured: 2026-01-31",
        "this says nothing about a GPU",
    ):
        assert fact in header


def test_a_gpus_evidence_carries_no_word_about_cpus():
    answer = ANSWER.model_copy(update={"hardware": "1 x NVIDIA H200 (driver 580)"})
    assert "CPU" not in shell_script(answer)


def test_what_was_not_confirmed_says_predicted():
    script = shell_script(ANSWER.model_copy(update={"confirmed": False}))
    assert "Speed-up, predicted, not confirmed" in script
    assert "measured against" not in script


def test_off_starts_without_a_speculative_config_and_says_why():
    script = shell_script(OFF)
    assert "--speculative-config" not in script
    assert "speculative decoding off" in script
    assert "nothing measured was better" in script
    assert "Considered: ngram k=4, 1.23 times (95% interval 1.10 to 1.35)" in script


def test_an_unknown_form_is_refused_with_the_known_ones():
    assert export(ANSWER, "sh") == shell_script(ANSWER)
    with pytest.raises(UsageError, match="no export format 'pdf'; there is sh"):
        export(ANSWER, "pdf")
