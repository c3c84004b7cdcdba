from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.fakes import fake
from tuner.engine.server import Engine, log_tail


def test_the_tail_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"".join(b"line %d\n" % i for i in range(100)) + b"\xff broken")
    assert log_tail(log, lines=3) == "line 98\nline 99\n\ufffd broken"
    assert len(log_tail(log).splitlines()) == 40


def test_the_tail_of_a_log_that_is_not_there(tmp_path: Path) -> None:
    assert log_tail(tmp_path / "log") == ""


def test_two_engines_at_once_are_two_servers(tmp_path: Path) -> None:
    engines = [
        Engine(
            fake(flags=("--served-model-name", name)),
            log_path=tmp_path / "logs" / name,
            run_dir=tmp_path / "run",
            startup_timeout_s=60,
        )
        for name in ("one", "two")
    ]
    with engines[0] as one, engines[1] as two:
        assert (one.model, two.model) == ("one", "two")
        assert one.base_url != two.base_url
        assert len(list((tmp_path / "run").iterdir())) == 2
    assert list((tmp_path / "run").iterdir()) == []


def test_a_proxy_in_the_environment_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    engine = Engine(
        fake(), log_path=tmp_path / "log", run_dir=tmp_path / "run", startup_timeout_s=60
    )
    with engine as server:
        server.check()
