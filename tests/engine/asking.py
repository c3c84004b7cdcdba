"""Requests to a server, and its counters, for tests."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

POSITIONS = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
SPECULATIVE = "vllm:spec_decode_"
COUNTED_WITHIN_S = 30

TEXTS = (
    "Explain how a bicycle stays upright while it is being ridden.",
    "Write a short letter to a neighbour about a tree that has grown too tall.",
    "What is the difference between weather and climate?",
    "Describe the steps to bake a simple loaf of bread at home.",
    "Summarise the story of a sailor who is lost at sea and finds an island.",
    "Why do leaves change their colour in autumn?",
    "Write a function in Python that reverses the words of a sentence.",
    "List the planets of the solar system and one fact about each.",
    "Give three reasons to learn a musical instrument as an adult.",
    "How does a refrigerator keep food cold?",
    "Write a packing list for a week of hiking in the mountains.",
    "Explain to a child why the sea is salty.",
)
"""What to ask for where any prompt will do."""


def post(base_url: str, path: str, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(f"{base_url}{path}", json=body, timeout=120, trust_env=False)


def events(response: httpx.Response) -> list[dict[str, Any]]:
    """The JSON of each server-sent event; the stream must end as OpenAI's does."""
    lines = [line for line in response.text.splitlines() if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def metrics(base_url: str) -> Iterator[Sample]:
    """All that /metrics says."""
    text = httpx.get(f"{base_url}/metrics", trust_env=False).text
    for family in text_string_to_metric_families(text):
        yield from family.samples


def value(base_url: str, name: str) -> float:
    """The one value of a name."""
    [found] = [sample.value for sample in metrics(base_url) if sample.name == name]
    return found


def counters(base_url: str) -> dict[str, float]:
    """Counters by name, those by position as ``name[position]``."""
    return {
        sample.name + (f"[{sample.labels['position']}]" if sample.name == POSITIONS else ""): (
            sample.value
        )
        for sample in metrics(base_url)
        if sample.name.endswith("_total")
    }


def becomes(base_url: str, name: str, expected: float) -> None:
    """Waits until a value is what it is expected to be; vLLM counts a step after it answered."""
    deadline = time.monotonic() + COUNTED_WITHIN_S
    while (found := value(base_url, name)) != expected:
        assert time.monotonic() < deadline, f"{name} is {found}, not {expected}"
        time.sleep(0.05)


def counters_after(base_url: str, generation_tokens: float) -> dict[str, float]:
    """Counters once so many tokens are counted: vLLM counts a step after it answered."""
    deadline = time.monotonic() + COUNTED_WITHIN_S
    while time.monotonic() < deadline:
        now = counters(base_url)
        if now["vllm:generation_tokens_total"] >= generation_tokens:
            return now
        time.sleep(0.05)
    raise AssertionError(f"{generation_tokens} tokens were not counted: {now}")


def accepted_at(now: dict[str, float], before: dict[str, float], k: int) -> list[float]:
    names = [f"{POSITIONS}[{position}]" for position in range(k)]
    return [now[name] - before.get(name, 0) for name in names]
