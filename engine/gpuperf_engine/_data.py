"""Files that the engine reads as data: its grammar, descriptions of machines, and the sources of the functions that it compiles."""

from __future__ import annotations

from pathlib import Path

__all__ = ["text_of", "times_read"]

_times = 0


def text_of(path: Path) -> str:
    """The text of a file. Raises ``OSError`` and ``UnicodeDecodeError``."""
    global _times
    _times += 1
    return path.read_text(encoding="utf-8")


def times_read() -> int:
    """How often a file was read. As long as the number does not change, and no module is loaded, edits of files change nothing."""
    return _times
