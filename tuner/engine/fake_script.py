"""How a fake server is to behave: its speed, its acceptance and its faults."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

VARIABLE = "TUNER_FAKE_SCRIPT"

FaultKind = Literal[
    "out_of_memory",
    "kv_cache_too_small",
    "bad_config",
    "crash",
    "hang",
    "die_under_load",
    "reject_requests",
    "fail_requests",
    "no_usage",
    "negative_counters",
]
SpeculativeConfig = dict[str, Any]


class Fault(BaseModel):
    """What goes wrong, where the speculative config matches; a field that is not given matches any.

    ``method`` "off" matches a server without a config; ``model`` is a draft's last path part. With
    ``after_requests`` the fault waits until so many requests came in; 0 is at the start for what
    can fail a start, else from the first request. With ``times`` it is for the first so many
    matching starts only, counted in the script's ``state_dir``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: str | None = None
    k: int | None = None
    model: str | None = None
    kind: FaultKind
    after_requests: int = Field(default=0, ge=0)
    times: int | None = Field(default=None, ge=1)

    def matches(self, config: SpeculativeConfig | None) -> bool:
        given = config or {"method": "off"}
        return (
            self.method in (None, given["method"])
            and self.k in (None, given.get("num_speculative_tokens"))
            and self.model in (None, last_part(given.get("model")))
        )


class FakeScript(BaseModel):
    """Times are of one decode step of ``n`` requests: ``step_ms + step_ms_per_request * n``, and
    ``step_ms_per_k * k + step_ms_per_draft_token * k * n`` where k tokens are drafted for each.

    ``acceptance`` is by a draft's last path part or by method: the probability that the next draft
    token is accepted, given that all before it were. ``corruption``, by the same names, is the
    share of its tokens that an engine gets badly wrong because it speculates; ``divergence`` the
    share that any engine takes from the runner-up. At 0 and 0 an answer is exactly the target's.
    A chunk of a stream carries the tokens of ``steps_per_chunk`` steps, the first and the last as
    soon as they are there. Where k is changed live, ``pays_for_largest_k`` has every step take as
    long as at the k of the config.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    startup_s: float = Field(default=0, ge=0)
    prefill_ms: float = Field(default=5, ge=0)
    step_ms: float = Field(default=20, ge=0)
    step_ms_per_k: float = Field(default=1.0, ge=0)
    step_ms_per_request: float = Field(default=0.5, ge=0)
    step_ms_per_draft_token: float = Field(default=0, ge=0)
    acceptance: dict[str, float] = Field(default_factory=dict)
    default_acceptance: float = Field(default=0.6, ge=0, le=1)
    divergence: float = Field(default=0, ge=0, le=1)
    corruption: dict[str, Annotated[float, Field(ge=0, le=1)]] = Field(default_factory=dict)
    steps_per_chunk: int = Field(default=1, ge=1)
    pays_for_largest_k: bool = False
    max_model_len: int = Field(default=4096, ge=1)
    version: str = "0.32.0"
    seed: int = 0
    faults: tuple[Fault, ...] = ()
    state_dir: Path | None = None

    @model_validator(mode="after")
    def _counted(self) -> Self:
        if self.state_dir is None and any(fault.times for fault in self.faults):
            raise ValueError("a fault with times needs state_dir, where its starts are counted")
        return self

    def acceptance_of(self, config: SpeculativeConfig) -> float:
        return _named(self.acceptance, config, self.default_acceptance)

    def corruption_of(self, config: SpeculativeConfig) -> float:
        return _named(self.corruption, config, 0.0)

    def step_s(self, k: int, requests: int) -> float:
        ms = self.step_ms + self.step_ms_per_k * k + self.step_ms_per_request * requests
        return (ms + self.step_ms_per_draft_token * k * requests) / 1000

    def faults_of_this_start(self, config: SpeculativeConfig | None) -> list[Fault]:
        """The faults that apply to a server with this config; counts the start."""
        return [
            fault
            for number, fault in enumerate(self.faults)
            if fault.matches(config) and self._is_due(number, fault)
        ]

    def _is_due(self, number: int, fault: Fault) -> bool:
        if fault.times is None or self.state_dir is None:
            return True
        self.state_dir.mkdir(parents=True, exist_ok=True)
        with (self.state_dir / f"fault-{number}").open("ab") as starts:
            starts.write(b".")
            starts.flush()
            return starts.tell() <= fault.times


def _named(values: dict[str, float], config: SpeculativeConfig, default: float) -> float:
    """The value of the draft, else of the method, else the default."""
    for name in (last_part(config.get("model")), config["method"]):
        if name in values:
            return values[name]
    return default


def last_part(model: str | None) -> str | None:
    """``draft`` of ``/models/draft/``."""
    return model and model.rstrip("/").rpartition("/")[2]


def script_from_environment() -> FakeScript:
    """The script in ``TUNER_FAKE_SCRIPT``: inline JSON, or the path of a JSON file."""
    text = os.environ.get(VARIABLE, "{}")
    return FakeScript.model_validate_json(
        text if text.lstrip().startswith("{") else Path(text).read_text()
    )
