# Every target first brings .venv up to date (infra/setup.sh; nothing to do costs milliseconds).
# ARGS is passed on: make demo ARGS=--json

BIN := .venv/bin
ARGS ?=
WORKERS ?= 2
PYTEST = $(BIN)/pytest -n $(WORKERS) --dist loadgroup

# Compiled bytecode halves the start of every process; a Python that may not write it compiles torch each time.
unexport PYTHONDONTWRITEBYTECODE
# An activated environment elsewhere must not lend its modules.
unexport PYTHONPATH VIRTUAL_ENV

.DEFAULT_GOAL := help
.PHONY: help setup demo dashboard doctor smollm test test-slow drill lint format bench bench-store

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

setup: ## build or refresh .venv
	@bash infra/setup.sh

demo: setup ## run the study of three methods, a control and three seeds; print the table
	$(BIN)/stillroom demo $(ARGS)

dashboard: setup ## show the results in the browser
	$(BIN)/stillroom dashboard $(ARGS)

doctor: setup ## check versions, devices, sandbox, Ray, Prefect and the store
	$(BIN)/stillroom doctor $(ARGS)

smollm: setup ## install SmolLM2-135M-Instruct, the small real model
	@bash infra/setup.sh smollm

test: setup ## run the fast tests
	$(PYTEST) -m "not slow and not drill" $(ARGS)

test-slow: setup ## run the slow tests
	$(PYTEST) -m "slow and not drill" $(ARGS)

drill: setup ## run what takes longest: rebuild the largest base model, kill more studies
	$(PYTEST) -m drill $(ARGS)

lint: setup ## check style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyrefly check

format: setup ## put the code into the agreed format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup ## measure speed and memory side by side with references; ARGS=--quick for a first look
	$(BIN)/python -m training.bench --json bench/head.json $(ARGS)
	$(BIN)/python -m evaluation.bench --json bench/sampler.json $(ARGS)
	$(BIN)/python -m tests.bench --json bench/store.json $(ARGS)

bench-store: setup ## measure a store of a thousand runs: ingest, publish, every query (4 GB, some minutes); ARGS="--scale 0.1"
	$(BIN)/python -m tests.bench.large --json bench/store-large.json $(ARGS)
