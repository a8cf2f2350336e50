"""Positions in text: in a PTX file, and in the program that was compiled to it."""

from __future__ import annotations

import re
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


#: of the toolkit as it is installed, of conda's and of pip's packages
_HEADER = re.compile(r"(?:^|/)(?:cuda[^/]*|targets/[^/]+|nvidia/[^/]+)/include/")


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

    @property
    def own(self) -> SourcePosition:
        """The innermost position outside of CUDA's headers, whose functions (``atomicAdd``) are inlined; itself if there is none."""
        position: SourcePosition | None = self
        while position is not None and _HEADER.search(position.path):
            position = position.inlined_at
        return position or self

    @property
    def described(self) -> str:
        """The position for messages: ``own``, and the line of CUDA's headers that was inlined there."""
        return str(self) if self.own is self else f"{self.own}, inlined from {self}"

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"
