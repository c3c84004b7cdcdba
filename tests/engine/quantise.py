"""Writes an int8 copy of a model, for vLLM's own kernels (run with vLLM's interpreter).

``python quantise.py MODEL COPY``: weights symmetric for each output channel, activations quantised
as they come, in the checkpoint format of compressed-tensors.
"""

import json
import shutil
import sys
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import int8

CONFIG = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "quantization_status": "compressed",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {
                "num_bits": 8,
                "type": "int",
                "symmetric": True,
                "strategy": "channel",
                "dynamic": False,
            },
            "input_activations": {
                "num_bits": 8,
                "type": "int",
                "symmetric": True,
                "strategy": "token",
                "dynamic": True,
            },
        }
    },
}


def main(model: Path, copy: Path) -> None:
    shutil.copytree(model, copy, ignore=shutil.ignore_patterns("*.safetensors*"))
    tensors = {}
    for file in model.glob("*.safetensors"):
        for name, weight in load_file(file).items():
            if name.endswith("_proj.weight"):
                scale = weight.float().abs().amax(dim=1, keepdim=True) / 127
                tensors[name] = (weight.float() / scale).round().clamp(-127, 127).to(int8)
                tensors[f"{name}_scale"] = scale
            else:
                tensors[name] = weight
    save_file(tensors, copy / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"quantization_config": CONFIG}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
