"""The toy machine, which only tests can load, and where it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuperf_engine.timing.machine import Machine, load_machine
from tests.support import no_assembler

__all__ = ["MACHINES", "no_assembler"]

MACHINES = Path(__file__).parents[1] / "machines"


@pytest.fixture(autouse=True)
def _models_alone(request: pytest.FixtureRequest) -> None:
    """Without an assembler, but where the simulation is tested."""
    if request.node.path.name not in ("test_simulation.py", "test_simulated_why.py"):
        request.getfixturevalue("no_assembler")


@pytest.fixture(scope="session")
def machines() -> Path:
    return MACHINES


@pytest.fixture(scope="session")
def toy() -> Machine:
    return load_machine("toy", search=[MACHINES])
