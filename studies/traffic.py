"""Checks of the workload that need the target itself: before anything of it is measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from studies.bench import Bench
from studies.events import Warned
from studies.run import Run
from tuner.errors import PreflightError
from tuner.load.prompts import Prompt
from tuner.measure.scoring import RANDOM_TOKENS_BELOW, mean_prompt_logprob
from tuner.measure.traffic import Tokenized, tokenize
from tuner.preflight.models import context_tokens

LOOKED_AT = 8
"""Prompts whose probability is asked for, spread over the workload, and longest ones measured."""


def require_sound_traffic(run: Run, bench: Bench) -> None:
    """Refuses prompts that do not fit the engine's context, or are random tokens.

    Acceptance over random tokens means nothing (vllm#52536). Raises PreflightError, BaselineError.
    """
    with bench.baseline_server() as server:
        longest = tokenize(server.base_url, server.model, _longest(run.prompts))
        if not longest:
            run.observe(Warned("the engine has no /tokenize: prompts are not checked beforehand"))
            return
        spread = tokenize(server.base_url, server.model, _spread(run.prompts))
        logprob = mean_prompt_logprob(
            server.base_url, server.model, [found.token_ids for found in spread]
        )
    problems = list(_too_long(run, longest))
    if logprob is not None and logprob < RANDOM_TOKENS_BELOW:
        problems.append(
            "workload: these prompts look like random tokens: the target gives them a mean"
            f" log-probability of {logprob:.1f} a token, and text has above {RANDOM_TOKENS_BELOW:g}"
            " in any language. Acceptance over them would mean nothing; use prompts of real traffic"
        )
    if problems:
        raise PreflightError(problems)
    for warning in _longer_than_a_draft(run, longest):
        run.observe(Warned(warning))


def _longest(prompts: Sequence[Prompt]) -> list[Prompt]:
    """Those with most characters: tokens follow them closely enough to find the longest."""
    return sorted(prompts, key=_characters, reverse=True)[:LOOKED_AT]


def _spread(prompts: Sequence[Prompt]) -> list[Prompt]:
    return [prompts[n * len(prompts) // LOOKED_AT] for n in range(min(LOOKED_AT, len(prompts)))]


def _characters(prompt: Prompt) -> int:
    messages = prompt.messages or ()
    return len(prompt.prompt or "") + sum(len(m["content"]) for m in messages)


def _tokens(run: Run, found: Tokenized) -> int:
    """Of the prompt and its longest answer."""
    return len(found.token_ids) + (found.prompt.output_tokens or run.spec.workload.output_tokens)


def _too_long(run: Run, longest: Sequence[Tokenized]) -> Iterator[str]:
    for found in longest:
        if _tokens(run, found) > found.context_tokens:
            yield (
                f"workload: prompt {found.prompt.id} and its answer come to {_tokens(run, found)}"
                f" tokens, more than the engine's context of {found.context_tokens}: shorten it,"
                " ask for fewer output_tokens, or raise engine.args.max_model_len"
            )


def _longer_than_a_draft(run: Run, longest: Sequence[Tokenized]) -> Iterator[str]:
    most = max(_tokens(run, found) for found in longest)
    for candidate in run.spec.candidates:
        limit = candidate.passed_through.get("max_model_len") or context_tokens(candidate.model)
        if isinstance(limit, int) and most > limit:
            yield (
                f"{candidate.method} {candidate.model}: its context is {limit} tokens, and requests"
                f" reach {most}: beyond its own context a draft is of no help"
            )
