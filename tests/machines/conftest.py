"""The toy machine, which only tests can load, and where it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuperf_engine.machines.machine import Machine, load_machine

MACHINES = Path(__file__).parent


@pytest.fixture(scope="session")
def machines() -> Path:
    return MACHINES


@pytest.fixture(scope="session")
def toy() -> Machine:
    return load_machine("toy", search=[MACHINES])
