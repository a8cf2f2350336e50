# Every target sets up its own .venv on first use; only Python ≥ 3.10, make and access to PyPI are needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Python compiles what is imported, which is the smaller part of what is installed.
QUIETLY := --quiet --disable-pip-version-check --no-compile

# The tests start Python hundreds of times; if this is set, each start recompiles the engine, which takes four times as long.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-fast accuracy check types lint compare bench docs fuzz hardware-kit hardware clean

help: ## Lists all targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(READY) ## Shows how the gate catches a kernel that is made slower
	$(BIN)/python examples/demo/demo.py

test: $(READY) ## Runs all tests, then the gate on the examples
	$(BIN)/python -m pytest -n auto --dist worksteal
	$(BIN)/python -m pytest -n auto --gpuperf examples --gpuperf-report=build/gpuperf

test-fast: $(READY) ## Runs the tests without ptxas, processes or sweeps, in a minute
	$(BIN)/python -m pytest -n auto --dist worksteal --fast

accuracy: $(READY) ## Prints the error of every model on every measurement in the repository, by GPU and kernel
	$(BIN)/python -m benchmarks.accuracy_models

check: types lint ## Runs the two checks below; make -j 2 check runs them side by side

types: $(READY) ## Checks types
	$(BIN)/mypy

lint: $(READY) ## Lints, checks layers, and that the generated pages are current
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python -m benchmarks.docs --check

compare: $(READY) ## Compares the JSON reports of the examples at HEAD with those at BASE=main
	$(BIN)/python -m benchmarks.compare_commits $(or $(BASE),main) HEAD -- -n auto examples

bench: $(READY) ## Measures the engine and the plugin
	$(BIN)/python -m benchmarks

docs: $(READY) ## Renders the generated pages of docs/ and the tables in the README from the code
	$(BIN)/python -m benchmarks.docs

fuzz: $(READY) ## Runs mutants of real PTX on both backends for MINUTES=5; SEED=N starts with that mutant
	$(BIN)/python -m tests.hostile.fuzz --minutes $(or $(MINUTES),5) $(if $(SEED),--seed $(SEED)) --keep build/fuzz

# On that machine, python3 build/hardware-kit/collect.py OUT needs Python, NumPy and the driver.
hardware-kit: $(READY) ## Writes build/hardware-kit, the folder to copy to a machine with a GPU
	$(BIN)/python -m tests.hardware.kit

# Measures on the GPU of this machine, compares the results with the emulator and stores the times in benchmarks/hardware
# (docs/hardware.md). Only the driver is needed. MACHINE=ID names the machine's description if several fit.
hardware: $(READY) ## Measures on the GPU of this machine and compares it with the emulator
	$(BIN)/python tests/hardware/collect.py build/hardware
	$(BIN)/python -m tests.hardware.compare build/hardware --report build/hardware/report || test $$? -eq 3
	test ! -f build/hardware/counters/counters.csv || $(BIN)/python -m tests.hardware.counters build/hardware/counters --report build/hardware/report
	$(BIN)/python -m benchmarks.measurements build/hardware $(if $(MACHINE),--machine $(MACHINE))

clean: ## Removes .venv, build and caches
	rm -rf $(VENV) build .pytest_cache .mypy_cache .ruff_cache

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "Python 3.10 or newer is needed; set PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install $(QUIETLY) --upgrade pip
	$(BIN)/python -m pip install $(QUIETLY) --editable '.[test,check]'
	@touch $@
