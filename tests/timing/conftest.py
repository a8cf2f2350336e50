"""The toy machine, which only tests can load, and where it is; the catalogue of example kernels on the path."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gpuperf_engine.timing.machine import Machine, load_machine

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

MACHINES = Path(__file__).parents[1] / "machines"


@pytest.fixture(scope="session")
def machines() -> Path:
    return MACHINES


@pytest.fixture(scope="session")
def toy() -> Machine:
    return load_machine("toy", search=[MACHINES])
