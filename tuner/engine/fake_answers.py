"""The fake's HTTP: vLLM's OpenAI routes, health, version and metrics."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Literal

from aiohttp import web

from tuner.engine.fake_decode import Decoder, Running, Totals
from tuner.engine.fake_script import Fault, SpeculativeConfig

DEFAULT_MAX_TOKENS = 16
MIN_P_REFUSED = (
    "The min_p and logit_bias sampling parameters are not yet supported with speculative decoding."
)
Body = dict[str, Any]
Kind = Literal["chat", "completions"]


class Answers:
    """The routes of one server. ``die`` ends the process as a fault's kind does it."""

    def __init__(
        self,
        model: str,
        version: str,
        *,
        config: SpeculativeConfig | None,
        decoder: Decoder,
        faults: list[Fault],
        die: Callable[[Fault], None],
    ) -> None:
        self._model = model
        self._version = version
        self._config = config
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
        return web.json_response({"version": self._version})

    async def _models(self, _: web.Request) -> web.Response:
        card = {"id": self._model, "object": "model", "owned_by": "vllm"}
        return web.json_response({"object": "list", "data": [card]})

    async def _metrics(self, _: web.Request) -> web.Response:
        totals = self._decoder.totals
        if self._fault("negative_counters"):
            totals = replace(totals, accepted=-1 - totals.accepted)
        text = metrics_text(self._model, totals, self._decoder.running)
        return web.Response(text=text, content_type="text/plain")

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        prompt = "\n".join(f"{m['role']}: {m['content']}" for m in body["messages"])
        limit = body.get("max_completion_tokens") or body.get("max_tokens")
        return await self._answer(request, body, prompt, limit or DEFAULT_MAX_TOKENS, "chat")

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        limit = body.get("max_tokens") or DEFAULT_MAX_TOKENS
        return await self._answer(request, body, body["prompt"], limit, "completions")

    async def _answer(
        self, request: web.Request, body: Body, prompt: str, limit: int, kind: Kind
    ) -> web.StreamResponse:
        refusal = await self._refusal(body)
        if refusal is not None:
            return refusal
        running = self._decoder.request(prompt, limit, ignore_eos=bool(body.get("ignore_eos")))
        if body.get("stream"):
            return await self._stream(request, body, running, kind)
        words = [word async for step in self._decoder.decode(running) for word in step.words]
        text = " ".join(words)
        content = {"message": {"role": "assistant", "content": text}}
        choice: Body = {"index": 0, "logprobs": None, "finish_reason": running.finish_reason}
        choice |= content if kind == "chat" else {"text": text}
        answer = {"choices": [choice], "usage": _usage(running)}
        return web.json_response(self._envelope(kind, chunk=False) | answer)

    async def _refusal(self, body: Body) -> web.Response | None:
        """Counts the request; an error answer where it is refused."""
        self._requests += 1
        for kind in ("die_under_load", "crash", "out_of_memory"):
            if fault := self._fault(kind):
                self._die(fault)
        if self._fault("hang"):
            await asyncio.Event().wait()
        if self._fault("fail_requests"):
            return _error(500, "InternalServerError", "scripted: this request fails")
        if self._fault("reject_requests"):
            return _error(400, "BadRequestError", "scripted: this request is rejected")
        if body.get("model") != self._model:
            message = f"The model `{body.get('model')}` does not exist."
            return _error(404, "NotFoundError", message)
        if self._config and (_min_p(body) or body.get("logit_bias")):
            return _error(400, "BadRequestError", MIN_P_REFUSED)
        return None

    def _fault(self, kind: str) -> Fault | None:
        """The fault of this kind that applies now, if one does."""
        due = (f for f in self._faults if f.kind == kind and self._requests > f.after_requests)
        return next(due, None)

    async def _stream(
        self, request: web.Request, body: Body, running: Running, kind: Kind
    ) -> web.StreamResponse:
        """Server-sent events, one per decode step, as vLLM sends them."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        envelope = self._envelope(kind, chunk=True)
        if kind == "chat":
            role = {"role": "assistant", "content": ""}
            await _send(response, envelope | {"choices": [_choice(kind, role, None)]})
        between = ""
        async with aclosing(self._decoder.decode(running)) as steps:
            async for step in steps:
                delta = {"content": between + " ".join(step.words)}
                choice = _choice(kind, delta, step.finish_reason)
                await _send(response, envelope | {"choices": [choice]})
                between = " "
        wants_usage = (body.get("stream_options") or {}).get("include_usage")
        if wants_usage and not self._fault("no_usage"):
            await _send(response, envelope | {"choices": [], "usage": _usage(running)})
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

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


def metrics_text(model: str, totals: Totals, running: int) -> str:
    """Prometheus text with vLLM's names, of one engine; no spec counters without speculation."""
    labels = f'engine="0",model_name="{model}"'
    counters = {
        "prompt_tokens": totals.prompt_tokens,
        "generation_tokens": totals.generation_tokens,
        "prefix_cache_queries": totals.prefix_queries,
        "prefix_cache_hits": totals.prefix_hits,
        "num_preemptions": 0,
    }
    per_position = "spec_decode_num_accepted_tokens_per_pos"
    if totals.accepted_at:
        counters |= {
            "spec_decode_num_drafts": totals.drafts,
            "spec_decode_num_draft_tokens": totals.draft_tokens,
            "spec_decode_num_accepted_tokens": totals.accepted,
        }
    lines = [
        "# TYPE vllm:num_requests_running gauge",
        f"vllm:num_requests_running{{{labels}}} {float(running)}",
    ]
    for name, value in counters.items():
        lines += _counter(name, {labels: value})
    if totals.accepted_at:
        lines += _counter(
            per_position,
            {f'{labels},position="{i}"': n for i, n in enumerate(totals.accepted_at)},
        )
    return "\n".join(lines) + "\n"


def _counter(name: str, series: dict[str, int]) -> list[str]:
    """A counter as prometheus_client writes it: values, then when each series was created."""
    created = 1.75e9
    return [
        f"# HELP vllm:{name}_total As vLLM counts it.",
        f"# TYPE vllm:{name}_total counter",
        *(f"vllm:{name}_total{{{labels}}} {float(value)}" for labels, value in series.items()),
        f"# HELP vllm:{name}_created As vLLM counts it.",
        f"# TYPE vllm:{name}_created gauge",
        *(f"vllm:{name}_created{{{labels}}} {created}" for labels in series),
    ]


def _choice(kind: Kind, delta: Body, finish_reason: str | None) -> Body:
    content = {"delta": delta} if kind == "chat" else {"text": delta["content"]}
    return {"index": 0, "logprobs": None, "finish_reason": finish_reason} | content


def _usage(running: Running) -> Body:
    prompt = len(running.prompt.split())
    return {
        "prompt_tokens": prompt,
        "completion_tokens": running.produced,
        "total_tokens": prompt + running.produced,
    }


def _error(status: int, kind: str, message: str) -> web.Response:
    error = {"message": message, "type": kind, "param": None, "code": status}
    return web.json_response({"error": error}, status=status)
