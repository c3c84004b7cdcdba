"""Says of recorded answers which of their tokens a draft model would have drafted.

Runs inside vLLM's environment (torch, transformers) and imports nothing else of this project:
``python score_drafts.py < request``. The request is a JSON object:

target, revision    the served model, whose size drafts are compared with
dtype               as vLLM takes it; "auto" is the target's own, which vLLM's drafts take too
device              "cpu", "cuda", or "auto": the GPU where the draft fits into its free memory
trust_remote_code   whether a model's own code may run
drafts              [{"model", "revision"}, ...]
answers             [{"prompt": [ids], "output": [ids]}, ...]

On stdout goes {"target_parameters", "drafts": [...]}, one object per draft in the same order:
{"agreements", "parameters", "seconds"}, or {"error"} where it cannot be scored. ``agreements`` has
a string for each answer, "1" for each of its tokens that the draft finds likeliest after all that
stands before it, else "0". Progress goes to stderr, a line that begins with "[" for each draft.
"""

from __future__ import annotations

import contextlib
import gc
import inspect
import json
import os
import sys
import time

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

THREADS = 2
ROOM = 1.5
"""Free memory of a GPU that a draft needs, in sizes of its weights."""

DTYPES = {
    "half": torch.float16,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float": torch.float32,
    "float32": torch.float32,
}


def config_of(model: str, revision: str | None, request: dict) -> object:
    trust = request["trust_remote_code"]
    return AutoConfig.from_pretrained(model, revision=revision, trust_remote_code=trust)


def engine_dtype(request: dict) -> torch.dtype:
    """What the engine computes in; vLLM's "auto" never serves float32."""
    if request["dtype"] != "auto":
        return DTYPES[request["dtype"]]
    own = getattr(config_of(request["target"], request["revision"], request), "dtype", None)
    return own if own in {torch.float16, torch.bfloat16} else torch.bfloat16


def size(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def target_parameters(request: dict) -> int | None:
    """From the target's config alone: none of its weights are loaded."""
    try:
        config = config_of(request["target"], request["revision"], request)
        with torch.device("meta"):
            trust = request["trust_remote_code"]
            return size(AutoModelForCausalLM.from_config(config, trust_remote_code=trust))
    except Exception as error:  # noqa: BLE001 - a model's own code may fail in any way
        print(f"the target's size is unknown: {error}", file=sys.stderr)
        return None


def load(draft: dict, request: dict) -> torch.nn.Module:
    config = config_of(draft["model"], draft["revision"], request)
    if getattr(config, "quantization_config", None):
        raise ValueError("it is quantised: only vLLM computes it as it would be served")
    model = AutoModelForCausalLM.from_pretrained(
        draft["model"],
        revision=draft["revision"],
        trust_remote_code=request["trust_remote_code"],
        dtype=engine_dtype(request),
    )
    return model.eval().to(device_for(model, request["device"]))


def device_for(model: torch.nn.Module, asked: str) -> str:
    if asked != "auto":
        return asked
    if not torch.cuda.is_available():
        return "cpu"
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    free, _ = torch.cuda.mem_get_info()
    return "cuda" if free > ROOM * weights else "cpu"


def agreements(model: torch.nn.Module, prompt: list[int], output: list[int]) -> str:
    """One pass over an answer. Beyond the draft's own context nothing agrees."""
    context = getattr(model.config, "max_position_embeddings", None) or len(prompt) + len(output)
    scored = min(len(output), context - len(prompt) + 1)
    if scored < 1:
        return "0" * len(output)
    ids = torch.tensor([(prompt + output)[: len(prompt) + scored - 1]], device=model.device)
    # The last `scored` places: those after which a token of the answer comes.
    kept = {"logits_to_keep": scored} if keeps_some_logits(model) else {}
    logits = model(input_ids=ids, use_cache=False, **kept).logits[0, -scored:]
    found = logits.argmax(dim=-1).tolist()
    same = "".join("01"[a == b] for a, b in zip(found, output, strict=False))
    return same.ljust(len(output), "0")


def keeps_some_logits(model: torch.nn.Module) -> bool:
    return "logits_to_keep" in inspect.signature(model.forward).parameters


def score(draft: dict, request: dict) -> dict:
    began = time.monotonic()
    try:
        model = load(draft, request)
        with torch.inference_mode():
            found = [agreements(model, a["prompt"], a["output"]) for a in request["answers"]]
        parameters = size(model)
    except Exception as error:  # noqa: BLE001 - a model's own code may fail in any way
        return {"error": f"{type(error).__name__}: {error}"}
    finally:
        model = None
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    seconds = time.monotonic() - began
    return {"agreements": found, "parameters": parameters, "seconds": seconds}


def main() -> None:
    request = json.load(sys.stdin)
    torch.set_num_threads(min(THREADS, os.cpu_count() or 1))
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    drafts = request["drafts"]
    scored = []
    with contextlib.redirect_stdout(sys.stderr):  # whatever a model's own code prints
        for number, draft in enumerate(drafts, start=1):
            print(f"[{number}/{len(drafts)}] scoring {draft['model']}", flush=True)
            scored.append(score(draft, request))
        parameters = target_parameters(request)
    json.dump({"target_parameters": parameters, "drafts": scored}, sys.stdout)


if __name__ == "__main__":
    main()
