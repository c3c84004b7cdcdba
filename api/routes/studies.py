"""Studies, their answers, and their answers as something to start."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from fastapi.responses import PlainTextResponse
from pydantic import AfterValidator

from api.deps import OpenStore, StudyName
from api.problems import problem_responses
from api.schemas import Studies, StudySummary
from tuner.answers import Recommendation, Recommendations
from tuner.errors import NotFoundError
from tuner.export import FORMATS
from tuner.records import Stage, StudyRecord
from tuner.spec import Load
from tuner.store import Store

router = APIRouter(prefix="/v1/studies", tags=["studies"])

ExportFormat = Annotated[Literal["sh"], Path(description="`sh`: a shell script that starts vLLM.")]
LoadQuery = Annotated[
    str | None,
    AfterValidator(lambda text: text and Load.of(text).key),
    Query(
        description="Which load's answer, for example `concurrency=4`; the study's first if left"
        " out.",
        examples=["concurrency=4", "request_rate=2.5", "request_rate=recorded"],
    ),
]


class ShellScript(PlainTextResponse):
    media_type = "text/x-shellscript"


@router.get("", responses=problem_responses(503))
def list_studies(store: OpenStore) -> Studies:
    """Every study, the one updated last first."""
    return Studies(studies=[StudySummary.of(study) for study in store.studies()])


@router.get("/{name}", responses=problem_responses(404, 422, 503))
def get_study(name: StudyName, store: OpenStore) -> StudyRecord:
    """A study: where it stands, and the whole of its specification."""
    return store.study(name)


@router.get("/{name}/recommendations", responses=problem_responses(404, 422, 503))
def get_study_recommendations(name: StudyName, store: OpenStore) -> Recommendations:
    """A finished study's answers, one per load in the study's order.

    A study that is still going gives a 404 problem that says which stage it is in.
    """
    return Recommendations(recommendations=_answers(store, name))


@router.get(
    "/{name}/export/{export_format}",
    response_class=ShellScript,
    responses=problem_responses(404, 422, 503),
)
def export_study(
    name: StudyName,
    export_format: ExportFormat,
    store: OpenStore,
    load: LoadQuery = None,
) -> ShellScript:
    """A finished study's answer for one load, in a form that can be started as it is."""
    answers = _answers(store, name)
    return ShellScript(FORMATS[export_format](_at_load(answers, name, load)))


def _answers(store: Store, name: str) -> list[Recommendation]:
    stage = store.study(name).stage
    if stage is not Stage.DONE:
        raise NotFoundError(
            f"study '{name}' has no recommendation yet: it is in stage '{stage}'; "
            f"`tuner optimize {name}` goes on with it"
        )
    answers = store.recommendations(name)
    if not answers:
        raise NotFoundError(f"study '{name}' is done, but nothing of it could be recommended")
    return answers


def _at_load(answers: list[Recommendation], name: str, load: str | None) -> Recommendation:
    for answer in answers:
        if load in {None, answer.load.key}:
            return answer
    measured = ", ".join(answer.load.key for answer in answers)
    raise NotFoundError(f"study '{name}' has no answer at {load}; it has {measured}")
