"""The fake's HTTP: vLLM's OpenAI routes, tokenizer, health, version and metrics."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace

from aiohttp import web

from tuner.engine import fake_bodies
from tuner.engine.fake_bodies import Body, Kind, refuse
from tuner.engine.fake_decode import Decoder, Running, Step
from tuner.engine.fake_metrics import metrics_text
from tuner.engine.fake_script import FakeScript, Fault
from tuner.engine.fake_text import decode

MIN_P_REFUSED = (
    "The min_p and logit_bias sampling parameters are not yet supported with speculative decoding."
)


class Answers:
    """The routes of one server. ``die`` ends the process as a fault's kind does it."""

    def __init__(
        self,
        model: str,
        script: FakeScript,
        decoder: Decoder,
        *,
        faults: list[Fault],
        die: Callable[[Fault], None],
    ) -> None:
        self._model = model
        self._script = script
        self._decoder = decoder
        self._faults = faults
        self._die = die
        self._requests = 0

    def application(self) -> web.Application:
        app = web.Application()
        app.add_routes(
            [
                web.get("/health", self._health),
                web.get("/version", self._say_version),
                web.get("/v1/models", self._models),
                web.get("/metrics", self._metrics),
                web.post("/tokenize", self._tokenize),
                web.post("/v1/chat/completions", self._chat),
                web.post("/v1/completions", self._completions),
            ]
        )
        app.cleanup_ctx.append(self._decoding)
        return app

    async def _decoding(self, _: web.Application) -> AsyncIterator[None]:
        loop = asyncio.create_task(self._decoder.run())
        yield
        loop.cancel()

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _say_version(self, _: web.Request) -> web.Response:
        return web.json_response({"version": self._script.version})

    async def _models(self, _: web.Request) -> web.Response:
        card = {
            "id": self._model,
            "object": "model",
            "owned_by": "vllm",
            "max_model_len": self._script.max_model_len,
        }
        return web.json_response({"object": "list", "data": [card]})

    async def _metrics(self, _: web.Request) -> web.Response:
        decoder = self._decoder
        totals = decoder.totals
        if self._fault("negative_counters"):
            totals = replace(totals, accepted=-1 - totals.accepted)
        text = metrics_text(self._model, totals, running=decoder.running, waiting=decoder.waiting)
        return web.Response(text=text, content_type="text/plain")

    async def _tokenize(self, request: web.Request) -> web.Response:
        body = await request.json()
        self._check_model(body.get("model", self._model))
        ids = fake_bodies.prompt_ids(body)
        limit = self._script.max_model_len
        return web.json_response(
            {"count": len(ids), "max_model_len": limit, "tokens": ids, "token_strs": None}
        )

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, "chat")

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, "completions")

    async def _answer(self, request: web.Request, kind: Kind) -> web.StreamResponse:
        body = await request.json()
        await self._admit(body)
        prompt = fake_bodies.prompt_ids(body)
        limit = fake_bodies.output_limit(body, len(prompt), self._script.max_model_len)
        running = self._decoder.request(prompt, limit, ignore_eos=bool(body.get("ignore_eos")))
        if body.get("stream"):
            return await self._stream(request, body, running, kind)
        return await self._whole(body, running, kind)

    async def _admit(self, body: Body) -> None:
        """Counts the request, and refuses or breaks it where that is due."""
        self._requests += 1
        for kind in ("die_under_load", "crash", "out_of_memory"):
            if fault := self._fault(kind):
                self._die(fault)
        if self._fault("hang"):
            await asyncio.Event().wait()
        if self._fault("fail_requests"):
            refuse(
                "scripted: this request fails",
                error=web.HTTPInternalServerError,
                kind="InternalServerError",
            )
        if self._fault("reject_requests"):
            refuse("scripted: this request is rejected")
        self._check_model(body.get("model"))
        if self._decoder.k and (_min_p(body) or body.get("logit_bias")):
            refuse(MIN_P_REFUSED)
        if body.get("stream") and body.get("prompt_logprobs"):
            refuse("`prompt_logprobs` are not available when `stream=True`.", "prompt_logprobs")

    def _check_model(self, name: str | None) -> None:
        if name != self._model:
            message = f"The model `{name}` does not exist."
            refuse(message, "model", error=web.HTTPNotFound, kind="NotFoundError")

    def _fault(self, kind: str) -> Fault | None:
        """The fault of this kind that applies now, if one does."""
        due = (f for f in self._faults if f.kind == kind and self._requests > f.after_requests)
        return next(due, None)

    async def _whole(self, body: Body, running: Running, kind: Kind) -> web.Response:
        tokens: list[int] = []
        async with aclosing(self._decoder.decode(running)) as steps:
            async for step in steps:
                tokens += step.tokens
        text = decode(running.prompt if fake_bodies.only_echoes(body) else tokens)
        choice = fake_bodies.choice(kind, body, text, tokens, running.finish_reason)
        answer = self._envelope(kind, chunk=False) | {
            "choices": [choice],
            "usage": fake_bodies.usage(running),
            "metrics": fake_bodies.metrics(running, self._decoder.k),
        }
        prompt = running.prompt if body.get("return_token_ids") else None
        if kind == "chat":
            choice["message"] = {"role": "assistant", **choice.pop("delta")}
            answer["prompt_token_ids"] = prompt
        else:
            choice["prompt_token_ids"] = prompt
            top = body.get("prompt_logprobs")
            choice["prompt_logprobs"] = None if top is None else self._score(running.prompt, top)
        return web.json_response(answer)

    def _score(self, ids: Sequence[int], top: int) -> list[Body | None]:
        return fake_bodies.prompt_logprobs(self._decoder.text, ids, top)

    async def _stream(
        self, request: web.Request, body: Body, running: Running, kind: Kind
    ) -> web.StreamResponse:
        """Server-sent events, as vLLM sends them."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        envelope = self._envelope(kind, chunk=True)
        prompt = running.prompt if body.get("return_token_ids") else None
        if kind == "chat":
            role = fake_bodies.choice(kind, {}, "", (), None)
            role["delta"]["role"] = "assistant"
            await _send(response, envelope | {"choices": [role], "prompt_token_ids": prompt})
        between = ""
        async with aclosing(self._chunks(running)) as chunks:
            async for chunk in chunks:
                text = between + decode(chunk.tokens)
                choice = fake_bodies.choice(kind, body, text, chunk.tokens, chunk.finish_reason)
                if kind == "completions":
                    choice["prompt_token_ids"], prompt = prompt, None
                await _send(response, envelope | {"choices": [choice]})
                between = " "
        wants_usage = (body.get("stream_options") or {}).get("include_usage")
        if wants_usage and not self._fault("no_usage"):
            last = {"choices": [], "usage": fake_bodies.usage(running)}
            if metrics := fake_bodies.metrics(running, self._decoder.k):
                last["metrics"] = metrics
            await _send(response, envelope | last)
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    async def _chunks(self, running: Running) -> AsyncGenerator[Step]:
        """The request's steps, so many at once as a chunk is to carry."""
        gathered: list[int] = []
        count = self._script.steps_per_chunk - 1  # the first goes alone
        async with aclosing(self._decoder.decode(running)) as steps:
            async for step in steps:
                gathered += step.tokens
                count += 1
                if step.finish_reason or count == self._script.steps_per_chunk:
                    yield Step(gathered, step.finish_reason)
                    gathered, count = [], 0

    def _envelope(self, kind: Kind, *, chunk: bool) -> Body:
        names = {
            "chat": ("chatcmpl", "chat.completion"),
            "completions": ("cmpl", "text_completion"),
        }
        prefix, name = names[kind]
        return {
            "id": f"{prefix}-{uuid.uuid4().hex}",
            "object": f"{name}.chunk" if chunk and kind == "chat" else name,
            "created": int(time.time()),
            "model": self._model,
        }


def _min_p(body: Body) -> float:
    """At temperature 0 nothing is drawn, and vLLM drops it."""
    return float(body.get("min_p") or 0) if body.get("temperature", 1) else 0.0


async def _send(response: web.StreamResponse, event: Body) -> None:
    await response.write(f"data: {json.dumps(event)}\n\n".encode())
