"""Replays of an engine's own answers, beside what it says of its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.engine.drafts import Interpreter, Model, Text, replay_suffix, score_drafts
from tuner.engine.server import Server
from tuner.load.plan import RoundPlan
from tuner.load.rounds import run_round
from tuner.predict.ngram import Ngram, lookup_range
from tuner.predict.replay import Step, replay_draft_model
from tuner.records import RequestSample
from tuner.spec import Workload


@dataclass(frozen=True)
class Agreement:
    """Verify steps and accepted tokens, replayed and as the engine says, over some answers."""

    steps: int
    engine_steps: int
    accepted: int
    engine_accepted: int

    @property
    def worst(self) -> float:
        """The larger of both differences, as a share."""
        return max(
            abs(self.steps - self.engine_steps) / self.engine_steps,
            abs(self.accepted - self.engine_accepted) / max(self.engine_accepted, 1),
        )


def answered(server: Server, plan: RoundPlan, workload: Workload) -> tuple[RequestSample, ...]:
    """A plan's answers and nothing else: suffix remembers all that an engine says."""
    samples = run_round(server.base_url, server.model, plan, workload, padded=False).samples
    assert all(s.error is None and s.accepted_per_step is not None for s in samples)
    return samples


def texts(samples: Sequence[RequestSample]) -> list[Text]:
    return [(sample.prompt_token_ids, sample.token_ids) for sample in samples]


def replayed(
    config: Mapping[str, Any],
    samples: Sequence[RequestSample],
    python: Path,
    *,
    target: str,
    dtype: str,
    in_flight: int = 1,
) -> list[list[Step]]:
    """The decode steps of each answer; ngram as runner V1 drafts."""
    if config["method"] != "draft_model":
        return model_free_steps(config, samples, python, in_flight=in_flight)
    draft = Model(config["model"])
    scored = score_drafts(
        Interpreter(python, {}),
        Model(target),
        [draft],
        texts(samples),
        print,
        dtype=dtype,
        device="cpu",
    )
    score = scored.drafts[draft]
    assert not isinstance(score, str), score
    return [replay_draft_model(a, config["num_speculative_tokens"]) for a in score.agreements]


def model_free_steps(
    config: Mapping[str, Any], samples: Sequence[RequestSample], python: Path, *, in_flight: int = 1
) -> list[list[Step]]:
    if config["method"] == "ngram":
        k, (least, most) = config["num_speculative_tokens"], lookup_range(config)
        return [Ngram(*text, "V1").steps(least, most, k) for text in texts(samples)]
    interpreter = Interpreter(python, {})
    [found] = replay_suffix(interpreter, [config], texts(samples), in_flight=in_flight)
    return [[Step(*step) for step in steps] for steps in found]


def agreement(samples: Sequence[RequestSample], steps: Sequence[Sequence[Step]]) -> Agreement:
    """A step that the answer's end cut is left out on both sides, where it verified a draft."""
    ours: list[int] = []
    theirs: list[int] = []
    for sample, of_answer in zip(samples, steps, strict=True):
        accepted = list(sample.accepted_per_step or ())
        cut = bool(of_answer) and of_answer[-1].drafted > 0
        ours += [step.accepted for step in of_answer[: -1 if cut else None] if step.drafted]
        theirs += accepted[: -1 if cut else None]
    return Agreement(len(ours), len(theirs), sum(ours), sum(theirs))
