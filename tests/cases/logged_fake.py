"""The fake server, with a log of how it was started and what it was sent.

``python logged_fake.py FOLDER ...`` takes the fake's own arguments after FOLDER and adds a file of
JSON lines there: its arguments, then each streamed request with how many were under way already,
and the number of each that was answered to its end. The first request that is no probe is held
back until another one has come: what was sent together is together on a slow machine too.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from tuner.engine import fake, fake_bodies
from tuner.engine.fake_answers import Answers

PROBE_TOKENS = 8
PATIENCE_S = 20

LOG = Path(sys.argv.pop(1)) / f"{time.time_ns()}.jsonl"


def note(what: str, value: Any) -> None:
    with LOG.open("a") as log:
        log.write(json.dumps({what: value}) + "\n")


class LoggedAnswers(Answers):
    _numbers = count()
    _under_way = 0
    _is_first = True
    _another = asyncio.Event()

    def application(self) -> web.Application:
        app = super().application()
        app.middlewares.append(self._noted)
        return app

    @web.middleware
    async def _noted(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        body = await request.json() if request.can_read_body else {}
        if not body.get("stream"):
            return await handler(request)
        number = next(self._numbers)
        ids = fake_bodies.prompt_ids(body)
        note("sent", {"number": number, "ids": ids, "beside": self._under_way, "body": body})
        self._under_way += 1
        try:
            if body["max_tokens"] > PROBE_TOKENS:
                await self._wait_for_another()
            response = await handler(request)
        finally:
            self._under_way -= 1
        note("answered", number)
        return response

    async def _wait_for_another(self) -> None:
        """Only the first one waits."""
        if self._is_first:
            self._is_first = False
            with suppress(TimeoutError):
                await asyncio.wait_for(self._another.wait(), PATIENCE_S)
        else:
            self._another.set()


if __name__ == "__main__":
    note("argv", sys.argv[1:])
    fake.Answers = LoggedAnswers  # type: ignore[misc]
    fake.main()
