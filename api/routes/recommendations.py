"""The best configuration of a target, over all studies."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from api.best import best
from api.deps import OpenStore
from api.problems import problem_responses
from tuner.answers import Recommendations
from tuner.errors import NotFoundError
from tuner.store import Store

router = APIRouter(
    prefix="/v1/recommendations",
    tags=["recommendations"],
    responses=problem_responses(404, 422, 503),
)

TargetName = Annotated[
    str, Query(min_length=1, description="The served model, as the studies name it.")
]


@router.get("")
def recommend_for_target(target: TargetName, store: OpenStore) -> Recommendations:
    """The best confirmed configuration of a target over all its studies.

    One entry per objective and load: the one with the best measured value of its objective. Each
    says which study, engine, hardware and workload it comes from, and how sure its speed-up is.
    Where speculation did not pay, `speculative_config` is null.
    """
    answers = store.recommendations_for(target)
    if not answers:
        known = ", ".join(_targets_with_an_answer(store)) or "none yet"
        raise NotFoundError(
            f"no confirmed recommendation for target '{target}'; targets that have one: {known}"
        )
    return Recommendations(recommendations=best(answers))


def _targets_with_an_answer(store: Store) -> list[str]:
    return sorted(
        {
            answer.target
            for study in store.studies()
            for answer in store.recommendations(study.name)
            if answer.confirmed
        }
    )
