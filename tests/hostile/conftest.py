"""One sandbox for the whole run, and every launch on both backends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hostile.sandbox import Sandbox


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    box = Sandbox()
    yield box
    box.close()
