"""The text of the source lines that a kernel was compiled from, for showing it beside the PTX. PYTEST_DONT_REWRITE

The paths come from the PTX, which nobody has vetted: only source files below the rootdir are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

__all__ = ["source_texts"]

_SUFFIXES = {".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hpp", ".inl", ".py"}
_MOST_BYTES = 4_000_000
_WIDTH = 300


def source_texts(places: Iterable[str], folders: Sequence[Path], rootdir: Path) -> dict[str, str]:
    """The line of source for each ``file:line`` of ``places`` that can be read: its path is relative to one of
    ``folders`` or absolute, and leads below ``rootdir``."""
    found = {}
    for place in sorted(set(places)):
        path, _, number = place.rpartition(":")
        lines = _lines(path, tuple(folders), rootdir) if path and number.isdigit() else ()
        if 0 < int(number or 0) <= len(lines):
            found[place] = lines[int(number) - 1][:_WIDTH]
    return found


@lru_cache(maxsize=128)
def _lines(path: str, folders: tuple[Path, ...], rootdir: Path) -> tuple[str, ...]:
    if Path(path).suffix not in _SUFFIXES or "\0" in path:
        return ()
    root = rootdir.resolve()
    for folder in folders:
        try:
            candidate = (folder / path).resolve()
            if (
                candidate.is_relative_to(root)
                and candidate.is_file()
                and candidate.stat().st_size <= _MOST_BYTES
            ):
                return tuple(candidate.read_text(encoding="utf-8", errors="replace").split("\n"))
        except (OSError, RuntimeError):
            continue
    return ()
