"""The finite space: every setting a study's candidates span."""

from __future__ import annotations

from itertools import product
from typing import Any

from tuner.records import OFF, Setting
from tuner.spec import Candidate, StudySpec
from tuner.vllm import SCHEDULE


def enumerate_settings(spec: StudySpec) -> tuple[Setting, ...]:
    """Off first, then every setting of every candidate in the study's order, each once."""
    found = [s for candidate in spec.candidates for s in settings_of(candidate)]
    return tuple(dict.fromkeys([OFF, *found]))


def settings_of(candidate: Candidate) -> list[Setting]:
    """The settings one candidate spans; those with lookup_min above lookup_max do not exist."""
    axes: dict[str, tuple[Any, ...]] = {"num_speculative_tokens": candidate.k}
    for name in ("prompt_lookup_min", "prompt_lookup_max"):
        if (values := getattr(candidate, name)) is not None:
            axes[name] = values
    axes |= {name: _choices(name, value) for name, value in candidate.passed_through.items()}
    fixed: dict[str, Any] = {"method": candidate.method}
    if candidate.model:
        fixed["model"] = candidate.model
    configs = [fixed | dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    return [Setting.of(config) for config in configs if _possible(config)]


def _choices(name: str, value: Any) -> tuple[Any, ...]:
    """A list is searched, anything else is one value. One schedule is a list of triples."""
    if name == SCHEDULE and isinstance(value, list):
        one = bool(value) and isinstance(value[0], list) and not isinstance(value[0][0], list)
        return (value,) if one else tuple(value)
    return tuple(value) if isinstance(value, list) else (value,)


def _possible(config: dict[str, Any]) -> bool:
    low, high = config.get("prompt_lookup_min"), config.get("prompt_lookup_max")
    return low is None or high is None or low <= high
