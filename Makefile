# All commands run in .venv, which is created from constraints.txt; test dependencies are installed by hash from
# requirements-ci.lock. Requires Python 3.11 or newer with venv and pip.
# Stamp files are touched only after a successful installation, so failed ones are repeated.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check
# Without build isolation, build tools are also pinned by constraints.txt.
INSTALL := $(PIP) install --quiet --no-build-isolation -c constraints.txt
INPUTS := pyproject.toml constraints.txt
DEMO   := demo-output
STANDALONE := smnn-results/standalone/standalone.json
# Distribute whole files, so that module fixtures are created once.
PYTEST_FLAGS ?= -n 2 --dist loadfile
LOCK   ?= yes

.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help demo test locked lint typecheck docs bench tables constraints clean

help:  ## Show this list.
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):[^#]*## */\1\t/' \
		| awk -F '\t' '{ printf "make %-12s %s\n", $$1, $$2 }'

$(VENV)/stamp-venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "smnn needs Python 3.11 or newer; set PYTHON=..., this is `$(PYTHON) -V`" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/stamp-build: $(VENV)/stamp-venv $(INPUTS)
	@rm -f $@
	$(PIP) install --quiet -c constraints.txt hatchling editables
	@touch $@

$(VENV)/stamp-run: $(VENV)/stamp-build
	@rm -f $@
	@echo "Installing into $(VENV); this takes a few minutes the first time."
	$(INSTALL) -e ".[data,discovery,experiments,peers]"
	@touch $@

$(VENV)/stamp-test: $(VENV)/stamp-venv $(INPUTS) requirements-ci.lock
	@rm -f $@
	@echo "Installing into $(VENV); this takes a few minutes the first time."
	$(BIN)/python tools/install.py --lock $(LOCK)
	@touch $@

$(VENV)/stamp-docs: $(VENV)/stamp-run
	@rm -f $@
	$(INSTALL) -e ".[data,discovery,experiments,peers,docs]"
	@touch $@

demo: $(VENV)/stamp-run  ## Install, then find the Lorenz equations in a noisy table.
	$(BIN)/smnn discover examples/data/lorenz.csv --out $(DEMO)

test: lint typecheck  ## Lint, type check and run the tests (no network after the install).
	$(BIN)/python -m pytest $(PYTEST_FLAGS)

locked: $(VENV)/stamp-venv  ## Install the test dependencies by hash, or fail.
	$(BIN)/python tools/install.py --strict
	@touch $(VENV)/stamp-test

lint: $(VENV)/stamp-test  ## Check style and format.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

typecheck: $(VENV)/stamp-test  ## Check types.
	$(BIN)/mypy

docs: $(VENV)/stamp-docs  ## Build the documentation into site/.
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Open site/index.html"

bench: $(VENV)/stamp-run  ## Time the solver and compare it with others.
	$(BIN)/python -m benchmarks

tables: $(VENV)/stamp-run  ## Write the result tables of the documentation from existing records.
	$(BIN)/python tools/tables.py \
		$(if $(wildcard $(STANDALONE)),--standalone $(STANDALONE)) \
		$(if $(wildcard bench-output/bench.json),--bench bench-output/bench.json)

constraints: pyproject.toml  ## Rewrite constraints.txt with the newest versions, except torch and triton.
	rm -rf $(VENV)-pins
	$(PYTHON) -m venv $(VENV)-pins
	$(VENV)-pins/bin/python -m pip install --quiet \
		$$(grep -E '^(torch|triton)==' constraints.txt) hatchling editables
	$(VENV)-pins/bin/python -m pip install --quiet --no-build-isolation ".[data,discovery,experiments,peers,test,docs]"
	{ sed -n '/^#/p' constraints.txt; \
	  $(VENV)-pins/bin/python -m pip freeze --all | grep -vE '^(pip|smnn)[ =]' | sed 's/+cpu$$//'; } \
	  > $(VENV)-pins/constraints.txt
	mv $(VENV)-pins/constraints.txt constraints.txt
	rm -rf $(VENV)-pins

clean:  ## Remove everything that the other commands created.
	rm -rf $(VENV) $(VENV)-pins $(DEMO) bench-output site build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
