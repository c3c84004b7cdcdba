"""The REST API as an ASGI application."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute

from api.problems import add_problem_handlers, declare_media_type
from api.routes import health, recommendations, studies

DESCRIPTION = """\
Whether speculative decoding pays for a vLLM server, with which method and draft, at which
`num_speculative_tokens`, as measured. Errors are problem details (RFC 9457).
"""

TAGS = [
    {"name": "recommendations", "description": "The best configuration of a target."},
    {"name": "studies", "description": "What was asked, where it stands, and its answers."},
    {"name": "health", "description": "Whether the service can answer."},
]


def create_app(storage_url: str, data_dir: Path) -> FastAPI:
    """The service over one store, which need not be reachable yet.

    ``data_dir`` is where the store's samples lie.
    """
    app = _DocumentedAPI(
        title="draftpick",
        description=DESCRIPTION,
        version="v1",
        openapi_tags=TAGS,
        generate_unique_id_function=_operation_id,
    )
    app.state.storage_url = storage_url
    app.state.data_dir = data_dir
    add_problem_handlers(app)
    for module in (recommendations, studies, health):
        app.include_router(module.router)
    return app


class _DocumentedAPI(FastAPI):
    def openapi(self) -> dict[str, Any]:
        return declare_media_type(super().openapi())


def _operation_id(route: APIRoute) -> str:
    return route.name
