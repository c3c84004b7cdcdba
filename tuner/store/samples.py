"""Samples of single requests: a gzip'd JSONL file for every measurement, beside the database."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import NamedTemporaryFile

from pydantic import TypeAdapter

from tuner.errors import StorageError
from tuner.records import RequestSample
from tuner.store.sound import require_sound

FOLDER = "samples"

_SAMPLE = TypeAdapter(RequestSample)


def write_samples(
    data_dir: Path, measurement_id: str, samples: Sequence[RequestSample]
) -> tuple[str, str]:
    """Write them whole or not at all. Returns (path relative to ``data_dir``, SHA-256 of the file).

    Raises ``RoundError`` where a number is NaN, infinite or negative, ``StorageError`` where the
    file cannot be written.
    """
    for sample in samples:
        require_sound(f"measurement {measurement_id}, request {sample.prompt_id}", sample)
    lines = "".join(json.dumps(asdict(sample), allow_nan=False) + "\n" for sample in samples)
    content = gzip.compress(lines.encode(), mtime=0)
    path = Path(FOLDER) / f"{measurement_id}.jsonl.gz"
    try:
        _write_whole(data_dir / path, content)
    except OSError as error:
        raise StorageError(f"samples of measurement {measurement_id}: {error}") from error
    return str(path), hashlib.sha256(content).hexdigest()


def read_samples(data_dir: Path, path: str) -> list[RequestSample]:
    """The samples in a file of ``write_samples``. ``StorageError`` where it is gone or broken."""
    try:
        with gzip.open(data_dir / path, "rt", encoding="utf-8") as lines:
            return [_SAMPLE.validate_python(json.loads(line)) for line in lines]
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise StorageError(f"samples {path} in {data_dir}: {error}") from error


def _write_whole(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile(dir=path.parent, prefix=path.name, delete=False) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    Path(file.name).replace(path)
