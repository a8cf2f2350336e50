"""Makes the catalogue of example kernels importable, and runs tests on both backends."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

EXAMPLES = str(Path(__file__).resolve().parents[2] / "examples")
if EXAMPLES not in sys.path:
    sys.path.append(EXAMPLES)


@pytest.fixture(params=["lanes", "native"])
def backend(request: pytest.FixtureRequest) -> str:
    """Each test that asks for it runs on both."""
    return str(request.param)
