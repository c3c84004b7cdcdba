import sqlite3

import pytest

from api.app import create_app
from tuner.store import upgrade


@pytest.fixture
def check_health(send, tmp_path):
    return lambda url: send(create_app(url, tmp_path), ("GET", "/healthz"))[0]


def test_a_store_of_this_version_is_healthy(get):
    response = get("/healthz")
    assert response.status_code == 200
    assert response.json() == {"status": "ok"}


def test_without_a_store_it_says_how_to_make_one_and_makes_none(tmp_path, check_health):
    response = check_health(f"sqlite:///{tmp_path / 'none.db'}")
    assert response.status_code == 503
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["type"] == "/problems/storage"
    assert "tuner db upgrade" in response.json()["detail"]
    assert not (tmp_path / "none.db").exists()


def test_a_database_without_the_schema_is_not_healthy(tmp_path, check_health):
    sqlite3.connect(tmp_path / "empty.db").close()
    response = check_health(f"sqlite:///{tmp_path / 'empty.db'}")
    assert response.status_code == 503
    assert "tuner db upgrade" in response.json()["detail"]


def test_a_database_that_is_not_there_is_not_healthy_and_its_password_stays_secret(check_health):
    response = check_health("postgresql://someone:hunter2@127.0.0.1:1/tuner")
    assert response.status_code == 503
    assert response.json()["type"] == "/problems/storage"
    assert "hunter2" not in response.text


def test_a_store_made_after_the_service_needs_no_restart(tmp_path, send):
    url = f"sqlite:///{tmp_path / 'later.db'}"
    app = create_app(url, tmp_path)
    (before,) = send(app, ("GET", "/healthz"))
    upgrade(url)
    (after,) = send(app, ("GET", "/healthz"))
    assert (before.status_code, after.status_code) == (503, 200)
