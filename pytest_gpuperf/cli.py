"""The ``gpuperf`` command. Exit codes: 0 ok, 1 gate failed, 2 usage, 3 could not be judged."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

__all__ = ["main"]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        from .core.escaping import clean

        self.print_usage(sys.stderr)
        self.exit(2, f"{self.prog}: {clean(message)}\n")


_ALONE = (
    "ls",
    "inspect",
    "profile",
    "time",
    "run",
    "sass",
    "tune",
    "flow",
    "targets",
    "instructions",
    "calibrate",
)
#: the module of ``commands`` that registers each subcommand, in the order of the help
_COMMANDS = {
    **{name: name for name in _ALONE},
    **dict.fromkeys(("report", "check", "compare", "accept"), "gate"),
}


def _build(named: str = "") -> argparse.ArgumentParser:
    """Return the parser: of one subcommand if it is ``named``, as importing all of them takes a second; else of all."""
    from gpuperf_engine import __version__

    parser = _Parser(
        prog="gpuperf",
        description="GPU kernels inspected, profiled and gated on the CPU.",
        epilog="exit codes: 0 ok, 1 the gate failed, 2 wrong usage, 3 could not be judged",
    )
    parser.add_argument("--version", action="version", version=f"gpuperf {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    modules = [_COMMANDS[named]] if named in _COMMANDS else dict.fromkeys(_COMMANDS.values())
    for module in modules:
        import_module(f".commands.{module}", __package__).add_parser(commands)
    if named not in _COMMANDS:
        from .commands import completion

        completion.add_parser(commands, parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one subcommand; ``argv`` without the program's name."""
    from gpuperf_engine.errors import EngineError

    from .commands.common import NOT_JUDGED, USAGE, UsageError
    from .core.escaping import clean

    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # characters outside the terminal's encoding must not raise
            stream.reconfigure(errors="backslashreplace")
    given = sys.argv[1:] if argv is None else argv
    arguments = _build(given[0] if given else "").parse_args(given)
    try:
        return int(arguments.run(arguments))
    except UsageError as error:
        sys.stderr.write(f"gpuperf: {clean(str(error))}\n")
        return USAGE
    except EngineError as error:
        sys.stderr.write(f"gpuperf: {clean(str(error))}\n")
        return NOT_JUDGED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NOT_JUDGED
    except OSError as error:
        sys.stderr.write(f"gpuperf: {clean(str(error))}\n")
        return NOT_JUDGED


if __name__ == "__main__":
    raise SystemExit(main())
