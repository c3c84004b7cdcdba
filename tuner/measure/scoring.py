"""Teacher-forcing: what a running engine thinks of text that is given to it, token by token."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from statistics import fmean, median
from typing import Any

import aiohttp

from tuner.errors import Failure, FailureKind, RoundError
from tuner.records import RequestSample, ScoredText

MARGIN = 0.5
"""Nats below the likeliest token within which another is still the target's own.

bfloat16 keeps 8 bits of a logit: logits between 16 and 32 lie 0.125 apart, and a batch of another
shape moves one by a step or two. SmolLM2-135M in bfloat16 scored what it had answered itself (vLLM
0.32, concurrency 1, 4 and 16), with a draft, with ngram, and as its own draft in float32: 37,784
tokens, of which up to 0.7 % in one engine were not the likeliest, up to 0.05 % lay more than 0.25
below it and none more than 0.5. A wrong token lies about 10 below.
"""

SCORED_TOKENS = 10_240
"""Tokens of one arm that are enough; with the default workload, five rounds.

On a floor of 20 % off target in both arms, an engine that corrupts another 3 % of its tokens is
told from a healthy one in 93 % with 8,192 tokens an arm and in 97 % with 10,240 (answers of 128
tokens, the test of ``sameness``). On a floor of 1 % a tenth of that is enough.
"""

LEAST_ANSWERS = 16
"""Scored however long they are: the request is the unit of the test."""

RANDOM_TOKENS_BELOW = -8.0
"""Nats. Prompts whose mean log-probability lies below are random tokens, not text.

Over tokens drawn evenly from a vocabulary V, any model's mean is at most -ln V (Jensen): -10.4 with
32,000 tokens, -11.9 with 152,000. SmolLM2-135M gives random ids -13.6, the same as text -12.9, that
text in a chat template -11.5 (-8.6 for 17 tokens in a template of 30). The built-in prompts lie
between -1.5 and -5.2, Chinese, Japanese, Korean, Hindi, Arabic, Russian and German between -2.0 and
-4.5, code, logs, UUIDs and hexadecimal between -1.7 and -3.4, base64 and random printable
characters at -5.5; even English words in random order reach -7.1. Larger models find text likelier.
"""

IN_FLIGHT = 4
CONNECT_S = 30.0
SILENT_S = 1800.0
"""How long an answer may take: nothing is streamed, and a long prefill is legitimate."""

Answer = tuple[str, int, RequestSample]
"""An answer with the measurement it belongs to and its number there."""


def score_answers(base_url: str, model: str, answers: Sequence[Answer]) -> list[ScoredText]:
    """Answers of one arm under the engine at ``base_url``; those without token ids are left out.

    About SCORED_TOKENS at most, as whole answers spread evenly over the given ones. A token is off
    target where the likeliest lies more than MARGIN above it. What ends an answer (EOS) is a token
    like others: where to end is the target's word too. Raises RoundError with the engine's own text
    when it does not answer as asked.
    """
    usable = [each for each in answers if each[2].prompt_token_ids and each[2].token_ids]
    chosen = _spread(usable)
    texts = [(*sample.prompt_token_ids, *sample.token_ids) for _, _, sample in chosen]
    places = asyncio.run(_score(base_url, model, texts))
    scored = []
    for (measurement, number, sample), found in zip(chosen, places, strict=True):
        # The first token of the text is not scored, so its answer starts one place earlier.
        if answer := found[len(sample.prompt_token_ids) - 1 :]:
            off_target = sum(best - logprob > MARGIN for logprob, best in answer)
            mean = fmean(logprob for logprob, _ in answer)
            scored.append(ScoredText(measurement, number, len(answer), off_target, mean))
    return scored


def agreements(
    base_url: str, model: str, texts: Sequence[tuple[Sequence[int], Sequence[int]]]
) -> list[list[bool]]:
    """Whether each token of each answer is what the engine finds likeliest in its place.

    ``texts`` are token ids of prompts and of their answers. Beyond the engine's context nothing
    agrees. Raises as score_answers.
    """
    places = asyncio.run(_score(base_url, model, [(*prompt, *output) for prompt, output in texts]))
    found = []
    for (prompt, output), scored in zip(texts, places, strict=True):
        likeliest = [logprob >= best for logprob, best in scored[len(prompt) - 1 :]]
        found.append(likeliest + [False] * (len(output) - len(likeliest)))
    return found


def mean_prompt_logprob(
    base_url: str, model: str, prompts: Sequence[tuple[int, ...]]
) -> float | None:
    """The median over prompts of the mean log-probability (nats) of a prompt's own tokens.

    None where no prompt has two tokens: the first has no probability. Raises as score_answers.
    """
    texts = [ids for ids in prompts if len(ids) > 1]
    if not texts:
        return None
    places = asyncio.run(_score(base_url, model, texts))
    return median(fmean(logprob for logprob, _ in found) for found in places if found)


def _spread(answers: Sequence[Answer]) -> list[Answer]:
    tokens = sum(len(sample.token_ids) for _, _, sample in answers)
    wanted = max(LEAST_ANSWERS, int(len(answers) * SCORED_TOKENS / max(tokens, 1)))
    if wanted >= len(answers):
        return list(answers)
    return [answers[number * len(answers) // wanted] for number in range(wanted)]


Place = tuple[float, float]
"""Log-probabilities of a token and of the likeliest one in its place."""


async def _score(base_url: str, model: str, texts: Sequence[tuple[int, ...]]) -> list[list[Place]]:
    """For each text its tokens from the second on, as far as the engine's context reaches."""
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=SILENT_S)
    connector = aiohttp.TCPConnector(limit=IN_FLIGHT, force_close=True)
    try:
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            longest = await _longest_prompt(session, base_url)
            asked = (_score_one(session, base_url, model, ids[:longest]) for ids in texts)
            return await asyncio.gather(*asked)
    except (aiohttp.ClientError, OSError) as error:
        raise _failed(f"the connection failed: {type(error).__name__}: {error}") from error


