"""Everything that can go wrong, as one tree.

::

    TunerError
    ├── UsageError            2  the command line asked for something that makes no sense
    │   ├── NotFoundError     2  no such study, preset or load
    │   └── StorageError      2  the database cannot be reached, or its schema is not this version's
    ├── CannotRunError        3  refused before anything expensive was started
    │   ├── SpecError         3  the study file is wrong; carries every mistake at once
    │   └── PreflightError    3  the study is well formed but cannot run here
    ├── EngineError           4  a vLLM server failed; carries a Failure with its reason
    │   ├── EngineStartError  4  ... before it answered
    │   ├── EngineDiedError   4  ... after it answered, whatever its exit code
    │   └── RoundError        4  ... in a round: it lives, but what it answered cannot be used
    ├── BaselineError         4  the baseline failed, so there is nothing to compare with
    ├── ScoringError          4  drafts could not be scored in vLLM's environment
    ├── NothingMeasuredError  5  nothing met the constraints
    └── IncomparableError     5  two measurements that were not asked the same of the same

Each leaf has an ``exit_code`` (for the command line) and a ``problem`` (for HTTP: the last part of
an RFC 9457 type). No errors of ours: an interrupted command exits 130, and `tuner verify` exits 5
where a stored answer is lost, 6 where one has changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class TunerError(Exception):
    """Root of the tree. ``str()`` of any leaf is a sentence fit to show to a user."""

    exit_code = 1
    problem = "internal"


class UsageError(TunerError):
    exit_code = 2
    problem = "usage"


class NotFoundError(UsageError):
    problem = "not-found"


class StorageError(UsageError):
    problem = "storage"


class CannotRunError(TunerError):
    exit_code = 3
    problem = "cannot-run"


@dataclass(frozen=True)
class Mistake:
    """One thing wrong with a study: where (``candidates[0].k``), and what would be right."""

    where: str
    message: str
    line: int | None = None


class SpecError(CannotRunError):
    """The study file is wrong. Carries every mistake, in the order of the file."""

    problem = "spec"

    def __init__(self, source: str, mistakes: list[Mistake]) -> None:
        self.source = source
        self.mistakes = mistakes
        super().__init__("\n".join(self.lines()))

    def lines(self) -> list[str]:
        """One ``file:line: place: message`` per mistake."""
        lines = []
        for mistake in self.mistakes:
            at = f"{self.source}:{mistake.line}" if mistake.line else self.source
            lines.append(": ".join(part for part in (at, mistake.where, mistake.message) if part))
        return lines


class PreflightError(CannotRunError):
    """The study is well formed but cannot run here. Carries every reason."""

    problem = "preflight"

    def __init__(self, reasons: list[str]) -> None:
        self.reasons = reasons
        super().__init__("\n".join(reasons))


class FailureKind(StrEnum):
    """Why an engine or a round failed, as far as its log and its answers say."""

    BAD_FLAG = "bad_flag"
    BAD_SPECULATIVE_CONFIG = "bad_speculative_config"
    MISSING_MODEL = "missing_model"
    GATED_MODEL = "gated_model"
    MISSING_PACKAGE = "missing_package"
    KV_CACHE_TOO_SMALL = "kv_cache_too_small"
    OUT_OF_MEMORY = "out_of_memory"
    REQUEST_REJECTED = "request_rejected"
    BAD_COUNTERS = "bad_counters"
    PORT_TAKEN = "port_taken"
    STARTUP_TIMEOUT = "startup_timeout"
    WORKER_CRASHED = "worker_crashed"
    DIED = "died"
    REQUESTS_FAILED = "requests_failed"
    UNKNOWN = "unknown"

    @property
    def deterministic(self) -> bool:
        """True where the same setting would fail the same way again: not worth another start."""
        return self in _DETERMINISTIC


_DETERMINISTIC = frozenset(
    {
        FailureKind.BAD_FLAG,
        FailureKind.BAD_SPECULATIVE_CONFIG,
        FailureKind.MISSING_MODEL,
        FailureKind.GATED_MODEL,
        FailureKind.MISSING_PACKAGE,
        FailureKind.KV_CACHE_TOO_SMALL,
        FailureKind.OUT_OF_MEMORY,
        FailureKind.REQUEST_REJECTED,
        FailureKind.BAD_COUNTERS,
    }
)


@dataclass(frozen=True)
class Failure:
    """Why something failed: its kind, the line that says so, and an exit code if there was one."""

    kind: FailureKind
    message: str
    exit_code: int | None = None

    def __str__(self) -> str:
        code = "" if self.exit_code is None else f" (exit code {self.exit_code})"
        return f"{self.kind.value.replace('_', ' ')}: {self.message}{code}"


class EngineError(TunerError):
    exit_code = 4
    problem = "engine"

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(str(failure))


class EngineStartError(EngineError):
    problem = "engine-start"


class EngineDiedError(EngineError):
    problem = "engine-died"


class RoundError(EngineError):
    problem = "round"


class BaselineError(TunerError):
    """Carries the baseline's Failure. No EngineError: it never counts against a candidate."""

    exit_code = 4
    problem = "baseline"

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(f"the baseline (no speculative config) failed: {failure}")


class ScoringError(TunerError):
    exit_code = 4
    problem = "scoring"


class NothingMeasuredError(TunerError):
    exit_code = 5
    problem = "nothing-measured"


class IncomparableError(TunerError):
    exit_code = 5
    problem = "incomparable"
