"""``gpuperf completion``: the script with which a shell completes the command."""

from __future__ import annotations

import argparse
from functools import partial

from .common import OK, Subcommands, write

__all__ = ["add_parser"]


def add_parser(commands: Subcommands, whole: argparse.ArgumentParser) -> None:
    """Registers the subcommand; ``whole`` is the parser with all subcommands."""
    parser = commands.add_parser(
        "completion",
        help="print a completion script for a shell",
        epilog='bash: eval "$(gpuperf completion bash)"   fish: gpuperf completion fish | source',
    )
    parser.add_argument("shell", choices=("bash", "fish", "zsh"))
    parser.set_defaults(run=partial(_run, commands, whole))


def _run(commands: Subcommands, whole: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    import shtab  # only this subcommand needs it

    for parser in commands.choices.values():
        for action in parser._actions:
            if action.metavar == "DIR":
                action.complete = shtab.DIRECTORY
            elif action.metavar == "FILE" or "." in str(action.metavar or ""):  # REPORT.json
                action.complete = shtab.FILE
    write(shtab.complete(whole, arguments.shell).rstrip("\n") + "\n", None)
    return OK
