"""What was asked: the study, one pydantic model behind YAML, the command line and REST."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    Strict,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

from tuner.vllm import MAX_K, METHODS, MODEL_FREE_METHODS, MODEL_METHODS, SPECULATIVE_KEYS

OWN_ENGINE_ARGS = frozenset(
    {
        "model",
        "host",
        "per_request_spec_decode_metrics",
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

Whole = Annotated[int, Strict()]
Number = Annotated[float, Strict()]
"""Strict: ``true`` and ``"4"`` are not numbers here."""


class Part(BaseModel):
    """A part of a study. Frozen; an unknown key is a mistake."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False
    )


def _expand(value: object) -> object:
    """``3``, ``[1, 2, 4]`` and ``{min: 1, max: 8}`` all say which whole numbers to try."""
    if isinstance(value, dict):
        return _expand_range(value)
    if isinstance(value, list | tuple):
        if not value:
            raise ValueError("must have at least one number")
        return tuple(value)
    return (value,)


def _expand_range(value: dict[object, object]) -> tuple[int, ...]:
    low, high = value.get("min"), value.get("max")
    if len(value) != 2 or type(low) is not int or type(high) is not int:  # noqa: PLR2004
        raise ValueError("must be a number, a list such as [1, 2, 4], or {min: 1, max: 8}")
    if low > high:
        raise ValueError(f"min {low} is larger than max {high}")
    if low < 1 or high > MAX_K:
        raise ValueError(f"must lie between 1 and {MAX_K}, is {low} to {high}")
    return tuple(range(low, high + 1))


def _distinct_numbers(numbers: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(numbers))


WholeNumbers = Annotated[
    tuple[Annotated[int, Field(strict=True, ge=1, le=MAX_K)], ...],
    BeforeValidator(_expand),
    AfterValidator(_distinct_numbers),
]


def _engine_arg(name: str) -> str:
    """A flag's name as vLLM's parser stores it."""
    normal = name.lstrip("-").replace("-", "_")
    if normal.partition(".")[0] in OWN_ENGINE_ARGS:
        raise ValueError("is set by the tuner itself; remove it here")
    return normal


