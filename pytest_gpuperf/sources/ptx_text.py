"""PTX given as text."""

from __future__ import annotations

import pytest

from .base import PtxSource

__all__ = ["pytest_gpuperf_ptx_source"]


@pytest.hookimpl(trylast=True)
def pytest_gpuperf_ptx_source(source: object, target: str) -> PtxSource | None:
    """Text with a line break in it is PTX."""
    if isinstance(source, str) and "\n" in source:
        return PtxSource(source, f"<ptx {target}>" if target else "<ptx>")
    return None
