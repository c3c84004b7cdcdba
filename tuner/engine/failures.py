"""Why an engine failed, read from its log. The signatures are those of vLLM 0.32."""

from __future__ import annotations

import re

from tuner.errors import Failure, FailureKind

MESSAGE_LENGTH = 300

# Within one error the first that matches decides: a draft that does not exist is reported inside
# a "validation error for SpeculativeConfig", and Hugging Face says 401 for a missing repository.
MISSING_MODEL = (
    r"Repo id must be|LocalEntryNotFoundError|Invalid repository ID or local directory"
    r"|RepositoryNotFoundError|RevisionNotFoundError|is not a valid model identifier"
)
GATED_MODEL = r"GatedRepoError|gated repo|40[13] Client Error|Access to model .* is restricted"
BAD_SPECULATIVE_CONFIG = (
    r"validation errors? for SpeculativeConfig|error: argument --speculative-config"
    r"|should have the same vocabulary size"
)
OUT_OF_MEMORY = (
    r"(?:CUDA|HIP|XPU) out of memory|OutOfMemoryError|Available memory on node"
    r"|Free memory on device|std::bad_alloc|not enough memory: you tried to allocate"
    r"|Cannot allocate memory"
)
KV_CACHE_TOO_SMALL = r"No available memory for the cache blocks|To serve at least one request"
SIGNATURES = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        (FailureKind.MISSING_MODEL, MISSING_MODEL),
        (FailureKind.GATED_MODEL, GATED_MODEL),
        (FailureKind.MISSING_PACKAGE, r"ModuleNotFoundError: No module|ImportError: .*[Ii]nstall"),
        (FailureKind.BAD_SPECULATIVE_CONFIG, BAD_SPECULATIVE_CONFIG),
        (FailureKind.BAD_FLAG, r"^[\w.\- ]+: error: |validation errors? for \w+Config"),
        (FailureKind.PORT_TAKEN, r"(?i)address already in use"),
        (FailureKind.KV_CACHE_TOO_SMALL, KV_CACHE_TOO_SMALL),
        (FailureKind.OUT_OF_MEMORY, OUT_OF_MEMORY),
    )
)
CRASHES = (
    (FailureKind.WORKER_CRASHED, re.compile(r"WorkerProc failed to start|died unexpectedly")),
    (FailureKind.DIED, re.compile(r"EngineDeadError|EngineCore encountered")),
)
GENERIC = re.compile(
    r"See root cause above|EngineCore encountered an issue|WorkerProc initialization failed"
    r"|cancelled|KeyboardInterrupt"
)
PREFIX = re.compile(
    r"^(?:\([^)]*pid=\d+\) )?(?:(?:ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\] ?)?"
)
HARMLESS = re.compile(r"^(?:\([^)]*pid=\d+\) )?(?:DEBUG|INFO|WARNING)[ :]|, retrying \d+ of \d+$")
EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit)\b: ?")


def classify(log: str, exit_code: int | None) -> Failure:
    """The failure that an engine's log tells, from the first error in it that is known.

    vLLM's last line is generic, and so is the first of a worker's report; a crash is named only if
    no error says more, by the first exception. Exit code 0 is a failure like any other: nobody asks
    whether an engine failed that was meant to end.
    """
    errors = _errors(log)
    for error in errors:
        for kind, pattern in SIGNATURES:
            if pattern.search(error):
                return Failure(kind, _readable(error), exit_code)
    first = next((e for e in errors if EXCEPTION.match(e) and not GENERIC.search(e)), None)
    for kind, pattern in CRASHES:
        for error in errors:
            if pattern.search(error):
                return Failure(kind, _readable(first or error), exit_code)
    message = _readable(first) if first else "the log names no error"
    return Failure(FailureKind.UNKNOWN, message, exit_code)


def _errors(log: str) -> list[str]:
    """The log's lines without prefixes; a validation error's has its reasons, too.

    Left out are harmless lines and a traceback's indented ones, which are source code.
    """
    lines = [PREFIX.sub("", line) for line in log.splitlines() if not HARMLESS.search(line)]
    return [
        " ".join([line, *_reasons(lines[index + 1 :])]) if "validation error" in line else line
        for index, line in enumerate(lines)
        if not line.startswith(" ")
    ]


def _reasons(following: list[str]) -> list[str]:
    """What pydantic writes under a validation error, without its links and inputs."""
    reasons: list[str] = []
    for line in following:
        if "errors.pydantic.dev" in line:
            break
        is_place = not reasons and not line.startswith(" ")
        reasons.append(f"{line}:" if is_place else line.partition(" [type=")[0].strip())
    return reasons


def _readable(error: str) -> str:
    """One line for people: no exception class, no pydantic preamble, at most MESSAGE_LENGTH."""
    text = EXCEPTION.sub("", error.strip())
    text = re.sub(r"^[\w.\- ]+: error: ", "", text)
    text = re.sub(r"^\d+ validation errors? for \w+ +(?:Value error, )?", "", text).strip()
    return text if len(text) <= MESSAGE_LENGTH else f"{text[: MESSAGE_LENGTH - 1]}…"
