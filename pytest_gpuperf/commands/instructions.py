"""``gpuperf instructions``: the table of instructions."""

from __future__ import annotations

import argparse
import difflib
from typing import Any

from gpuperf_engine.isa.document import render
from gpuperf_engine.isa.table import rows

from .common import OK, UsageError, write

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:
    """Registers the subcommand."""
    parser = commands.add_parser(
        "instructions",
        help="print the table of instructions as Markdown",
        epilog="gpuperf instructions mma wgmma",
    )
    parser.add_argument(
        "name", nargs="*", metavar="NAME", help="instructions, such as mma or mma.sync (default: all)"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Raises ``UsageError`` for a name that is not in the table."""
    names = [name.split(".")[0] for name in arguments.name]
    known = sorted({row.name for row in rows()})
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known)
            raise UsageError(
                f"no instruction is named {name!r}"
                + (f"; there is {', '.join(near)}" if near else "; gpuperf instructions prints all")
            )
    write(render(names), None)
    return OK
