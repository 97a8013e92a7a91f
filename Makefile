# hotpartition: everything that a person or a machine does with this project. No target asks a question.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
ENVIRONMENT ?= dev
PORT ?= 8000
BIN := .venv/bin
LOCK := --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate
TYPED := layers/routing/python/hotpartition lambdas infra app.py local demo proof trials
# The CDK's Node.js side warns about Node 20's age on every start.
export JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION := 20

.PHONY: detect-trials kill-trials help setup build check lint types unit test test-long demo up synth deploy destroy lock format clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: .venv/.installed ## Install what the project needs, into its own folders

.venv/.installed: requirements/development.txt layers/dependencies/requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; this is " + sys.version)'
	@command -v node > /dev/null || { echo "Node.js is needed: the CDK runs on it" >&2; exit 1; }
	@echo "installing the locked packages into .venv (about a minute)"
	@$(PYTHON) -m venv --clear .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/development.txt
	@touch $@

node_modules/.installed: package-lock.json
	@npm ci --no-audit --no-fund --loglevel=error
	@touch $@

build: setup ## Build the dependency layers, for AWS and for this machine
	$(BIN)/python -m infra.bundle --environment local --environment $(if $(filter local,$(ENVIRONMENT)),dev,$(ENVIRONMENT))

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: setup
	$(BIN)/mypy $(TYPED)

unit: setup
	$(BIN)/pytest -m "not slow" tests/unit tests/infrastructure

check: lint types unit ## The fast part: lint, types, unit tests

test: lint types ## Everything: lint, types, all tests
	$(BIN)/python -m infra.bundle --environment local
	$(BIN)/pytest -m "not long"

test-long: test ## And what takes longer: larger models, more seeds
	$(BIN)/pytest -m long

demo: setup ## Run a chat workload against the stack on this machine, end to end (MESSAGES=file.jsonl[.gz] replays a file)
	$(BIN)/python -m demo

up: setup ## Run the stack on this machine, and stay up
	$(BIN)/python -m local up --port $(PORT)

detect-trials: setup ## Twenty rushes spread over 50 environments: how soon each is detected (3 minutes)
	$(BIN)/python -m trials.detect

kill-trials: setup ## Fifty rushes in which the consumer is killed at a random moment (5 minutes)
	$(BIN)/python -m trials.kill

synth: setup ## Synthesize and lint the templates of dev and prod
	@for name in dev prod; do \
	  $(BIN)/python -m infra.bundle --environment $$name; \
	  $(BIN)/python app.py -c environment=$$name -o out/synth/$$name; \
	  $(BIN)/cfn-lint out/synth/$$name/*.template.json; \
	  echo "out/synth/$$name/hotpartition-$$name.template.json"; \
	done
	@du -sh layers/routing build/layers/* | sed 's/^/layer size: /'

deploy: build node_modules/.installed ## Deploy to AWS with the CDK (ENVIRONMENT=dev|prod)
	npx cdk deploy --context environment=$(ENVIRONMENT)

destroy: setup node_modules/.installed ## Take the stack down again (ENVIRONMENT=dev)
	npx cdk destroy --context environment=$(ENVIRONMENT)

lock: setup ## Lock the newest allowed versions of all packages
	$(BIN)/uv pip compile $(LOCK) layers/dependencies/requirements.in -o layers/dependencies/requirements.txt
	$(BIN)/uv pip compile $(LOCK) requirements/development.in -o requirements/development.txt

format: setup
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

clean: ## Remove everything that was made here
	rm -rf .venv build out cdk.out node_modules .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
