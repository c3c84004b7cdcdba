"""What was asked: the study, one pydantic model behind YAML, the command line and REST."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    field_validator,
    model_validator,
)

MAX_K = 128
"""vLLM 0.32 parses a larger ``num_speculative_tokens`` and fails later."""

MODEL_METHODS = frozenset(
    {
        "draft_model",
        "eagle",
        "eagle3",
        "medusa",
        "mlp_speculator",
        "dflash",
        "dspark",
        "custom_class",
    }
)
"""Methods that need a model of their own."""

MODEL_FREE_METHODS = frozenset({"ngram", "ngram_gpu", "suffix"})
"""Methods that propose from the text alone."""

METHODS = MODEL_METHODS | MODEL_FREE_METHODS | {"mtp", "extract_hidden_states"}
"""vLLM 0.32's methods; its ``<family>_mtp`` aliases are accepted too."""

SPECULATIVE_KEYS = frozenset(
    {
        "attention_backend",
        "disable_padded_drafter_batch",
        "draft_load_config",
        "draft_sample_method",
        "draft_tensor_parallel_size",
        "enforce_eager",
        "max_model_len",
        "moe_backend",
        "num_speculative_tokens_per_batch_size",
        "parallel_drafting",
        "prompt_lookup_max",
        "prompt_lookup_min",
        "quantization",
        "rejection_sample_method",
        "revision",
        "suffix_decoding_max_cached_requests",
        "suffix_decoding_max_spec_factor",
        "suffix_decoding_max_tree_depth",
        "suffix_decoding_min_token_prob",
        "synthetic_acceptance_length",
        "use_heterogeneous_vocab",
    }
)
"""Keys of vLLM's speculative config that a candidate may carry beside method, model and k."""

OWN_ENGINE_ARGS = frozenset(
    {
        "model",
        "host",
        "port",
        "revision",
        "speculative_config",
        "sc",
        "spec_method",
        "spec_model",
        "spec_tokens",
    }
)
"""Flags that the tuner sets itself."""

Objective = Literal["tpot_p50", "e2e_p95", "output_throughput", "cost_per_million_output_tokens"]
Scalar = str | int | float | bool


class Part(BaseModel):
    """A part of a study. Frozen; an unknown key is a mistake."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


def _expand(value: object) -> object:
    """``3``, ``[1, 2, 4]`` and ``{min: 1, max: 8}`` all say which whole numbers to try."""
    if isinstance(value, dict):
        if set(value) != {"min", "max"} or not all(type(v) is int for v in value.values()):
            raise ValueError("write a number, a list such as [1, 2, 4], or {min: 1, max: 8}")
        if value["min"] > value["max"]:
            raise ValueError(f"min {value['min']} is larger than max {value['max']}")
        if value["max"] - value["min"] >= MAX_K:
            raise ValueError(f"a range of more than {MAX_K} values; say where to look")
        return tuple(range(value["min"], value["max"] + 1))
    values = value if isinstance(value, list | tuple) else [value]
    if not values:
        raise ValueError("an empty list; write at least one number")
    return tuple(dict.fromkeys(values))


WholeNumbers = Annotated[
    tuple[Annotated[int, Field(strict=True, ge=1, le=MAX_K)], ...], BeforeValidator(_expand)
]


class Target(Part):
    """The served model: a path, or a name that vLLM resolves."""

    model: str = Field(min_length=1)
    revision: str | None = None


class EngineSpec(Part):
    """How vLLM is started: an interpreter that has it, or an argv prefix that runs in the foreground."""

    python: Path | None = None
    command: tuple[str, ...] | None = Field(default=None, min_length=1)
    args: dict[str, JsonValue] = Field(default_factory=dict)
    env: dict[str, str] = Field(default_factory=dict)
    startup_timeout_s: float = Field(default=1800, gt=0)
    side_by_side: bool | None = None
    """Whether the baseline and a candidate are up at once; unset: where memory allows it."""

    @field_validator("args")
    @classmethod
    def _normalise(cls, args: dict[str, JsonValue]) -> dict[str, JsonValue]:
        named = {name.lstrip("-").replace("-", "_"): value for name, value in args.items()}
        if taken := sorted(OWN_ENGINE_ARGS & named.keys()):
            raise ValueError(f"{', '.join(taken)}: set by the tuner itself; remove it here")
        return named

    @field_validator("env", mode="before")
    @classmethod
    def _text(cls, env: object) -> object:
        if not isinstance(env, dict):
            return env
        return {k: str(v) if type(v) in (int, float) else v for k, v in env.items()}

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.python and self.command:
            raise ValueError("give python or command, not both")
        return self


class Candidate(Part):
    """A method, its draft, and what to search. Other keys of vLLM's speculative config pass through."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, JsonValue]

    method: str
    model: str | None = None
    k: WholeNumbers = Field(validation_alias=AliasChoices("k", "num_speculative_tokens"))
    prompt_lookup_min: WholeNumbers | None = None
    prompt_lookup_max: WholeNumbers | None = None

    @field_validator("method")
    @classmethod
    def _known(cls, method: str) -> str:
        if method not in METHODS and not method.endswith("_mtp"):
            raise ValueError(f"unknown method; one of {', '.join(sorted(METHODS))}")
        return method

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        problems = [
            f"unknown key '{key}'; beside method, model and k vLLM takes {', '.join(sorted(SPECULATIVE_KEYS))}"
            for key in self.passed_through
            if key not in SPECULATIVE_KEYS
        ]
        if self.method in MODEL_METHODS and not self.model:
            problems.append(f"method {self.method} needs a model")
        if self.method in MODEL_FREE_METHODS and self.model:
            problems.append(f"method {self.method} takes no model; remove it")
        lookup = self.prompt_lookup_min or self.prompt_lookup_max
        if lookup and self.method not in {"ngram", "ngram_gpu"}:
            problems.append("prompt_lookup_min and prompt_lookup_max belong to ngram")
        if (
            self.prompt_lookup_min
            and self.prompt_lookup_max
            and min(self.prompt_lookup_min) > max(self.prompt_lookup_max)
        ):
            problems.append("every prompt_lookup_min is larger than every prompt_lookup_max")
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @property
    def passed_through(self) -> dict[str, JsonValue]:
        return dict(self.__pydantic_extra__ or {})


