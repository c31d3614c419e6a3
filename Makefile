# Everything from a fresh clone: `make demo` and `make test` set up what they need.
# PYTHON=python3.12 chooses the interpreter; PIP_FLAGS is handed to pip (a mirror, an index of CPU builds, ...).

# The pinned versions need Python 3.11: the first of these that is new enough.
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
PIP_FLAGS ?=
# One process per core, each on one thread, is faster for tests than several threads in one process.
WORKERS ?= auto

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST := OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false $(BIN)/python -m pytest -n $(WORKERS) --maxprocesses 4

.DEFAULT_GOAL := help
.PHONY: help install model demo test test-all lint format bench docs clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP)  ## Make the virtual environment, once per change of pyproject.toml or constraints.txt

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.12" >&2; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(PIP_FLAGS) -c constraints.txt torch
	$(BIN)/python -m pip install --quiet $(PIP_FLAGS) -c constraints.txt -e '.[dev]'
	touch $@

model: $(STAMP)  ## Fetch and convert the embedded model into the cache, once
	$(BIN)/groundscope models fetch smollm2-135m

demo: model  ## Score real answers, print them highlighted, write report.html
	$(BIN)/python examples/demo.py

test: model  ## Run the tests that take seconds
	$(PYTEST) -m "not slow"

test-all: model  ## Run all tests
	$(PYTEST)

lint: $(STAMP)  ## Check style, types and the direction of imports
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)  ## Apply the style
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: model  ## Run every benchmark
	set -e; for script in benchmarks/bench_*.py; do echo "== $$script"; $(BIN)/python $$script; done

docs: $(STAMP)  ## Write the generated pages of docs/ anew
	GROUNDSCOPE_UPDATE_DOCS=1 $(PYTEST) tests/trace/test_family_table.py

clean:  ## Remove what the targets above made, apart from the model cache
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .import_linter_cache .ruff_cache .hypothesis report.html
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
