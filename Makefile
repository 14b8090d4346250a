# Two commands are all a fresh machine needs: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
# A worker a core, whole files each. Session fixtures are made once per worker, so few of them.
PARALLEL := --numprocesses=auto --maxprocesses=4 --dist=loadfile

.PHONY: venv demo test test-slow coverage check format ui bench bench-smoke

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "skillwalk needs Python >= 3.11; set PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

venv: .venv/ready

# the peers of the benchmarks: no part of the product
.venv/peers: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[bench]'
	touch $@

demo: venv
	$(BIN)/skillwalk run --profile smoketest --set learner.updates=1500 --set learner.batch=256

test: venv
	$(BIN)/pytest $(PARALLEL)

coverage: venv
	$(BIN)/pytest --cov --cov-report=term:skip-covered

test-slow: venv
	$(BIN)/pytest -m slow

check: venv
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --num-workers 2
	$(BIN)/lint-imports
	$(BIN)/dagster definitions validate -w workspace.yaml --log-level error
	$(BIN)/python -m tests.size

format: venv
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

ui: venv
	$(BIN)/skillwalk ui

bench: .venv/peers
	$(BIN)/skillwalk bench

bench-smoke: venv
	$(BIN)/skillwalk bench --quick
