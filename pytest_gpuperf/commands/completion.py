"""``gpuperf completion``: what a shell needs to complete the command, as a script of its own."""

from __future__ import annotations

import argparse
from functools import partial

from .common import OK, Subcommands, write

__all__ = ["add_parser"]


def add_parser(commands: Subcommands, whole: argparse.ArgumentParser) -> None:
    """Registers the subcommand; ``whole`` is the parser of the command with all of them."""
    parser = commands.add_parser(
        "completion",
        help="print a completion script for a shell",
        epilog='bash: eval "$(gpuperf completion bash)"   fish: gpuperf completion fish | source',
    )
    parser.add_argument("shell", choices=("bash", "fish", "zsh"))
    parser.set_defaults(run=partial(_run, commands, whole))


def _run(commands: Subcommands, whole: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    import shtab  # needed here alone

    for parser in commands.choices.values():
        for action in parser._actions:
            if action.metavar == "DIR":
                action.complete = shtab.DIRECTORY
            elif action.metavar == "FILE" or "." in str(action.metavar or ""):  # REPORT.json
                action.complete = shtab.FILE
    write(shtab.complete(whole, arguments.shell).rstrip("\n") + "\n", None)
    return OK
