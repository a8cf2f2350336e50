"""Where the toy machine is, which only tests can load."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def machines() -> Path:
    return Path(__file__).parents[1] / "machines"
