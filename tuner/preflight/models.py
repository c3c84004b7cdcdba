"""What a model's own files say of it: vocabulary, tokenizer, identity."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from tuner.spec import Target

SAMPLE_BYTES = 1 << 16


def folder(model: str) -> Path | None:
    """Where the model's files are: its own folder, or the newest snapshot in the hub's cache."""
    path = Path(model).expanduser()
    if path.is_dir():
        return path
    home = os.environ.get("HF_HOME", "~/.cache/huggingface")
    cache = Path(os.environ.get("HF_HUB_CACHE", f"{home}/hub")).expanduser()
    snapshots = (cache / f"models--{model.replace('/', '--')}" / "snapshots").glob("*/config.json")
    newest = max(snapshots, key=lambda file: file.stat().st_mtime, default=None)
    return newest.parent if newest else None


def is_path(model: str) -> bool:
    """Whether this can only be a path: a hub name has one slash at most and starts with a word."""
    return model.startswith(("/", "./", "../", "~")) or model.count("/") > 1


def config(place: Path) -> dict[str, Any]:
    """``config.json`` as a mapping. Raises OSError or ValueError when it cannot be read as one."""
    value = json.loads((place / "config.json").read_text(encoding="utf-8"))
    if not isinstance(value, dict):
        raise ValueError("config.json is not a JSON object")  # noqa: TRY004
    return value


def vocabulary_size(model_config: dict[str, Any]) -> int | None:
    """``vocab_size``, of the text part where a model has several."""
    size = model_config.get("vocab_size") or model_config.get("text_config", {}).get("vocab_size")
    return size if isinstance(size, int) else None


def context_tokens(model: str | None) -> int | None:
    """The longest text a model was made for, ``max_position_embeddings``; None where unknown."""
    place = folder(model) if model else None
    try:
        length = config(place).get("max_position_embeddings") if place else None
    except (OSError, ValueError):
        return None  # a file that can't be read is a problem of its own, told elsewhere
    return length if isinstance(length, int) else None


def vocabulary(place: Path) -> dict[str, int] | None:
    """Token to id from ``tokenizer.json``; None where there is none or it has another form."""
    file = place / "tokenizer.json"
    if not file.is_file():
        return None
    tokens = json.loads(file.read_text(encoding="utf-8")).get("model", {}).get("vocab")
    return tokens if isinstance(tokens, dict) else None


def target_digest(target: Target) -> str:
    """What identifies the served model: its files where they are at hand, else name and revision.

    Weights are sampled (start, middle and end of each file), not read whole: a 70B model would take
    minutes, and two checkpoints that differ do so in every matrix.
    """
    place = folder(target.model)
    if place is None:
        return hashlib.sha256(f"{target.model}@{target.revision}".encode()).hexdigest()
    seen = hashlib.sha256((place / "config.json").read_bytes())
    for file in sorted([*place.glob("*.safetensors"), *place.glob("*.bin")]):
        size = file.stat().st_size
        seen.update(f"{file.name}:{size}".encode())
        with file.open("rb") as weights:
            for start in (0, size // 2, max(0, size - SAMPLE_BYTES)):
                weights.seek(start)
                seen.update(weights.read(SAMPLE_BYTES))
    return seen.hexdigest()
