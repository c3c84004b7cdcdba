"""Is the service fit to answer?"""

from __future__ import annotations

from fastapi import APIRouter

from api.deps import OpenStore
from api.problems import problem_responses
from api.schemas import Health

router = APIRouter(tags=["health"], responses=problem_responses(503))


@router.get("/healthz")
def check_health(_store: OpenStore) -> Health:
    """Whether the store can be reached and its schema is this version's.

    If not, a 503 problem says what to do.
    """
    return Health()
