"""Where a study comes from: a file, a preset, or the store."""

from __future__ import annotations

from pathlib import Path

from studies import presets
from tuner.errors import NotFoundError
from tuner.settings import Settings
from tuner.spec import StudySpec
from tuner.spec_file import load_study, parse_study
from tuner.store import Store, is_empty


def find_study(name: str, settings: Settings) -> StudySpec:
    """A path if there is such a file or it looks like one, else a preset, else a stored study."""
    path = Path(name)
    if path.is_file():
        return load_study(path)
    if name in presets.names():
        return parse_study(presets.read(name), f"preset {name}")
    if path.suffix in {".yaml", ".yml"} or len(path.parts) > 1:
        raise NotFoundError(f"there is no study file {name}")
    known = []
    if not is_empty(settings.storage_url):
        with Store.open(settings.storage_url, settings.data_dir) as store:
            records = {record.name: record.spec for record in store.studies()}
        if name in records:
            return records[name]
        known = list(records)
    raise NotFoundError(
        f"'{name}' is neither a file, nor a preset ({', '.join(presets.names())}),"
        f" nor a stored study ({', '.join(known) or 'there is none'})"
    )
