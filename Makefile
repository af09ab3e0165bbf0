# Everything that people and machines run here. Each target does its own set-up: a bare machine needs
# python3 (3.11 or newer) and pip, nothing else. The second time, targets start at once.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Ranks and test workers are processes: one thread each, and gloo on the loopback interface.
export OMP_NUM_THREADS ?= 1
export GLOO_SOCKET_IFNAME ?= lo

.DEFAULT_GOAL := help
.PHONY: help setup mlir-opt chromium demo test test-slow lint format docs-check wheel clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 14

setup: $(READY) ## make .venv with the pinned versions (the other targets do this themselves)

mlir-opt: ## install MLIR's own mlir-opt 19, which some tests need (Debian, as root)
	@command -v mlir-opt-19 >/dev/null || { apt-get update -qq \
	  && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends mlir-19-tools; }

chromium: ## install Chromium and its driver, in which tests open a report (Debian, as root)
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || { apt-get update -qq \
	  && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
	       chromium chromium-driver fonts-dejavu-core; }

demo: $(READY) ## train a small model by reinforcement, and watch it learn
	@$(BIN)/python examples/demo.py

test: $(READY) ## run the tests: unit, filecheck, golden, distributed (CPU only)
	@$(BIN)/python -m pytest -n 2 --dist loadfile $(PYTEST_ARGS)

test-slow: $(READY) ## run the tests marked slow
	@$(BIN)/python -m pytest -m slow -n 2 --dist loadfile $(PYTEST_ARGS)

lint: $(READY) ## check style, format and types
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy

format: $(READY) ## mend style and format in place
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

docs-check: $(READY) ## run the commands that the documentation shows, compare generated pages
	@$(BIN)/python -m pytest -m "slow or not slow" tests/unit/test_docs_commands.py tests/unit/test_docs_generated.py

wheel: $(READY) ## build the wheel into dist/
	@$(BIN)/python -m build --wheel --no-isolation

clean: ## remove .venv and what the tools left behind
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "error: $(PYTHON) is not Python 3.11 or newer: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "set-up: installing the pinned versions into $(VENV) (1.2 GB), once; this takes minutes"
	@test -x $(BIN)/python || $(PYTHON) -m venv --without-pip $(VENV)
	@PIP_CONSTRAINT=constraints.txt $(PYTHON) .ci/install.py \
	  $(PYTHON) -m pip --python $(BIN)/python install pip -e '.[run,test]'
	@touch $(READY)
