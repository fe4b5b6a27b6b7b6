# The project's verbs. Each works on a fresh clone: it first brings what it needs, into .cortex.
# `make demo PG_CONFIG=/path/to/pg_config` uses that PostgreSQL instead of the embedded one.

PYTHON ?= python3
DEMO := .cortex/demo
CORTEX := $(or $(CARGO_TARGET_DIR),target)/release/cortex
# `make demo JSON=1` prints one JSON object a line.
JSON_FLAG := $(if $(filter-out 0,$(JSON)),--json)

export PG_CONFIG
ifeq ($(strip $(PG_CONFIG)),)
unexport PG_CONFIG
endif

.DEFAULT_GOAL := help
.PHONY: help demo clean-demo test fmt lint bench build

help: ## List these verbs
	@echo "Cortex: make <verb>"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

demo: ## Set everything up and show the proof on a private PostgreSQL (JSON=1 for programs)
	@$(PYTHON) tools/setup.py demo $(JSON_FLAG)
	@$(CORTEX) demo --cluster $(DEMO) $(JSON_FLAG)

clean-demo: ## Stop the demo's PostgreSQL and remove its folder, nothing else
	@$(PYTHON) tools/cluster.py destroy --dir $(DEMO)

test: ## Set up and run all tests, on PostgreSQL 18 and 16
	@$(PYTHON) tools/test.py

fmt: ## Format the code
	@cargo fmt --all

lint: ## Check formatting and clippy, the extension included
	@$(PYTHON) tools/lint.py

bench: ## Measure side by side with peers, as ratios
	@failed=0; \
	$(PYTHON) bench/run.py </dev/null || failed=1; \
	bench/embed/run.sh </dev/null || failed=1; \
	exit $$failed

build: ## Build and install the extension, build the cortex binary, both in release profile
	@$(PYTHON) tools/setup.py extension sidecar $(JSON_FLAG)
