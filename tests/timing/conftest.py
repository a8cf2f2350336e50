"""The toy machine; most tests are of the models that need no assembler."""

from __future__ import annotations

import pytest

from tests.machines.conftest import MACHINES, machines, toy
from tests.support import no_assembler

__all__ = ["MACHINES", "machines", "no_assembler", "toy"]


@pytest.fixture(autouse=True)
def _models_alone(request: pytest.FixtureRequest) -> None:
    """Without an assembler, but where the simulation is tested."""
    if request.node.path.name not in (
        "test_simulation.py",
        "test_simulated_why.py",
        "test_asynchronous.py",
        "test_executed.py",
        "test_halving.py",
        "test_loops.py",
        "test_packing.py",
        "test_stalls.py",
        "test_times.py",
        "test_wmma.py",
    ):
        request.getfixturevalue("no_assembler")
