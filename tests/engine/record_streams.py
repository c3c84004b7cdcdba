"""Records what a real vLLM streams, for test_recorded_stream.py.

``python -m tests.engine.record_streams`` starts SmolLM2 with ngram, sends eight requests that
overlap, and writes each read of each answer with its time.
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp

from tests.engine.conftest import RealVllm, _running
from tuner.engine.server import Server
from tuner.load.prompts import load_prompts
from tuner.settings import Settings
from tuner.spec import Workload

RECORDED = Path(__file__).with_name("recorded-streams-0.32.0.json")
CONFIG = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}
GAP_S = 0.15
REQUESTS = 8
TOKENS = (24, 32, 40, 48, 56, 64, 72, 80)


async def record(server: Server) -> list[dict[str, Any]]:
    """One entry per request: its endpoint, when it was sent, and every read of its answer."""
    prompts = [p for p in load_prompts(Workload()) if p.messages and len(p.messages) == 1]
    chosen = prompts[:: len(prompts) // REQUESTS][:REQUESTS]
    texts = [str(p.messages[0]["content"]) for p in chosen if p.messages]
    async with aiohttp.ClientSession() as session:
        start = time.perf_counter()

        async def stream(number: int, text: str) -> dict[str, Any]:
            await asyncio.sleep(GAP_S * number)
            is_chat = number % 2 == 0
            endpoint = "chat/completions" if is_chat else "completions"
            asked = (
                {"messages": [{"role": "user", "content": text}]} if is_chat else {"prompt": text}
            )
            body = {
                **asked,
                "model": server.model,
                "max_tokens": TOKENS[number],
                "temperature": 0.0,
                "stream": True,
                "stream_options": {"include_usage": True},
                "return_token_ids": True,
            }
            sent = time.perf_counter()
            async with session.post(f"{server.base_url}/v1/{endpoint}", json=body) as response:
                response.raise_for_status()
                reads = [
                    [(time.perf_counter() - sent) * 1000, received.decode()]
                    async for received in response.content.iter_any()
                ]
            named = [[at_ms, read.replace(server.model, "smollm2")] for at_ms, read in reads]
            return {"endpoint": endpoint, "sent_s": sent - start, "reads": named}

        return await asyncio.gather(*(stream(n, text) for n, text in enumerate(texts)))


def main() -> None:
    settings = Settings()
    model = settings.models_dir / "smollm2-family" / "smollm2"
    vllm = RealVllm(settings.default_engine_python, str(model))
    with TemporaryDirectory() as folder, _running(vllm.command(CONFIG), Path(folder)) as server:
        asyncio.run(record(server))  # warm-up
        streams = asyncio.run(record(server))
    RECORDED.write_text(json.dumps(streams, indent=0, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
