# Everything here works on a machine with only Python 3.11 or newer and make.
# The first target that needs it builds .venv from the hashed pins in requirements/.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
PYTHONS := python3 python3.14 python3.13 python3.12 python3.11

# Set PYTHON=/path/to/python to choose the interpreter.
PYTHON ?=

# What to hand to pytest, for example: make test PYTEST_ARGS='-k retry'
PYTEST_ARGS ?=

# What to hand to the proof, for example: make proof PROOF_ARGS='--minutes 60'
PROOF_ARGS ?=

# What to hand to the benchmark, for example: make bench BENCH_ARGS='--quick --json'
BENCH_ARGS ?=

RUNTIME := $(VENV)/.runtime-installed
DEV := $(VENV)/.dev-installed
DOCS := $(VENV)/.docs-installed

# The tests start Python several hundred times; without bytecode each start compiles every module it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test proof check lint types programs suite format bench docs pins clean

help: ## show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(RUNTIME) ## install what is needed and run the guided demo
	$(BIN)/stepkeep demo

test: lint ## run the checks and the tests: about ten minutes on two quiet cores
	@$(MAKE) --no-print-directory -j2 types suite

programs: $(DEV) ## install what the tests use beside Python: a browser, brokers, npm packages
	$(BIN)/python -m tests.system_programs
	$(BIN)/python -m tests.npm_packages

# mypy takes 20 seconds of one core, so it runs beside the tests.
suite: programs
	$(BIN)/python -m pytest -n auto --dist worksteal --durations=10 $(PYTEST_ARGS)

proof: programs ## run the long checks that docs/proof.md lists, part by part; what passed on this code is not run again
	$(BIN)/stepkeep lab proof $(PROOF_ARGS)

check: lint types ## lint, formatting, types and import contracts

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(DEV)
	$(BIN)/mypy

format: $(DEV) ## apply the formatter and the safe fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python -m tests.npm_packages format

bench: $(DEV) ## measure, on databases of its own: make bench BENCH_ARGS=--quick
	$(BIN)/stepkeep bench $(BENCH_ARGS)

docs: $(DOCS) ## build the documentation into site/
	$(BIN)/zensical build --clean

# --universal puts one answer for all supported Pythons and platforms into each file.
PIN := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
    --no-header --no-annotate --no-emit-index-url -c requirements/bounds.txt

pins: ## pin the newest allowed versions in requirements/ (needs uv)
	$(PIN) --upgrade pyproject.toml --extra postgres --extra server -o requirements/runtime.txt
	$(PIN) --upgrade --group build -c requirements/runtime.txt -o requirements/build.txt
	$(PIN) --upgrade pyproject.toml --all-extras --group dev \
	    -c requirements/runtime.txt -c requirements/build.txt -o requirements/dev.txt
	$(PIN) --upgrade --group docs -c requirements/dev.txt -o requirements/docs.txt

clean: ## remove .venv, caches and build output
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src lab tests -name __pycache__ -type d -prune -exec rm -rf {} +

# The package is built without isolation so that the build, too, uses only pinned packages.
$(RUNTIME): requirements/runtime.txt requirements/build.txt pyproject.toml | $(BIN)/python
	$(call install,--require-hashes -r requirements/runtime.txt)
	$(call install,--require-hashes -r requirements/build.txt)
	$(call install,--no-deps --no-build-isolation -e .)
	@touch $@

$(DEV): requirements/dev.txt lab/pyproject.toml $(RUNTIME)
	$(call install,--require-hashes -r requirements/dev.txt)
	$(call install,--no-deps --no-build-isolation -e ./lab)
	@touch $@

$(DOCS): requirements/docs.txt | $(BIN)/python
	$(call install,--require-hashes -r requirements/docs.txt)
	@touch $@

# uv is used when it is there, because it is faster. The environments it makes have no pip, hence ensurepip.
define install
	@if command -v uv >/dev/null; then \
	    uv pip install --quiet --python $(BIN)/python $(1); \
	else \
	    $(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null; \
	    $(BIN)/python -m pip install --quiet --disable-pip-version-check $(1); \
	fi
endef

$(BIN)/python:
	@python='$(PYTHON)'; \
	for candidate in $(PYTHONS); do \
	    if [ -z "$$python" ] && $$candidate -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))' 2>/dev/null; then \
	        python=$$candidate; \
	    fi; \
	done; \
	if [ -z "$$python" ]; then \
	    echo "Stepkeep needs Python 3.11, 3.12, 3.13 or 3.14, and found none. Install one, or name it: make PYTHON=/path/to/python" >&2; \
	    exit 1; \
	fi; \
	if command -v uv >/dev/null; then \
	    uv venv --quiet --allow-existing --python "$$python" $(VENV); \
	elif $$python -c 'import ensurepip, venv' 2>/dev/null; then \
	    $$python -m venv $(VENV); \
	else \
	    echo "$$python cannot make virtual environments: its ensurepip module is missing." >&2; \
	    echo "On Debian and Ubuntu: apt install python3-venv. Or install uv, which does not need it." >&2; \
	    exit 1; \
	fi