async def _longest_prompt(session: aiohttp.ClientSession, base_url: str) -> int | None:
    """How many ids it takes as a prompt: one less than its context, for the one it must answer."""
    async with session.get(f"{base_url}/v1/models") as response:
        context = (await _json(response))["data"][0].get("max_model_len")
    return None if context is None else int(context) - 1


async def _score_one(
    session: aiohttp.ClientSession, base_url: str, model: str, ids: tuple[int, ...]
) -> list[Place]:
    body = {
        "model": model,
        "prompt": ids,
        "max_tokens": 1,
        "temperature": 0,
        "prompt_logprobs": 1,
    }
    async with session.post(f"{base_url}/v1/completions", json=body) as response:
        answered = await _json(response)
    try:
        places = answered["choices"][0]["prompt_logprobs"][1:]
        return [_place(place, token) for place, token in zip(places, ids[1:], strict=True)]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        message = "the engine gave no prompt_logprobs for the tokens that were sent"
        raise _failed(message) from error


def _place(place: dict[str, dict[str, float]], token: int) -> Place:
    """One place of ``prompt_logprobs``: by id, the token that stands there and the likeliest."""
    logprobs = {int(key): float(entry["logprob"]) for key, entry in place.items()}
    return logprobs[token], max(logprobs.values())


async def _json(response: aiohttp.ClientResponse) -> Any:
    text = await response.text(errors="replace")
    if not response.ok:
        overloaded = response.status in {408, 429}
        refused = response.status < 500 and not overloaded  # noqa: PLR2004
        kind = FailureKind.REQUEST_REJECTED if refused else FailureKind.REQUESTS_FAILED
        raise _failed(f"{response.status}: {text.strip() or response.reason}", kind)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise _failed(f"no JSON: {text[:200]}") from error


def _failed(message: str, kind: FailureKind = FailureKind.REQUESTS_FAILED) -> RoundError:
    return RoundError(Failure(kind, f"scoring text with the baseline engine failed: {message}"))