def _variable(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError("is no name of an environment variable")
    return name


def unknown_key(key: str, known: Iterable[str]) -> str:
    """What to say of a key that is none of the known ones."""
    if close := get_close_matches(key, known, n=1):
        return f"unknown key; did you mean {close[0]}?"
    return f"unknown key; known here: {', '.join(sorted(known))}"


def _speculative_key(key: str) -> str:
    if key == "num_speculative_tokens":
        raise ValueError("is another name of k; give one of the two")
    if key not in SPECULATIVE_KEYS:
        raise ValueError(unknown_key(key, SPECULATIVE_KEYS | {"method", "model", "k"}))
    return key


class Target(Part):
    """The served model: a path, or a name that vLLM resolves."""

    model: str = Field(min_length=1, examples=["org/model"])
    revision: str | None = None


class EngineSpec(Part):
    """How vLLM is started: by an interpreter that has it, or an argv prefix that stays in front."""

    python: Path | None = None
    command: tuple[str, ...] | None = Field(default=None, min_length=1)
    args: dict[Annotated[str, AfterValidator(_engine_arg)], JsonValue] = Field(default_factory=dict)
    env: dict[Annotated[str, AfterValidator(_variable)], str] = Field(default_factory=dict)
    startup_timeout_s: Number = Field(default=1800, gt=0)
    side_by_side: Annotated[bool, Strict()] | None = None
    """Whether the baseline and a candidate are up at once; unset: where memory allows it."""

    @field_validator("command")
    @classmethod
    def _one_way(
        cls, command: tuple[str, ...] | None, info: ValidationInfo
    ) -> tuple[str, ...] | None:
        if command and info.data.get("python"):
            raise ValueError("give python or command, not both")
        return command

    @field_validator("args", mode="wrap")
    @classmethod
    def _once(cls, args: object, normalise: ValidatorFunctionWrapHandler) -> dict[str, JsonValue]:
        normal: dict[str, JsonValue] = normalise(args)
        if isinstance(args, dict) and len(normal) < len(args):
            raise ValueError("one flag is given twice, in two spellings; keep one")
        return normal

    @field_validator("env", mode="before")
    @classmethod
    def _text(cls, env: object) -> object:
        if not isinstance(env, dict):
            return env
        return {k: str(v) if type(v) in (int, float) else v for k, v in env.items()}


class Candidate(Part):
    """A method, its draft, what to search; other keys of vLLM's speculative config pass through."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[Annotated[str, AfterValidator(_speculative_key)], JsonValue]

    method: str = Field(examples=["ngram"])
    model: str | None = Field(default=None, min_length=1, validate_default=True)
    k: WholeNumbers = Field(
        validation_alias=AliasChoices("k", "num_speculative_tokens"), examples=["[1, 2, 4]"]
    )
    prompt_lookup_min: WholeNumbers | None = None
    prompt_lookup_max: WholeNumbers | None = None

    @field_validator("method")
    @classmethod
    def _known(cls, method: str) -> str:
        if method not in METHODS and not method.endswith("_mtp"):
            raise ValueError(f"unknown method '{method}'; one of {', '.join(sorted(METHODS))}")
        return method

    @field_validator("model")
    @classmethod
    def _needed(cls, model: str | None, info: ValidationInfo) -> str | None:
        method = info.data.get("method")
        if method in MODEL_METHODS and not model:
            raise ValueError(f"is missing; method {method} needs a model")
        if method in MODEL_FREE_METHODS and model:
            raise ValueError(f"method {method} takes no model; remove it")
        return model

    @field_validator("prompt_lookup_min", "prompt_lookup_max")
    @classmethod
    def _of_ngram(
        cls, lookup: tuple[int, ...] | None, info: ValidationInfo
    ) -> tuple[int, ...] | None:
        if lookup and info.data.get("method", "ngram") not in {"ngram", "ngram_gpu"}:
            raise ValueError(f"belongs to ngram; method {info.data['method']} has no such thing")
        least = info.data.get("prompt_lookup_min")
        if lookup and least and min(least) > max(lookup):
            raise ValueError(
                f"must reach prompt_lookup_min: {max(lookup)} is smaller than {min(least)}"
            )
        return lookup

    @property
    def passed_through(self) -> dict[str, JsonValue]:
        return dict(self.__pydantic_extra__ or {})


class Sampling(Part):
    """Sampling parameters sent with every request."""

    temperature: Number = Field(default=0.0, ge=0)
    top_p: Number | None = Field(default=None, gt=0, le=1)
    top_k: Whole | None = Field(default=None, ge=-1)
    min_p: Number | None = Field(default=None, ge=0, le=1)
    presence_penalty: Number | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: Number | None = Field(default=None, ge=-2, le=2)
    repetition_penalty: Number | None = Field(default=None, gt=0)
    seed: Whole | None = None


class Workload(Part):
    """The traffic: built-in prompts, or a JSONL file of lines with ``prompt`` or ``messages``."""

    name: str = "builtin"
    path: Path | None = None
    output_tokens: Whole = Field(default=128, ge=2)
    """The most tokens of an answer, where a prompt of the file does not set its own number."""
    requests: Whole = Field(default=16, ge=1)
    """Requests that count in one round; never fewer than the load's concurrency."""
    sampling: Sampling = Sampling()
    ignore_eos: Annotated[bool, Strict()] = False
    """Go on past an answer's natural end. Text that loops there flatters ngram and suffix."""
    shared_prefixes: Annotated[bool, Strict()] = False
    """Whether the prompts' beginnings may be found in the prefix cache, as in the real traffic."""


def _is_none(value: object) -> bool:
    return value is None


def _rate(value: object) -> object:
    """Not left to the union of types, which would say of each why it is not that one."""
    if value is None or value == "recorded":
        return value
    if type(value) not in {int, float} or not 0 < value < math.inf:  # type: ignore[operator]
        raise ValueError(f"must be requests per second, more than 0, or recorded; is {value!r}")
    return value


def _value(text: str) -> object:
    """Of a load's key. Raises ValueError where it is neither a number nor ``recorded``."""
    return text if text == "recorded" else json.loads(text)


def _rounded(value: float) -> float:
    """So that a load's key stays short."""
    return round(value, 4)


class Load(Part):
    """Closed loop: so many requests in flight at any time. Open loop: requests at a rate.

    A rate is in requests per second (Poisson arrivals), or ``recorded``: as the workload's own
    timestamps say. With a ``burstiness`` below 1 they come in bursts: gaps are drawn from a gamma
    distribution of that shape, as vLLM's benchmark does; 1 is Poisson.
    """

    concurrency: Whole | None = Field(default=None, ge=1, examples=["4"], exclude_if=_is_none)
    request_rate: Annotated[float | Literal["recorded"] | None, BeforeValidator(_rate)] = Field(
        default=None, examples=["2.5"], exclude_if=_is_none
    )
    burstiness: Annotated[Number, AfterValidator(_rounded)] | None = Field(
        default=None, ge=0.01, le=10, examples=["0.25"], exclude_if=_is_none
    )

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.concurrency is None) == (self.request_rate is None):
            raise ValueError("give concurrency (closed loop) or request_rate (open loop), one")
        if self.burstiness is not None and not isinstance(self.request_rate, float):
            raise ValueError("burstiness belongs to a request_rate in requests per second")
        return self

    @classmethod
    def of(cls, key: str) -> Self:
        """The load of a ``key``. Raises ValueError on anything else."""
        parts = [part.partition("=") for part in key.split(",")]
        try:
            return cls.model_validate({name: _value(text) for name, _, text in parts})
        except ValueError as error:
            forms = "concurrency=4, request_rate=2.5, request_rate=2.5,burstiness=0.25"
            raise ValueError(
                f"{key!r} is no load; write {forms} or request_rate=recorded"
            ) from error

    @property
    def key(self) -> str:
        """``concurrency=4``, ``request_rate=2.5,burstiness=0.25``, ``request_rate=recorded``."""
        if self.concurrency is not None:
            return f"concurrency={self.concurrency}"
        bursts = "" if self.burstiness is None else f",burstiness={self.burstiness}"
        return f"request_rate={self.request_rate}{bursts}"

    @property
    def comes_in_bursts(self) -> bool:
        """Whether the number of requests under way swings: then k may well follow it."""
        return self.request_rate == "recorded" or (self.burstiness or 1) < 1

    @property
    def place(self) -> tuple[int, float]:
        """To sort by: concurrencies first, then rates, then recorded arrivals."""
        if self.concurrency is not None:
            return 0, self.concurrency
        return (2, 0.0) if isinstance(self.request_rate, str) else (1, self.request_rate or 0.0)

    def __str__(self) -> str:
        if self.concurrency is not None:
            return f"concurrency {self.concurrency}"
        if self.request_rate == "recorded":
            return "recorded arrivals"
        bursts = "" if self.burstiness is None else f" (burstiness {self.burstiness:g})"
        return f"{self.request_rate:g} requests/s{bursts}"


