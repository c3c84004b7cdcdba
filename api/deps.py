"""What routes ask for by annotation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from fastapi import Depends, Path, Request

from tuner.store import Store


def _open_store(request: Request) -> Iterator[Store]:
    """Opened for each request: a database that comes up or is upgraded late needs no restart."""
    with Store.open(request.app.state.storage_url, request.app.state.data_dir) as store:
        yield store


OpenStore = Annotated[Store, Depends(_open_store, scope="function")]
StudyName = Annotated[str, Path(description="The study's name, as in its file.")]
