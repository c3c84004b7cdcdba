"""Response bodies that the tuner's own records don't give."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict

from tuner.records import Stage, StudyRecord
from tuner.spec import Load, Objective


class Health(BaseModel):
    """The store answers and its schema is this version's."""

    status: Literal["ok"] = "ok"


class StudySummary(BaseModel):
    """What a study asks, and where it stands. ``spent_s`` is working time over all sittings."""

    model_config = ConfigDict(frozen=True)

    name: str
    stage: Stage
    target: str
    objective: Objective
    loads: tuple[Load, ...]
    spent_s: float
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, study: StudyRecord) -> Self:
        return cls(
            name=study.name,
            stage=study.stage,
            target=study.spec.target.model,
            objective=study.spec.objective,
            loads=study.spec.loads,
            spent_s=study.spent_s,
            created_at=study.created_at,
            updated_at=study.updated_at,
        )


class Studies(BaseModel):
    """Every study of the store, the one updated last first."""

    studies: list[StudySummary]
