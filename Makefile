# make run: train the default and show its result.  make test: run the tests.  make check: lint and tests.
PYTHON ?= python3
BIN := .venv/bin
PYTEST := $(BIN)/pytest -n 2
# Twice quiet: pip's warnings about its own surroundings would hide what the user should see; errors remain.
PIP := $(BIN)/pip install -qq --disable-pip-version-check --root-user-action=ignore -c constraints.txt

.PHONY: run test test-slow lint check browser clean

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

# Debian's Chromium, in which the slow tests open a report. They are skipped without it.
browser:
	@command -v chromium > /dev/null || apt-get install -y chromium || \
		{ echo "Installing chromium needs root: sudo make browser"; exit 1; }

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
