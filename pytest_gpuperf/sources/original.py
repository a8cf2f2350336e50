"""The text of the source lines that a kernel was compiled from, for showing it beside the PTX."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from .paths import SourcePaths

__all__ = ["source_texts"]

_MOST_BYTES = 4_000_000
_WIDTH = 300


def source_texts(places: Iterable[str], files: SourcePaths) -> dict[str, str]:
    """The line of source for each ``file:line`` of ``places`` whose file ``files`` has shown and found below the rootdir."""
    texts = {}
    for position in sorted(set(places)):
        path, _, number = position.rpartition(":")
        source = files.files.get(path)
        lines = _lines(source) if source is not None and number.isdigit() else ()
        if 0 < int(number or 0) <= len(lines):
            texts[position] = lines[int(number) - 1][:_WIDTH]
    return texts


def _lines(path: Path) -> tuple[str, ...]:
    try:
        status = path.stat()
        return _read(path, status.st_mtime_ns, status.st_size) if status.st_size <= _MOST_BYTES else ()
    except OSError:
        return ()


@lru_cache(maxsize=128)
def _read(path: Path, modified: int, size: int) -> tuple[str, ...]:
    """The lines of a file as it is at a time: it may be edited while a process lives."""
    return tuple(path.read_text(encoding="utf-8", errors="replace").split("\n"))
