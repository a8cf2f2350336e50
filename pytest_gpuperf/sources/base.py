"""What a source of PTX gives."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Alternatives", "Compilation", "PtxSource", "display"]


@dataclass(frozen=True, slots=True)
class PtxSource:
    """PTX text and the name it goes by in messages: its path below the rootdir where it has one. ``entry`` is the kernel that is
    meant, for a source that knows it: where the test names none, or names it by an expression (``axpy<float>``). ``compiler`` is what
    made the text just now, with its version: numbers of another one are not comparable. It is empty for text that was there."""

    text: str
    path: str
    entry: str = ""
    compiler: str = ""


class Alternatives(dict[str, PtxSource]):
    """PTX of one kernel by ``.target``, as a program has it: of these, each machine takes the most specific that it can run, and what
    none takes is left out."""


@dataclass(frozen=True, slots=True)
class Compilation:
    """PTX that is made for an architecture (``sm_80``) once it is known which the machines of a case take."""

    compile: Callable[[str], PtxSource]


def display(path: Path, rootdir: Path) -> str:
    """A path as messages show it: below the rootdir, else its last part."""
    absolute = Path(os.path.normpath(path.absolute()))
    try:
        return absolute.relative_to(rootdir).as_posix()
    except ValueError:
        return absolute.name
