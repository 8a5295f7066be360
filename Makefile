# make run: train the default and show its result.  make test: run the tests.  make check: lint and tests.
PYTHON ?= python3
BIN := .venv/bin
PYTEST := $(BIN)/pytest -n 2
# Twice quiet: pip's warnings about its own surroundings would hide what the user should see; errors remain.
PIP := $(BIN)/pip install -qq --disable-pip-version-check --root-user-action=ignore -c constraints.txt

.PHONY: run test test-slow lint check clean

run: .venv/installed
	@$(BIN)/hff train

test: .venv/installed-dev
	$(PYTEST)

test-slow: .venv/installed-dev
	$(PYTEST) -m slow

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

check: lint test

clean:
	rm -rf .venv

.venv/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "hff needs Python 3.11 or newer: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@echo "Setting up .venv (about a minute) ..."
	@$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml constraints.txt | .venv/bin/pip
	@$(PIP) -e .
	@touch $@

.venv/installed-dev: pyproject.toml constraints.txt | .venv/bin/pip
	@echo "Installing what the tests need ..."
	@$(PIP) -e '.[dev]'
	@touch $@ .venv/installed
