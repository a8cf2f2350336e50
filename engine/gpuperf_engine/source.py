"""Positions in text: where a thing stands in a PTX file, and where it came from in the program that was compiled to it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["LOADED", "SourcePosition", "Span"]

#: when this module was loaded, one of the engine's first: in ns since the epoch
LOADED = time.time_ns()


class Span(NamedTuple):
    """A range in one text: lines and columns count from 1, the end is exclusive in its column."""

    path: str
    line: int
    column: int
    end_line: int
    end_column: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """A position in the program before compilation, from ``.loc`` (PTX manual, "Debugging Directives").

    ``inlined_at`` is the position of the call into which this line was inlined, ``function`` the name given by
    ``function_name`` there; both are ``None`` for code that was not inlined.
    """

    path: str
    line: int
    column: int
    function: str | None = None
    inlined_at: SourcePosition | None = None

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"
