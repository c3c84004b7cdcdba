"""Errors over HTTP: RFC 9457 problem details, made from the tuner's error tree."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from tuner.errors import CannotRunError, NotFoundError, StorageError, TunerError, UsageError

MEDIA_TYPE = "application/problem+json"

STATUSES: dict[type[TunerError], int] = {
    NotFoundError: 404,
    StorageError: 503,
    UsageError: 400,
    CannotRunError: 422,
}
"""The nearest ancestor counts. Any other error is a bug: 500, and its trace goes to the log."""


class InvalidPart(BaseModel):
    """A part of the request that is wrong: where (``query.concurrency``), and why."""

    where: str
    message: str


class Problem(BaseModel):
    """Why a request failed (RFC 9457). ``errors`` lists the invalid parts of a 422."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[InvalidPart] | None = None


def add_problem_handlers(app: FastAPI) -> None:
    """Answer every error of ``app`` with a problem, and never with a stack trace."""
    for error_class in STATUSES:
        app.exception_handler(error_class)(_tuner_error)
    app.exception_handler(RequestValidationError)(_invalid_request)
    app.exception_handler(HTTPException)(_http_error)
    app.exception_handler(Exception)(_unexpected)


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The ``responses`` of a route that can fail with these statuses."""
    return {
        status: {"model": Problem, "description": HTTPStatus(status).phrase} for status in statuses
    }


def declare_media_type(openapi: dict[str, Any]) -> dict[str, Any]:
    """Give the error responses of an OpenAPI document their own media type, in place.

    FastAPI documents every response of a route under the media type of its success.
    """
    for operations in openapi["paths"].values():
        for operation in operations.values():
            for status, response in operation["responses"].items():
                if int(status) >= HTTPStatus.BAD_REQUEST:
                    (content,) = response["content"].values()
                    response["content"] = {MEDIA_TYPE: content}
    return openapi


def _response(
    problem: str,
    status: int,
    detail: str,
    *,
    errors: list[InvalidPart] | None = None,
    headers: dict[str, str] | None = None,
) -> JSONResponse:
    body = Problem(
        type=problem, title=HTTPStatus(status).phrase, status=status, detail=detail, errors=errors
    )
    return JSONResponse(
        body.model_dump(exclude_none=True), status, headers=headers, media_type=MEDIA_TYPE
    )


async def _tuner_error(_request: Request, error: TunerError) -> JSONResponse:
    status = next(STATUSES[ancestor] for ancestor in type(error).__mro__ if ancestor in STATUSES)
    return _response(f"/problems/{error.problem}", status, str(error))


async def _invalid_request(_request: Request, error: RequestValidationError) -> JSONResponse:
    errors = [
        InvalidPart(where=".".join(map(str, each["loc"])), message=each["msg"])
        for each in error.errors()
    ]
    detail = "; ".join(f"{each.where}: {each.message}" for each in errors)
    return _response("/problems/validation", 422, detail, errors=errors)


async def _http_error(request: Request, error: HTTPException) -> JSONResponse:
    """No such route, or no such method on it."""
    return _response(
        "about:blank",
        error.status_code,
        f"{request.method} {request.url.path}: {error.detail}; /openapi.json lists what there is",
        headers=dict(error.headers or {}),
    )


async def _unexpected(_request: Request, _error: Exception) -> JSONResponse:
    return _response(
        "/problems/internal", 500, "The server failed on this request; its log says why."
    )
