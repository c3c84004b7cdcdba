"""How a fake server is to behave: its speed, its acceptance and its faults."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal, Self

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
    """Times are of one decode step: ``step_ms + step_ms_per_k * k + step_ms_per_request * n``.

    ``acceptance`` is by a draft's last path part or by method: the probability that the next draft
    token is accepted, given that all before it were.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    startup_s: float = Field(default=0, ge=0)
    prefill_ms: float = Field(default=5, ge=0)
    step_ms: float = Field(default=20, ge=0)
    step_ms_per_k: float = Field(default=1.0, ge=0)
    step_ms_per_request: float = Field(default=0.5, ge=0)
    acceptance: dict[str, float] = Field(default_factory=dict)
    default_acceptance: float = Field(default=0.6, ge=0, le=1)
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
        for name in (last_part(config.get("model")), config["method"]):
            if name in self.acceptance:
                return self.acceptance[name]
        return self.default_acceptance

    def step_s(self, k: int, requests: int) -> float:
        ms = self.step_ms + self.step_ms_per_k * k + self.step_ms_per_request * requests
        return ms / 1000

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


def last_part(model: str | None) -> str | None:
    """``draft`` of ``/models/draft/``."""
    return model and model.rstrip("/").rpartition("/")[2]


def script_from_environment() -> FakeScript:
    """The script in ``TUNER_FAKE_SCRIPT``: inline JSON, or the path of a JSON file."""
    text = os.environ.get(VARIABLE, "{}")
    return FakeScript.model_validate_json(
        text if text.lstrip().startswith("{") else Path(text).read_text()
    )
