# make run: train the default and show its result.  make test: everything that is checked on each change.
PYTHON ?= python3
BIN := .venv/bin
PYTEST := $(BIN)/pytest -n 2

.PHONY: run test test-slow lint clean

run: .venv/installed
	$(BIN)/hff train

test: .venv/installed-dev lint
	$(PYTEST)

test-slow: .venv/installed-dev
	$(PYTEST) -m slow

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

clean:
	rm -rf .venv

.venv/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "hff needs Python 3.11 or newer: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml constraints.txt | .venv/bin/pip
	$(BIN)/pip install -q -c constraints.txt -e .
	@touch $@

.venv/installed-dev: pyproject.toml constraints.txt | .venv/bin/pip
	$(BIN)/pip install -q -c constraints.txt -e '.[dev]'
	@touch $@ .venv/installed
