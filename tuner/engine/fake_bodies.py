"""The JSON that the fake takes and gives, in the shapes of vLLM 0.32."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import islice, pairwise
from typing import Any, Literal, NoReturn

from aiohttp import web

from tuner.engine.fake_decode import Running
from tuner.engine.fake_text import (
    BENIGN_GAP,
    OWN,
    VOCABULARY,
    FakeText,
    encode,
    word,
)

DEFAULT_MAX_TOKENS = 16
"""Of completions; a chat goes on to the end of the context."""

Body = dict[str, Any]
Kind = Literal["chat", "completions"]


def refuse(
    message: str,
    parameter: str | None = None,
    *,
    error: type[web.HTTPError] = web.HTTPBadRequest,
    kind: str = "BadRequestError",
) -> NoReturn:
    """Answer with an error as vLLM words it."""
    said = f"{message} (parameter={parameter})" if parameter else message
    told = {"message": said, "type": kind, "param": parameter, "code": error.status_code}
    raise error(text=json.dumps({"error": told}), content_type="application/json")


def prompt_ids(body: Body) -> list[int]:
    """The prompt's tokens: those of the messages or of the text, or the ids it was given as."""
    if "messages" in body:
        return encode("\n".join(f"{m['role']}: {m['content']}" for m in body["messages"]))
    prompt = body.get("prompt")
    if prompt is None or prompt == "":
        refuse("Either prompt or prompt_embeds must be provided and non-empty.", "prompt")
    if isinstance(prompt, str):
        return encode(prompt)
    if not prompt:
        refuse("You must pass at least one prompt")
    if max(prompt) >= VOCABULARY:
        refuse(f"Token id {max(prompt)} is out of vocabulary")
    return list(prompt)


def only_echoes(body: Body) -> bool:
    """Whether the prompt is wanted and no answer: vLLM makes a token then, and hides its text."""
    return bool(body.get("echo")) and body.get("max_tokens") == 0


def output_limit(body: Body, prompt_tokens: int, max_model_len: int) -> int:
    """How many tokens the answer may have. One too long for what is left of the context is cut,
    not refused.
    """
    names = ("max_completion_tokens", "max_tokens") if "messages" in body else ("max_tokens",)
    default = max_model_len if "messages" in body else DEFAULT_MAX_TOKENS
    asked = next((body[name] for name in names if body.get(name) is not None), default)
    if asked > max_model_len:
        refuse(
            f"max_tokens={asked} cannot be greater than max_model_len={max_model_len}."
            " Please request fewer output tokens.",
            "max_tokens",
        )
    if prompt_tokens > max_model_len:
        refuse(
            f"This model's maximum context length is {max_model_len} tokens. However, your prompt"
            f" contains {prompt_tokens} input tokens, which exceeds this limit even without any"
            " output tokens. Please reduce the length of the input prompt.",
            "input_tokens",
        )
    limit: int = min(1 if only_echoes(body) else asked, max_model_len - prompt_tokens)
    if limit < 1:
        refuse(f"max_tokens must be at least 1, got {limit}.", "max_tokens")
    return limit


def prompt_logprobs(text: FakeText, ids: Sequence[int], top: int) -> list[Body | None]:
    """For each token but the first its own log-probability, and those of the ``top`` likeliest, of
    which there are two. All other tokens have rank 3.
    """
    told: list[Body | None] = [None]
    scored = zip(ids, text.score(ids), strict=True)
    for (before, last), (token, (logprob, best)) in zip(
        pairwise((0, *ids[:-1])), islice(scored, 1, None), strict=True
    ):
        first = text.next(before, last)
        likeliest = {first: best, (first + 1) % OWN: best - BENIGN_GAP}
        ranks = {likely: rank for rank, likely in enumerate(likeliest, start=1)}
        entries = {token: logprob} | dict(islice(likeliest.items(), top))
        told.append(
            {
                str(id_): {"logprob": value, "rank": ranks.get(id_, 3), "decoded_token": word(id_)}
                for id_, value in entries.items()
            }
        )
    return told


def choice(kind: Kind, body: Body, content: str, tokens: Sequence[int], reason: str | None) -> Body:
    """One chunk's choice."""
    said = {"delta": {"content": content}} if kind == "chat" else {"text": content}
    ids = list(tokens) if body.get("return_token_ids") else None
    return {"index": 0, **said, "logprobs": None, "finish_reason": reason, "token_ids": ids}


def usage(running: Running) -> Body:
    prompt = len(running.prompt)
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + running.produced,
        "completion_tokens": running.produced,
    }


def metrics(running: Running, k: int) -> Body | None:
    """What vLLM says of one request with ``--per-request-spec-decode-metrics detailed``.

    None without speculation; the steps are left out where there were none.
    """
    if not k:
        return None
    accepted = running.accepted
    steps, drafted = len(accepted), sum(running.drafted)
    said: Body = {
        "mean_acceptance_length": 1 + sum(accepted) / steps if steps else 1.0,
        "draft_acceptance_rate": sum(accepted) / drafted if drafted else 0.0,
        "acceptance_histogram": [accepted.count(n) for n in range(k + 1)],
        "num_spec_steps": steps,
        "num_accepted_draft_tokens": sum(accepted),
        "num_draft_tokens": drafted,
        "num_spec_tokens": k,
    }
    if steps:
        said |= {"per_step_accepted": accepted, "per_step_drafted": running.drafted}
    return {"speculative_decoding": said}
