from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.cases.study import PROMPTS, Study, study


@pytest.fixture(scope="session")
def slow_draft(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Study]:
    """A finished study: drafts are nearly always right, and make a step five times as long.

    Its three prompts come again and again, under a seed that is fixed.
    """
    folder = tmp_path_factory.mktemp("slow-draft")
    path = folder / "prompts.jsonl"
    path.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in PROMPTS))
    script = {"acceptance": {"suffix": 0.966}, "step_ms_per_k": 12}
    sampling = {"seed": 0}
    workload = {"path": str(path), "output_tokens": 12, "requests": 2, "sampling": sampling}
    with study(folder, script, workload=workload) as running:
        running.answer()
        yield running
