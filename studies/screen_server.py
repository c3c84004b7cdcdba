"""A draft that only vLLM can load (quantised, say), scored by a server of its own.

That is an engine start like others: it is stored, and counts.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from studies.arm import stored_start
from studies.run import Run
from tuner.engine.command import engine_command
from tuner.engine.drafts import Model, ScoredDraft, Text
from tuner.measure.scoring import agreements
from tuner.records import OFF, Purpose
from tuner.spec import Target


def scored_by_vllm(run: Run, draft: Model, texts: Sequence[Text]) -> ScoredDraft:
    """Teacher-forced through a server that holds the draft as its model. Raises EngineError."""
    engine = run.spec.engine
    if draft.quantization is not None:
        args = {**engine.args, "quantization": draft.quantization}
        engine = engine.model_copy(update={"args": args})
    target = Target(model=draft.name, revision=draft.revision)
    command = engine_command(engine, target, OFF, run.context.engine, run.python)
    began = time.monotonic()
    with stored_start(run, OFF, Purpose.SCREEN, command) as (server, _):
        found = agreements(server.base_url, server.model, texts)
    return ScoredDraft(found, None, time.monotonic() - began)
