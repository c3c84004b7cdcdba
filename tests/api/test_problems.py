import pytest
from fastapi import FastAPI

from api.problems import add_problem_handlers
from tuner.errors import (
    Failure,
    FailureKind,
    Mistake,
    NotFoundError,
    PreflightError,
    RoundError,
    SpecError,
    StorageError,
    UsageError,
)


@pytest.fixture
def fail_with(send):
    """What a client sees of a service whose only route raises the error."""

    def fail_with(error):
        app = FastAPI()
        add_problem_handlers(app)

        @app.get("/")
        def fail() -> None:
            raise error

        return send(app, ("GET", "/"))[0]

    return fail_with


@pytest.mark.parametrize(
    ("error", "status", "title", "problem"),
    [
        (NotFoundError("no such study"), 404, "Not Found", "not-found"),
        (StorageError("run `tuner db upgrade`"), 503, "Service Unavailable", "storage"),
        (UsageError("makes no sense"), 400, "Bad Request", "usage"),
        (PreflightError(["no vLLM there"]), 422, "Unprocessable Entity", "preflight"),
        (SpecError("s.yaml", [Mistake("k", "too large")]), 422, "Unprocessable Entity", "spec"),
    ],
)
def test_an_error_of_the_tuner_keeps_its_type_and_its_words(
    fail_with, error, status, title, problem
):
    response = fail_with(error)
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json() == {
        "type": f"/problems/{problem}",
        "title": title,
        "status": status,
        "detail": str(error),
    }


@pytest.mark.parametrize(
    "error",
    [KeyError("secret"), RoundError(Failure(FailureKind.BAD_COUNTERS, "secret"))],
)
def test_an_unforeseen_error_shows_nothing_of_itself(fail_with, error):
    response = fail_with(error)
    assert response.status_code == 500
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["type"] == "/problems/internal"
    assert "secret" not in response.text


def test_an_unknown_path_is_a_problem(get):
    response = get("/v1/nothing")
    assert response.status_code == 404
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json() == {
        "type": "about:blank",
        "title": "Not Found",
        "status": 404,
        "detail": "GET /v1/nothing: Not Found; /openapi.json lists what there is",
    }


def test_a_method_that_a_path_lacks_is_a_problem_and_names_those_it_has(app, send):
    (response,) = send(app, ("POST", "/v1/recommendations"))
    assert response.status_code == 405
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["allow"] == "GET"


def test_an_invalid_request_names_each_invalid_part(get):
    response = get("/v1/studies/s/export/docx?load=none")
    assert response.status_code == 422
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["type"] == "/problems/validation"
    assert [error["where"] for error in problem["errors"]] == [
        "path.export_format",
        "query.load",
    ]
    assert "path.export_format: Input should be 'sh'" in problem["detail"]
