# Every target sets up its own .venv on first use; nothing but Python ≥ 3.10, make and a network to PyPI is needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# The tests start Python hundreds of times; where this is set, each start compiles the engine anew, which takes four times as long.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test check bench docs fuzz hardware clean

demo: $(READY)
	$(BIN)/python examples/demo/demo.py

test: $(READY)
	$(BIN)/python -m pytest -n auto --dist worksteal
	$(BIN)/python -m pytest -n auto --gpuperf examples --gpuperf-report=build/gpuperf

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m benchmarks.docs --check

bench: $(READY)
	$(BIN)/python -m benchmarks

# Renders the generated pages of docs/ and the tables in the README from the code.
docs: $(READY)
	$(BIN)/python -m benchmarks.docs

# Changes real PTX at random for MINUTES and runs it on both backends, which must agree; SEED=N begins with that mutant.
fuzz: $(READY)
	$(BIN)/python -m tests.hostile.fuzz --minutes $(or $(MINUTES),5) $(if $(SEED),--seed $(SEED)) --keep build/fuzz

# Measures on the GPU of this machine, holds what it computed against the emulator and puts the times into benchmarks/hardware;
# docs/hardware.md says what. Only the driver is needed. MACHINE=ID names the machine's description where several fit.
hardware: $(READY)
	$(BIN)/python tests/hardware/collect.py build/hardware
	$(BIN)/python -m tests.hardware.compare build/hardware --report build/hardware/report || test $$? -eq 3
	test ! -f build/hardware/counters/counters.csv || $(BIN)/python -m tests.hardware.counters build/hardware/counters --report build/hardware/report
	$(BIN)/python -m benchmarks.measurements build/hardware $(if $(MACHINE),--machine $(MACHINE))

clean:
	rm -rf $(VENV) build .pytest_cache .mypy_cache .ruff_cache

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "Python 3.10 or newer is needed; set PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test,check]'
	@touch $@
