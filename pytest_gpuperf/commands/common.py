"""What subcommands share."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from gpuperf_engine.errors import EngineError

from .._engine import engine
from ..core.escaping import clean

if TYPE_CHECKING:
    from gpuperf_engine import Module

    Subcommands: TypeAlias = "argparse._SubParsersAction[Any]"
else:
    Subcommands = object

__all__ = [
    "FAILED",
    "NOT_JUDGED",
    "OK",
    "USAGE",
    "Subcommands",
    "UsageError",
    "columns",
    "parse_file",
    "write",
]

OK, FAILED, USAGE, NOT_JUDGED = 0, 1, 2, 3
"""Exit codes: all well, the gate failed, wrong usage, could not be judged."""


class UsageError(Exception):
    """Arguments that mean nothing; exit code 2."""


def parse_file(path: str) -> Module:
    """The PTX module in a file. Raises ``UsageError`` for no file and ``EngineError`` for no PTX."""
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
    return engine.parse(text, path=path)


def columns(rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> list[str]:
    """Rows as aligned lines."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))] if rows else []
    return [
        "  ".join(
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def write(text: str, output: str | None) -> None:
    """To a file, or to standard output with control characters written out."""
    if output is None:
        sys.stdout.write(clean(text))
        return
    try:
        Path(output).write_bytes(text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise EngineError(f"{output}: not written: {error.strerror or error}") from None
