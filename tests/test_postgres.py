"""The tests' own PostgreSQL starts both ways: installed on the machine, and from PyPI."""

import pytest
from sqlalchemy import create_engine, text

from tests.postgres import find_installed, find_packaged, running


def _one(url):
    engine = create_engine(url)
    with engine.connect() as connection:
        answer = connection.scalar(text("SELECT 1"))
    engine.dispose()
    return answer


def test_installed_one_answers():
    binaries = find_installed()
    if binaries is None:
        pytest.skip("no PostgreSQL is installed on this machine")
    with running(binaries) as url:
        assert _one(url) == 1


def test_packaged_one_answers():
    with running(find_packaged()) as url:
        assert _one(url) == 1
