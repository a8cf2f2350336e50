"""Files that a test names: relative to the test file, then to the rootdir."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpuperf_engine.errors import EngineError, nearest

from .base import display

__all__ = ["NoSource", "candidates", "check_regular", "find_file", "missing", "named_path", "read_source"]

#: bytes of PTX or of a source of it: hundreds of times the largest that are known, and little enough for a computer
_MOST_BYTES = 1 << 28
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class NoSource(EngineError):
    """A path that cannot be a file of PTX or of a source of it."""


def check_regular(path: Path, named: Path | None = None) -> None:
    """Raises ``NoSource`` for what is no regular file, of which reading may never end, and ``OSError`` for nothing at all."""
    mode = path.stat().st_mode
    for fits, kind in _KINDS:
        if fits(mode):
            raise NoSource(f"{os.fspath(named or path)!r} is {kind}", hint="accepted: a regular file")


def read_source(path: Path, errors: str = "replace") -> str:
    """The text of a file of PTX, or of a source of it. Raises ``NoSource`` for what cannot be one, and ``OSError``."""
    check_regular(path)
    size = path.stat().st_size
    if size > _MOST_BYTES:
        raise NoSource(
            f"{os.fspath(path)!r} has {size:,} bytes",
            hint=f"accepted: a source of at most {_MOST_BYTES:,} bytes",
        )
    return path.read_text(encoding="utf-8", errors=errors)


def named_path(source: object) -> Path | None:
    """Return the first argument of ``gpuperf.kernel`` as a path; ``None`` if it is no path."""
    if not isinstance(source, (str, os.PathLike)) or (isinstance(source, str) and "\n" in source):
        return None
    return Path(source)


def candidates(path: Path, item: pytest.Item) -> list[Path]:
    """Return the candidate files of a path."""
    return (
        [path]
        if path.is_absolute()
        else [folder / path for folder in (item.path.parent, item.config.rootpath)]
    )


def find_file(path: Path, item: pytest.Item) -> Path | None:
    """Return the file of a path; ``None`` if there is none."""
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
    for candidate in tried:
        if candidate.exists():
            try:
                check_regular(candidate, path)
            except NoSource as error:
                return error
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
