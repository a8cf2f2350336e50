"""PTX from a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpuperf_engine.errors import EngineError, nearest

from .base import PtxSource, display

__all__ = ["pytest_gpuperf_ptx_source"]


_NVCC = "nvcc -ptx -lineinfo -arch=sm_80 FILE.cu"
_COMPILE = {
    ".cu": _NVCC,
    ".cuh": _NVCC,
    ".cpp": _NVCC,
    ".py": 'Triton: compiled.asm["ptx"], Numba: cuda.compile_ptx',
}
"""What makes PTX of other sources, by suffix."""


@pytest.hookimpl(trylast=True)
def pytest_gpuperf_ptx_source(source: object, item: pytest.Item) -> PtxSource | None:
    """A path, relative to the test file, then to the rootdir. Raises ``EngineError`` for a file that does not exist or is none."""
    if not isinstance(source, (str, os.PathLike)) or (isinstance(source, str) and "\n" in source):
        return None
    rootdir = item.config.rootpath
    path = Path(source)
    if path.suffix in _COMPILE:
        raise EngineError(
            f"{os.fspath(source)!r} is not PTX but the source of it",
            hint=f"compile it first: {_COMPILE[path.suffix]}",
        )
    folders = (item.path.parent, rootdir)
    tried = [path] if path.is_absolute() else [folder / path for folder in folders]
    for candidate in tried:
        if candidate.is_file():
            return PtxSource(_text(candidate), display(candidate, rootdir))
    raise EngineError(
        f"no PTX file {os.fspath(source)!r}",
        details=[
            f"looked in {display(folder, rootdir) or '.'}"
            for folder in dict.fromkeys(p.parent for p in tried)
        ],
        hint=_similar(tried),
    )


def _text(path: Path) -> str:
    # Comments of any encoding must not matter; whatever else is not PTX is the parser's to refuse, with its position.
    return path.read_text(encoding="utf-8", errors="replace")


def _similar(tried: Sequence[Path]) -> str:
    names = [
        entry.name for path in tried if path.parent.is_dir() for entry in sorted(path.parent.glob("*.ptx"))
    ]
    if not names:
        return "paths are relative to the test file, then to the rootdir"
    return nearest(tried[0].name, names, noun="file")
