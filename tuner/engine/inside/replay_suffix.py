"""Decodes recorded answers once more with suffix decoding, and says what each step drafted.

Runs inside vLLM's environment (arctic-inference) and imports nothing else of this project:
``python replay_suffix.py < request``. It calls the cache as vLLM 0.32 does
(``vllm/v1/spec_decode/suffix_decoding.py``). The request is a JSON object:

answers          [{"prompt": [ids], "output": [ids]}, ...], in the order they were asked for
in_flight        how many of them are decoded at once, in turn; the next begins when one ends
context_tokens   the engine's max_model_len, null where it is not to bind
settings         speculative configs

On stdout goes {"steps": [...]}: for each setting, for each answer, [drafted, accepted] of each
decode step. Each setting begins without any history.
"""

from __future__ import annotations

import json
import sys
from collections import deque

import numpy as np
from arctic_inference.suffix_decoding import SuffixDecodingCache

PREFIX = "suffix_decoding_"
DEFAULTS = {
    "max_tree_depth": 24,
    "max_cached_requests": 10000,
    "max_spec_factor": 1.0,
    "min_token_prob": 0.1,
}
"""vLLM 0.32's."""

UNBOUND = 2**30


class Decoding:
    """One answer on its way. ``at`` of its tokens are known, ``told`` of them to the cache."""

    def __init__(self, name: str, answer: dict) -> None:
        self.name = name
        self.prompt = np.array(answer["prompt"], dtype=np.int32)
        self.text = np.array(answer["prompt"] + answer["output"], dtype=np.int32)
        self.output = answer["output"]
        self.at = 1
        self.told = 0
        self.steps: list[tuple[int, int]] = []

    @property
    def is_over(self) -> bool:
        return self.at >= len(self.output)


class Suffix:
    """The proposer of one setting."""

    def __init__(self, config: dict, context_tokens: int | None) -> None:
        parameters = {name: config.get(PREFIX + name, value) for name, value in DEFAULTS.items()}
        self.k = config["num_speculative_tokens"]
        self.depth = parameters["max_tree_depth"]
        self.bounds = {name: parameters[name] for name in ("max_spec_factor", "min_token_prob")}
        self.context_tokens = context_tokens or UNBOUND
        self.cache = SuffixDecodingCache(
            max_tree_depth=self.depth, max_cached_requests=parameters["max_cached_requests"]
        )

    def tell(self, decoding: Decoding) -> None:
        """What came out since the last step goes into the history, as it does before a draft."""
        if decoding.name not in self.cache.active_requests:
            self.cache.start_request(decoding.name, decoding.prompt)
        new = decoding.output[decoding.told : decoding.at]
        self.cache.add_active_response(decoding.name, new)
        decoding.told = decoding.at

    def draft(self, decoding: Decoding) -> list[int]:
        known = len(decoding.prompt) + decoding.at
        if known >= self.context_tokens:
            return []
        drafted = self.cache.speculate(
            decoding.name,
            decoding.text[max(0, known - self.depth) : known],
            max_spec_tokens=min(self.k, self.context_tokens - known - 1),
            **self.bounds,
        )
        return list(drafted.token_ids)

    def step(self, decoding: Decoding) -> None:
        """A decode step: what it drafts, and how much of that comes."""
        draft = self.draft(decoding)
        accepted = 0
        for drafted, token in zip(draft, decoding.output[decoding.at :], strict=False):
            if drafted != token:
                break
            accepted += 1
        decoding.steps.append((len(draft), accepted))
        decoding.at = min(decoding.at + accepted + 1, len(decoding.output))


def replay(config: dict, request: dict) -> list[list[tuple[int, int]]]:
    """Every turn is a step of the engine: each answer in flight tells, drafts and moves on."""
    suffix = Suffix(config, request["context_tokens"])
    decodings = [Decoding(str(n), answer) for n, answer in enumerate(request["answers"])]
    waiting = deque(decodings)
    running: list[Decoding] = []
    while waiting or running:
        while waiting and len(running) < request["in_flight"]:
            running.append(waiting.popleft())
        for decoding in running:
            suffix.tell(decoding)
            if not decoding.is_over:
                suffix.step(decoding)
            else:
                suffix.cache.stop_request(decoding.name)
        running = [one for one in running if one.name in suffix.cache.active_requests]
    return [decoding.steps for decoding in decodings]


def main() -> None:
    request = json.load(sys.stdin)
    json.dump({"steps": [replay(config, request) for config in request["settings"]]}, sys.stdout)


if __name__ == "__main__":
    main()
