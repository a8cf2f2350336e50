"""Tests that ask for ``backend`` run on both."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["lanes", "native"])
def backend(request: pytest.FixtureRequest) -> str:
    """Each test that asks for it runs on both."""
    return str(request.param)
