# Forebay's commands. A bare machine with Python 3.11, make and the package registries is enough.

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PACKAGES := gateway tokenizer_pool scheduler backends bench

.DEFAULT_GOAL := help
.PHONY: help venv run run-vllm test test-slow test-vllm check coverage bench-quick bench-report format lock clean

help:  ## Show these commands
	@grep -hE "^[a-z-]+:.*##" $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

venv: $(STAMP)  ## Build .venv from the locked versions

# The stamp is written last: an interrupted installation is begun again.
$(STAMP): requirements/dev.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "Forebay needs Python 3.11: install it, or name it: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements/dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

run: venv  ## Start Redis, two simulated engines and the gateway on port 8080; Ctrl-C ends all
	$(BIN)/python -m bench.demo $(ARGS)

run-vllm: venv  ## The same in front of a real vLLM on the CPU (builds its environment once)
	$(BIN)/python -m bench.run_vllm $(ARGS)

test: venv  ## The fast suite: no GPU, no vLLM
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow" $(ARGS)

test-slow: venv  ## What starts the whole product as processes, or measures
	$(BIN)/python -m pytest -n 2 --dist load -m slow $(ARGS)

test-vllm: venv  ## The suite against a real vLLM on the CPU (builds its environment once)
	$(BIN)/python -m pytest tests/real_vllm tests/tokenizer_pool/test_vllm_parity.py -m real_vllm --timeout 1500 $(ARGS)

check: venv  ## Linters, types, import contracts, lengths; no network
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/check_lengths.py $(PACKAGES) scripts

coverage: venv  ## The fast suite with branch coverage, and the floors it must keep
	$(BIN)/python -m pytest -n 2 --dist loadfile --cov --cov-report=term-missing:skip-covered
	$(BIN)/python -m coverage report --include='scheduler/*' --fail-under=100 --skip-covered

bench-quick: venv  ## Every measurement in brief, without a vLLM: does it run? Five minutes, no figures to keep
	$(BIN)/python -m bench report --quick --out bench-report/quick $(ARGS)

bench-report: venv  ## Every measurement, an hour or two, and its figures into docs/performance.md
	$(BIN)/python -m bench report --real --page docs/performance.md $(ARGS)

format: venv  ## Put the code into its one form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: venv  ## Renew the locked versions from pyproject.toml
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --no-header --no-annotate --python-version 3.11 --extra dev --extra bench --extra tracing --extra tune pyproject.toml -o requirements/dev.lock
	$(BIN)/uv pip compile --quiet --no-header --no-annotate --python-version 3.11 pyproject.toml -o requirements/runtime.lock

clean:  ## Remove what the other commands made in this checkout
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .hypothesis .coverage
