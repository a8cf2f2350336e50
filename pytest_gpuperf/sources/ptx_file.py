"""PTX from a file or given as text. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuperf_engine.errors import EngineError, nearest

__all__ = ["PtxSource", "read_ptx"]


_NVCC = "nvcc -ptx -lineinfo -arch=sm_80 FILE.cu"
_COMPILE = {
    ".cu": _NVCC,
    ".cuh": _NVCC,
    ".cpp": _NVCC,
    ".py": 'Triton: compiled.asm["ptx"], Numba: cuda.compile_ptx',
}
"""What makes PTX of other sources, by suffix."""


@dataclass(frozen=True, slots=True)
class PtxSource:
    """PTX text and the name it goes by in messages: its path below the rootdir where it has one."""

    text: str
    path: str


def read_ptx(
    source: str | os.PathLike[str], *, folders: Sequence[Path], rootdir: Path, inline_name: str
) -> PtxSource:
    """The PTX that ``source`` means: text if it contains a line break, else a path, resolved against ``folders`` in order.

    Raises ``EngineError`` for a file that does not exist or is none.
    """
    if isinstance(source, str) and "\n" in source:
        return PtxSource(source, inline_name)
    if not isinstance(source, (str, os.PathLike)):
        raise EngineError(
            f"a kernel comes from a path or from PTX text, not from {type(source).__name__}",
            hint='for example gpuperf.kernel("kernels/saxpy.ptx")',
        )
    path = Path(source)
    if path.suffix in _COMPILE:
        raise EngineError(
            f"{os.fspath(source)!r} is not PTX but the source of it",
            hint=f"compile it first: {_COMPILE[path.suffix]}",
        )
    tried = [path] if path.is_absolute() else [folder / path for folder in folders]
    for candidate in tried:
        if candidate.is_file():
            return PtxSource(_text(candidate), _display(candidate, rootdir))
    raise EngineError(
        f"no PTX file {os.fspath(source)!r}",
        details=[
            f"looked in {_display(folder, rootdir) or '.'}"
            for folder in dict.fromkeys(p.parent for p in tried)
        ],
        hint=_similar(tried),
    )


def _text(path: Path) -> str:
    # Comments of any encoding must not matter; whatever else is no PTX is the parser's to refuse, with its position.
    return path.read_text(encoding="utf-8", errors="replace")


def _display(path: Path, rootdir: Path) -> str:
    absolute = Path(os.path.normpath(path.absolute()))
    try:
        return absolute.relative_to(rootdir).as_posix()
    except ValueError:
        return absolute.name


def _similar(tried: Sequence[Path]) -> str:
    names = [
        entry.name for path in tried if path.parent.is_dir() for entry in sorted(path.parent.glob("*.ptx"))
    ]
    if not names:
        return "paths are relative to the test file, then to the rootdir"
    return nearest(tried[0].name, names, noun="file")
