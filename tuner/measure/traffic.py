"""What the target makes of the workload's prompts: how long they are, and whether they are text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import httpx

from tuner.errors import Failure, FailureKind, RoundError
from tuner.load.prompts import Prompt

TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Tokenized:
    """A prompt as the engine sees it, chat template included, and the engine's context length."""

    prompt: Prompt
    token_ids: tuple[int, ...]
    context_tokens: int


def tokenize(base_url: str, model: str, prompts: Sequence[Prompt]) -> list[Tokenized]:
    """Asks a running vLLM for each prompt's tokens; an empty list where it has no ``/tokenize``.

    Raises RoundError where it does not answer.
    """
    found = []
    try:
        with httpx.Client(base_url=base_url, timeout=TIMEOUT_S, trust_env=False) as client:
            for prompt in prompts:
                text = {"prompt": prompt.prompt} if prompt.messages is None else {}
                chat = {"messages": prompt.messages} if prompt.messages is not None else {}
                answer = client.post("/tokenize", json={"model": model, **text, **chat})
                if answer.status_code == httpx.codes.NOT_FOUND:
                    return []
                body = answer.raise_for_status().json()
                ids, context = tuple(body["tokens"]), int(body["max_model_len"])
                found.append(Tokenized(prompt, ids, context))
    except (httpx.HTTPError, KeyError, TypeError, ValueError) as error:
        message = f"{base_url}/tokenize did not give a prompt's tokens: {error}"
        raise RoundError(Failure(FailureKind.REQUESTS_FAILED, message)) from error
    return found
