"""`tuner check --live-k`, over the fake server."""

import json
import sys
from dataclasses import replace
from io import StringIO

import pytest
import yaml
from rich.console import Console

from studies.live_k import TRUST, Trust
from tuner import tables
from tuner.cli import main
from tuner.measure.agreement import Agreement
from tuner.records import Estimate, Purpose, Stage
from tuner.settings import Settings
from tuner.store import Store

STEADY = {"step_ms": 8, "step_ms_per_k": 6, "acceptance": {"draft": 0.6}}


@pytest.fixture
def check(tmp_path, monkeypatch, capsys):
    """Runs the command on a study: exit code, stdout."""

    def run(spec, *arguments):
        path = tmp_path / "study.yaml"
        path.write_text(yaml.safe_dump(spec.model_dump(mode="json", exclude_none=True)))
        monkeypatch.setenv("COLUMNS", "200")
        monkeypatch.setattr(sys, "argv", ["tuner", "check", str(path), "--live-k", *arguments])
        code = 0
        try:
            main()
        except SystemExit as error:
            code = int(error.code or 0)
        return code, capsys.readouterr().out

    return run


def test_what_is_found_is_shown_and_kept_and_the_study_stays_as_it_is(check, fake_study):
    """Whether step times agree is left to the machine, which may be busy."""
    spec = fake_study(
        STEADY,
        candidates=[
            {"method": "draft_model", "model": "owner/draft", "k": [1, 4]},
            {"method": "suffix", "k": [2, 4]},
        ],
        workload={"output_tokens": 16, "requests": 2},
    )
    code, out = check(spec, "--output", "json")
    assert code == 0
    [trust] = json.loads(out)["live_k"]
    assert (trust["method"], trust["version"], trust["runner"]) == ("draft_model", "0.32.0", "V1")
    assert [at["k"] for at in trust["at"]] == [1, 4]
    settings = Settings()
    with Store.open(settings.storage_url, settings.data_dir) as store:
        record = store.study(spec.name)
        assert (record.stage, record.context) == (Stage.PREFLIGHT, None)
        assert [event[1:] for event in store.events(spec.name)] == [(TRUST, trust)]
        assert {start.purpose for start in store.engine_starts(spec.name)} == {Purpose.LIVE_K}


def test_nothing_to_check_is_said(check, fake_study):
    code, out = check(fake_study(candidates=[{"method": "suffix", "k": [2, 4]}]))
    assert code == 0
    assert "no candidate has two values of k" in out


def test_what_cannot_run_starts_nothing(check, fake_study, tmp_path):
    for name, size in (("target", 49152), ("draft", 32000)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps({"vocab_size": size}))
    draft = {"method": "draft_model", "model": str(tmp_path / "draft"), "k": [1, 4]}
    spec = fake_study(target={"model": str(tmp_path / "target")}, candidates=[draft])
    code, out = check(spec)
    assert code == 3
    assert "32000" in out
    assert not (Settings().data_dir / "logs").exists()


def test_the_table_says_how_far_step_times_and_acceptance_lie_apart():
    steps = ((22.0, 20.0),) * 5
    at = Agreement(1, steps, Estimate(0.0953, 0.0936, 0.0971), Estimate(1.71), Estimate(1.73))
    reason = "step times at k=1 differ or are too noisy to tell"
    trust = Trust("ngram", "V1", "cpu", "0.32.0", "none", False, reason, (at,), ())
    earned = replace(trust, method="draft_model", trusted=True, reason="")
    text = StringIO()
    Console(file=text, width=120).print(tables.live_k([trust, earned]))
    for part in (
        "1.10x (1.10x to 1.10x)",
        "1.73 → 1.71",
        f"ngram: not trusted: {reason} (cpu, vLLM 0.32.0, runner V1)",
        "draft_model: trusted (cpu, vLLM 0.32.0, runner V1)",
    ):
        assert part in text.getvalue()
