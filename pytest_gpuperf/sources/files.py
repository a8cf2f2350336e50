"""Files that a test names: relative to the test file, then to the rootdir."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpuperf_engine.errors import EngineError, nearest

from .base import display

__all__ = ["candidates", "find_file", "missing", "named_path"]


def named_path(source: object) -> Path | None:
    """The path that the first argument of ``gpuperf.kernel`` is; ``None`` for what is none."""
    if not isinstance(source, (str, os.PathLike)) or (isinstance(source, str) and "\n" in source):
        return None
    return Path(source)


def candidates(path: Path, item: pytest.Item) -> list[Path]:
    """Where a path may lead to."""
    return (
        [path]
        if path.is_absolute()
        else [folder / path for folder in (item.path.parent, item.config.rootpath)]
    )


def find_file(path: Path, item: pytest.Item) -> Path | None:
    """The file that a path leads to; ``None`` if there is none."""
    return next((candidate for candidate in candidates(path, item) if candidate.is_file()), None)


def missing(path: Path, item: pytest.Item, what: str, pattern: str) -> EngineError:
    """The error for a file that does not exist; of those that fit ``pattern`` it names the one that is most like it."""
    tried = candidates(path, item)
    folder = next((candidate for candidate in tried if candidate.is_dir()), None)
    if folder is not None:
        names = sorted(entry.name for entry in folder.glob(pattern))
        return EngineError(
            f"{os.fspath(path)!r} is a folder",
            hint=nearest("", names, noun="file") if names else f"accepted: a {what} file",
        )
    return EngineError(
        f"no {what} file {os.fspath(path)!r}",
        details=[
            f"looked in {display(folder, item.config.rootpath) or '.'}"
            for folder in dict.fromkeys(p.parent for p in tried)
        ],
        hint=_similar(tried, pattern),
    )


def _similar(tried: Sequence[Path], pattern: str) -> str:
    names = [
        entry.name for path in tried if path.parent.is_dir() for entry in sorted(path.parent.glob(pattern))
    ]
    if not names:
        return "paths are relative to the test file, then to the rootdir"
    return nearest(tried[0].name, names, noun="file")
