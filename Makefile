# The commands of a checkout. Each one sets up .venv by itself; `make` alone lists them.
PYTHON ?= python3
# A package index with another build of torch, for example the CPU-only one; empty = what pip finds by itself.
TORCH_INDEX ?=
# More arguments: make test ARGS="tests/unit -x", make bench ARGS=--quick
ARGS ?=
# Processes that share the tests: more than cores, as most tests wait for processes of their own. Each has its own Redis.
JOBS ?= 4
# The folder that make eval reads.
DATA ?=

# Some machines tell Python to keep no compiled files: each start would then compile this project, and pytest all of its
# plug-ins. With compiled files a process of `make test` collects in 4 s of processor time and not in 12.
export PYTHONDONTWRITEBYTECODE :=
# A process of the suite runs thousands of threads, one after the other: an arena for each would keep what it freed.
export MALLOC_ARENA_MAX := 2

BIN := .venv/bin
STAMP := .venv/.installed
PIP_INSTALL := PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/pip install -qq

.DEFAULT_GOAL := help
.PHONY: help install lock check test thorough demo up bench overload faults simulation hostile eval smoke clean

help:
	@sed -n 's/^\([a-z]*\):.*## /make \1	/p' Makefile | expand -t 16

install: $(STAMP) ## set up .venv with everything: versions pinned, and hashes but of torch, whose builds differ

$(STAMP): pyproject.toml requirements/dev.txt requirements/torch.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo 'embedq needs Python 3.11 or newer and $(PYTHON) is not (or is missing).' \
	       'Name another one: make $(MAKECMDGOALS) PYTHON=python3.12' >&2; exit 1; }
	@echo 'Setting up .venv (once; torch is large, this takes some minutes)' >&2
	@$(PYTHON) -m venv .venv || { echo 'On Debian and Ubuntu: apt install python3-venv' >&2; exit 1; }
	@$(PIP_INSTALL) --no-deps --require-hashes -r requirements/dev.txt
	@$(PIP_INSTALL) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) -r requirements/torch.txt
	@$(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

lock: ## write requirements/*.txt anew after a change of pyproject.toml (needs uv); ARGS=--upgrade
	@requirements/lock $(ARGS)

check: $(STAMP) ## lint, format, types, architecture
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pytest -q tests/test_architecture.py

# Of the whole suite the branch coverage is taken too, and less than `fail_under` in pyproject.toml fails.
test: $(STAMP) ## every test: real Redis, real worker, real model
	$(BIN)/pytest --numprocesses $(JOBS) --dist loadgroup --no-loadscope-reorder --max-worker-restart=0 $(if $(ARGS),,--cov --cov-report=) $(ARGS)

# Neither `make test` nor CI runs them.
thorough: $(STAMP) ## what `make test` leaves out: each kind of model in docs/models.md, the longest trials
	$(BIN)/pytest -q -m thorough $(ARGS)

demo: $(STAMP) ## local stack, this project's documentation embedded, two searches
	@$(BIN)/embedq demo

up: $(STAMP) ## local stack in the foreground
	@$(BIN)/embedq up

bench: $(STAMP) ## speed of embedq, the usual design and the bare encoder; ARGS=--quick for a short look
	@$(BIN)/python -m bench $(ARGS)

faults: $(STAMP) ## kills, stalls and fills real processes, counts what is lost; ARGS=--quick for a short run
	@$(BIN)/python -m bench.faults $(ARGS)

simulation: $(STAMP) ## ledger and jobs: long random walks, each mutant; two hours; ARGS="walks 0 50"
	@$(BIN)/python -m tests.simulation $(ARGS)

hostile: $(STAMP) ## hostile requests to a whole service: no defect, steady memory, nothing left
	@$(BIN)/python -m bench.hostile $(ARGS)

overload: $(STAMP) ## goodput at up to ten times the capacity, and whether Retry-After is right; ARGS="--seconds 8"
	@$(BIN)/python -m bench.overload $(ARGS)

eval: $(STAMP) ## published quality tables through the service: make eval DATA=dir
	@test -n "$(DATA)" || { echo 'Name the folder: make eval DATA=dir (docs/benchmarking.md)' >&2; exit 1; }
	@$(BIN)/python -m bench.evaluate $(DATA) $(ARGS)

smoke: ## build the images, run docker-compose.yml for real, check its answers
	@deploy/smoke

clean: ## remove .venv and caches
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
