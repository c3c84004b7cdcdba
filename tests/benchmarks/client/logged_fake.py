"""The fake server, with a log of when it wrote what: the truth that a client is held against.

``python -m tests.benchmarks.client.logged_fake LOG ...`` takes the fake's own arguments after LOG.
When it is stopped, LOG gets a JSON list with each streamed request's body, the moment it was
received and the moments of its writes. They are ``time.perf_counter()`` values, which all processes
on a Linux machine count from the same moment.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from aiohttp import web

from tuner.engine import fake

LOG: list[dict[str, Any]] = []


class LoggedResponse(web.StreamResponse):
    async def prepare(self, request: web.BaseRequest) -> Any:
        if not self.prepared:  # aiohttp prepares it again when the answer has been written
            received_s = time.perf_counter()
            body = await request.json()
            self._writes_s: list[float] = []
            LOG.append({"body": body, "received_s": received_s, "writes_s": self._writes_s})
        return await super().prepare(request)

    async def write(self, data: Any) -> None:
        self._writes_s.append(time.perf_counter())
        await super().write(data)


def main() -> None:
    log = Path(sys.argv.pop(1))
    web.StreamResponse = LoggedResponse  # type: ignore[misc]
    try:
        fake.main()
    finally:
        log.write_text(json.dumps(LOG))


if __name__ == "__main__":
    main()
