"""Different PTX for different targets."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

__all__ = ["pytest_gpuperf_ptx_source"]


@pytest.hookimpl(trylast=True)
def pytest_gpuperf_ptx_source(source: object, target: str) -> Mapping[str, object] | None:
    """A dictionary by target; each of its sources is asked for in turn, with its key for the ``target``."""
    return source if isinstance(source, Mapping) and not target else None
