"""How wide are the screen's intervals? ``python -m tests.benchmarks.screen.short_answers``.

Over about 6,000 output tokens, in answers of 16 tokens to as many prompts: an interval is one over
requests, and many short answers tell more than few long ones. Only the baseline is started; every
draft and ngram is replayed over what it answers, at temperature 0 and 0.8.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.benchmarks.dated import RESULTS, write
from tests.benchmarks.screen.__main__ import TARGET, WIDEST, conditions, recorded
from tests.benchmarks.screen.answers import (
    BASELINE,
    CONCURRENCY,
    DRAFTS,
    DTYPE,
    TEMPERATURES,
    Kept,
    cases,
)
from tests.engine.conftest import RealVllm, _running
from tests.engine.replaying import model_free_steps, texts
from tuner.engine.drafts import Interpreter, Model, score_drafts
from tuner.load.plan import Deck
from tuner.load.prompts import load_prompts
from tuner.load.rounds import run_round
from tuner.predict.acceptance import screened
from tuner.predict.replay import replay_draft_model
from tuner.records import RequestSample, Setting
from tuner.settings import Settings
from tuner.spec import Load, Sampling, Workload

REQUESTS, OUTPUT_TOKENS = 384, 16
FURTHER_PROMPTS = Path(__file__).with_name("prompts.jsonl")
"""Beside those that are built in, so that no prompt is asked twice."""

UNFINISHED = Path("build/bench/screen-short-answers.json")

Answers = dict[float, list[RequestSample]]
"""By temperature."""


def baseline(vllm: RealVllm, kept: Kept) -> Answers:
    """The baseline's answers, asked for where they are not kept yet."""
    prompts = [*load_prompts(Workload()), *load_prompts(Workload(path=FURTHER_PROMPTS))]
    missing = [each for each in TEMPERATURES if not kept.has(BASELINE, each)]
    if missing:
        with (
            TemporaryDirectory() as folder,
            _running(vllm.command(dtype=DTYPE), Path(folder)) as server,
        ):
            for temperature in missing:
                workload = Workload(
                    requests=REQUESTS,
                    output_tokens=OUTPUT_TOKENS,
                    sampling=Sampling(temperature=temperature),
                )
                plan = Deck(prompts, seed=f"screen/short/{temperature}").plan(
                    Load(concurrency=CONCURRENCY), workload
                )
                if plan.repeated:
                    raise SystemExit(f"{plan.repeated} prompts would be asked twice")
                answered = run_round(server.base_url, server.model, plan, workload, padded=False)
                if failed := [sample.error for sample in answered.samples if sample.error]:
                    raise SystemExit(f"the baseline: {failed[0]}")
                kept.add(BASELINE, temperature, answered.samples)
                print(f"answered at temperature {temperature}", flush=True)
    return {temperature: kept.of(BASELINE, temperature) for temperature in TEMPERATURES}


def widths(vllm: RealVllm, models: Path, answers: Answers) -> Iterator[dict[str, Any]]:
    free = [c for c in cases(models) if c.config["method"] != "draft_model" and not c.remembers]
    for case in free:
        for temperature, samples in answers.items():
            steps = model_free_steps(case.config, samples, vllm.python)
            yield width(Setting.of(case.config), temperature, samples, steps)
    for draft in (str(models / name) for name in DRAFTS):
        agreements = scored(vllm, draft, answers)
        for case in [case for case in cases(models) if case.config.get("model") == draft]:
            k = case.config["num_speculative_tokens"]
            for temperature, samples in answers.items():
                steps = [replay_draft_model(each, k) for each in agreements[temperature]]
                yield width(Setting.of(case.config), temperature, samples, steps)


def scored(vllm: RealVllm, draft: str, answers: Answers) -> dict[float, list[Sequence[bool]]]:
    """Where a draft agrees with each answer, by temperature."""
    every = [sample for samples in answers.values() for sample in samples]
    found = score_drafts(
        Interpreter(vllm.python, {}),
        Model(vllm.model),
        [Model(draft)],
        texts(every),
        print,
        dtype=DTYPE,
        device="cpu",
    )
    score = found.drafts[Model(draft)]
    if isinstance(score, str):
        raise SystemExit(f"{draft}: {score}")
    agreements = iter(score.agreements)
    return {t: list(islice(agreements, len(samples))) for t, samples in answers.items()}


def width(
    setting: Setting, temperature: float, samples: Sequence[RequestSample], steps: Any
) -> dict[str, Any]:
    found = screened(setting, "", recorded(samples), steps, None)
    estimate = found.tokens_per_decode_step
    if estimate is None or estimate.low is None or estimate.high is None:
        raise SystemExit(f"{setting.label}: {found.reason or 'nothing was drafted'}")
    told = {
        "case": setting.label,
        "temperature": temperature,
        "tokens": found.tokens,
        "predicted": round(estimate.value, 4),
        "low": round(estimate.low, 4),
        "high": round(estimate.high, 4),
        "half_width": round((estimate.high - estimate.low) / 2 / estimate.value, 4),
    }
    print(f"{told['case']:48} {temperature}: {estimate.value:.3f} ± {told['half_width']:.1%}")
    return told


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.screen.short_answers")
    parser.add_argument("--keep", action="store_true", help=f"write a dated copy to {RESULTS}")
    keep = parser.parse_args().keep
    settings = Settings()
    models = settings.models_dir / "smollm2-family"
    vllm = RealVllm(settings.default_engine_python, str(models / TARGET))
    asked = conditions(vllm) | {"requests": REQUESTS, "output_tokens": OUTPUT_TOKENS}
    found = list(widths(vllm, models, baseline(vllm, Kept(asked, UNFINISHED))))
    widest = max(each["half_width"] for each in found)
    body = {"conditions": asked, "wanted": {"half_width": WIDEST}, "widest_half_width": widest}
    write("screen-short", body | {"cases": found}, keep=keep)
    print(f"widest: ±{widest:.1%}")
    sys.exit(widest > WIDEST)


if __name__ == "__main__":
    main()
