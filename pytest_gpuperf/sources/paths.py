"""Paths of source files as reports show them: below the rootdir, and never those of the machine.

The paths come from the PTX, which is not trusted: only source files below the rootdir are read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath, PureWindowsPath

__all__ = ["SourcePaths", "outside"]

_SUFFIXES = {".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hpp", ".inl", ".py"}
_INSTALLED = ("site-packages", "dist-packages")
_HEADERS = "include"


class SourcePaths:
    """Finds the files that ``.file`` names: relative to one of ``folders``, or absolute, on whichever machine they were compiled."""

    def __init__(self, folders: Sequence[Path], rootdir: Path) -> None:
        self.folders = tuple(dict.fromkeys(folders))
        self.rootdir = rootdir.resolve()
        #: by what is shown of them, the files found so far
        self.files: dict[str, Path] = {}
        self._found: dict[str, Path | None] = {}
        self._shown: dict[str, str] = {}

    def find(self, path: str) -> Path | None:
        """The file below the rootdir that a path means; ``None`` if there is none."""
        if path not in self._found:
            self._found[path] = self._find(path)
        return self._found[path]

    def _find(self, path: str) -> Path | None:
        pure = _pure(path)
        if pure.suffix not in _SUFFIXES:
            return None
        file = self._first(folder / path for folder in self.folders)
        if file is not None or not pure.is_absolute():
            return file
        # Compiled elsewhere: the same project in another folder ends alike; one name alone would be too little of that.
        parts = pure.parts[1:]
        tails = (parts[index:] for index in range(1, len(parts) - 1))
        file = self._first(self.rootdir.joinpath(*tail) for tail in tails)
        return file or self._first(folder / pure.name for folder in self.folders[:1])

    def _first(self, candidates: Iterable[Path]) -> Path | None:
        for candidate in candidates:
            try:
                # most do not exist, and one question of the system tells; ``resolve`` asks one for each folder
                if ".." not in candidate.parts and not candidate.is_file():
                    continue
                resolved = candidate.resolve()
                if resolved.is_relative_to(self.rootdir) and resolved.is_file():
                    return resolved
            except (OSError, RuntimeError, ValueError):
                continue
        return None

    def shown(self, path: str) -> str:
        """The path below the rootdir; of another file what is the same on every machine."""
        shown = self._shown.get(path)
        if shown is None:
            file = self.find(path)
            shown = outside(path) if file is None else file.relative_to(self.rootdir).as_posix()
            if file is not None:
                self.files[shown] = file
            self._shown[path] = shown
        return shown

    def place(self, place: str) -> str:
        """``file:line`` with the file as ``shown``."""
        path, colon, line = place.rpartition(":")
        return f"{self.shown(path)}:{line}" if colon and path else place

    def text(self, text: str, files: Iterable[str]) -> str:
        """Text with those ``files`` that have absolute paths, where it names them, as ``shown``."""
        for path in sorted(files, key=len, reverse=True):
            if path in text and _pure(path).is_absolute():
                text = text.replace(path, self.shown(path))
        return text


@lru_cache(maxsize=1024)
def outside(path: str) -> str:
    """A path that is not below the rootdir: a relative one as it is, of an absolute one the part within its package, or its name."""
    pure = _pure(path)
    if not pure.is_absolute():
        return PurePosixPath(os.path.normpath(pure.as_posix())).as_posix() if path else ""
    parts = pure.parts
    for marker in _INSTALLED:
        if marker in parts[:-1]:
            return "/".join(parts[len(parts) - parts[::-1].index(marker) :])
    if _HEADERS in parts[:-1]:
        return "/".join(parts[len(parts) - parts[::-1].index(_HEADERS) - 1 :])
    return pure.name


def _pure(path: str) -> PurePosixPath | PureWindowsPath:
    windows = PureWindowsPath(path)
    return windows if windows.drive else PurePosixPath(path)