class Price(Part):
    """What the machine costs: dollars per hour and device, and how many devices."""

    usd_per_hour: Number = Field(gt=0, examples=["2.50"])
    devices: Whole = Field(default=1, ge=1)


class Budget(Part):
    """Where exploring stops. Confirming comes on top: the baseline and one start per finalist."""

    engine_starts: Whole = Field(default=12, ge=2)
    """Engine starts of the exploration, the baseline's included."""
    minutes: Number | None = Field(default=None, gt=0)
    screen_tokens: Whole = Field(default=6000, ge=100)
    """Output tokens of the baseline that are recorded, for drafts to be replayed over without a
    start of theirs. With 6,000 the tokens per decode step are known to 5 %, in long answers at
    large k to 10 %."""


class StudySpec(Part):
    """One question: does speculation pay for this target, under this traffic, at these loads?"""

    name: str = Field(
        pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$",
        description="lower-case letters, digits, dots, dashes and underscores, 64 at most",
        examples=["my-study"],
    )
    target: Target = Field(examples=["{model: org/model}"])
    engine: EngineSpec = EngineSpec()
    candidates: tuple[Candidate, ...] = Field(
        min_length=1, examples=["[{method: ngram, k: [2, 4]}]"]
    )
    workload: Workload = Workload()
    loads: tuple[Load, ...] = Field(min_length=1, examples=["[{concurrency: 1}]"])
    objective: Objective = "tpot_p50"
    price: Price | None = Field(default=None, validate_default=True)
    search: Literal["predicted", "each_method", "screen_best", "tpe", "random"] = "predicted"
    """What chooses the next engine start: predicted gains, until none is worth a start; the best
    predicted setting of each method; the screen's best three; Optuna's TPE; or chance."""
    precision: Number = Field(default=0.05, gt=0, lt=0.5)
    """A difference that matters, as a share (0.05 is ±5 %): a comparison goes on until its 95 %
    interval excludes "no difference", or lies within this of it, or the limit of pairs."""
    budget: Budget = Budget()

    @field_validator("loads")
    @classmethod
    def _distinct(cls, loads: tuple[Load, ...]) -> tuple[Load, ...]:
        if twice := [load for load in dict.fromkeys(loads) if loads.count(load) > 1]:
            raise ValueError(f"{twice[0]} is given twice; each load once")
        return loads

    @field_validator("price")
    @classmethod
    def _priced(cls, price: Price | None, info: ValidationInfo) -> Price | None:
        objective = info.data.get("objective")
        if objective == "cost_per_million_output_tokens" and price is None:
            raise ValueError(
                f"is missing; objective {objective} needs price: {{usd_per_hour: 2.50}}"
            )
        return price


def digest(value: Any) -> str:
    """SHA-256 of a JSON-able value in canonical form (sorted keys, no spaces), 64 hex digits."""
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return hashlib.sha256(text.encode()).hexdigest()
