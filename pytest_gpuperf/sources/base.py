"""What a source of PTX gives."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PtxSource", "display"]


@dataclass(frozen=True, slots=True)
class PtxSource:
    """PTX text and the name it goes by in messages: its path below the rootdir where it has one. ``entry`` is the kernel that is
    meant, for a source that knows it: it holds where the test names none."""

    text: str
    path: str
    entry: str = ""


def display(path: Path, rootdir: Path) -> str:
    """A path as messages show it: below the rootdir, else its last part."""
    absolute = Path(os.path.normpath(path.absolute()))
    try:
        return absolute.relative_to(rootdir).as_posix()
    except ValueError:
        return absolute.name
