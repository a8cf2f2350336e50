"""PTX from a file."""

from __future__ import annotations

import pytest

from gpuperf_engine.errors import EngineError

from .base import PtxSource, display
from .binary import begins_as_binary
from .cuda_source import SUFFIXES
from .files import find_file, missing, named_path, read_source

__all__ = ["pytest_gpuperf_ptx_source"]


@pytest.hookimpl(trylast=True)
def pytest_gpuperf_ptx_source(source: object, item: pytest.Item) -> PtxSource | None:
    """A path, relative to the test file, then to the rootdir. Raises ``EngineError`` for a file that does not exist or is none."""
    path = named_path(source)
    if path is None or path.suffix in SUFFIXES:
        return None
    if path.suffix == ".py":
        raise EngineError(
            f"{str(source)!r} is not PTX but the source of it",
            hint="import the kernel from there, and pass it: gpuperf.kernel(function), of Triton or Numba",
        )
    file = find_file(path, item)
    if file is None:
        raise missing(path, item, "PTX", "*.ptx")
    if begins_as_binary(file):
        return None
    # comments of any encoding must not matter; whatever else is not PTX is the parser's to refuse, with its position
    return PtxSource(read_source(file), display(file, item.config.rootpath))