class Sampling(Part):
    """Sampling parameters sent with every request."""

    temperature: float = Field(default=0.0, ge=0)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1)
    min_p: float | None = Field(default=None, ge=0, le=1)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    repetition_penalty: float | None = Field(default=None, gt=0)
    seed: int | None = None


class Workload(Part):
    """The traffic: built-in prompts, or a JSONL file whose lines have ``prompt`` or ``messages``."""

    name: str = "builtin"
    path: Path | None = None
    output_tokens: int = Field(default=128, ge=2)
    requests: int = Field(default=16, ge=1)
    """Requests of one round; never fewer than the load's concurrency."""
    sampling: Sampling = Sampling()


class Load(Part):
    """A closed loop: so many requests in flight at any time."""

    concurrency: int = Field(ge=1)

    def __str__(self) -> str:
        return f"concurrency {self.concurrency}"


class Price(Part):
    """What the machine costs: dollars per hour and device, and how many devices."""

    usd_per_hour: float = Field(gt=0)
    devices: int = Field(default=1, ge=1)


class Budget(Part):
    """Where exploring stops. Confirming comes on top: the baseline and one start per finalist."""

    engine_starts: int = Field(default=12, ge=2)
    """Engine starts of the exploration, the baseline's included."""
    minutes: float | None = Field(default=None, gt=0)


class StudySpec(Part):
    """One question: does speculation pay for this target, under this traffic, at these loads?"""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")
    target: Target
    engine: EngineSpec = EngineSpec()
    candidates: tuple[Candidate, ...] = Field(min_length=1)
    workload: Workload = Workload()
    loads: tuple[Load, ...] = Field(min_length=1)
    objective: Objective = "tpot_p50"
    price: Price | None = None
    precision: float = Field(default=0.05, gt=0, lt=0.5)
    """Half-width wanted of a reported speed-up's 95 % interval, as a share (0.05 is ±5 %)."""
    budget: Budget = Budget()

    @field_validator("loads")
    @classmethod
    def _distinct(cls, loads: tuple[Load, ...]) -> tuple[Load, ...]:
        if len(set(loads)) < len(loads):
            raise ValueError("the same load twice")
        return loads

    @model_validator(mode="after")
    def _priced(self) -> Self:
        if self.objective == "cost_per_million_output_tokens" and self.price is None:
            raise ValueError(
                "objective cost_per_million_output_tokens needs a price: {usd_per_hour: ...}"
            )
        return self


def digest(value: Any) -> str:
    """SHA-256 of a JSON-able value in canonical form (sorted keys, no spaces), 64 hex digits."""
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return hashlib.sha256(text.encode()).hexdigest()
