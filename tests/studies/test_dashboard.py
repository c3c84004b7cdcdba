"""optuna-dashboard opens our database as it is."""

from pathlib import Path

import httpx
from optuna_dashboard import wsgi

from studies.ledger import Outcome
from studies.projection import FAILURE, Projection
from tests.studies.optuna_studies import storage
from tuner.errors import Failure, FailureKind
from tuner.records import OFF, Setting
from tuner.spec import Load
from tuner.store import upgrade

SUFFIX = Setting.of({"method": "suffix", "num_speculative_tokens": 8})
NGRAM = Setting.of({"method": "ngram", "num_speculative_tokens": 4})


def test_the_dashboard_shows_settings_and_failures(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'tuner.db'}"
    upgrade(url)
    load = Load(concurrency=1)
    known = {
        OFF: Outcome(OFF, {load: 0.0}),
        SUFFIX: Outcome(SUFFIX, {load: 0.4}),
        NGRAM: Outcome(NGRAM, {}, Failure(FailureKind.OUT_OF_MEMORY, "no room")),
    }
    with Projection.open(url, "chat", (OFF, SUFFIX, NGRAM), known):
        pass
    with storage(url) as opened:
        transport = httpx.WSGITransport(app=wsgi(opened))
        with httpx.Client(transport=transport, base_url="http://dashboard") as client:
            [study] = client.get("/api/studies").json()["study_summaries"]
            assert study["study_name"].startswith("chat:")
            page = client.get(f"/api/studies/{study['study_id']}").json()
    trials = page["trials"]
    assert [trial["state"] for trial in trials] == ["Complete", "Complete", "Pruned"]
    shown = {a["key"]: a["value"] for a in trials[2]["user_attrs"]}
    assert "out of memory" in shown[FAILURE]
