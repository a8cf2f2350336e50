"""``gpuperf run``: a program, unchanged, on the emulator."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys

from gpuperf_engine.errors import nearest

from .._engine import engine
from ..triton.activation import environment
from ..triton.device import DEFAULT_MACHINE
from .common import Subcommands, UsageError

__all__ = ["add_parser"]


def add_parser(commands: Subcommands) -> None:
    """Registers the subcommand."""
    parser = commands.add_parser(
        "run",
        help="run a program, unchanged, on the emulator",
        usage="gpuperf run --triton [--target ID] -- PROGRAM [ARGUMENT …]",
    )
    parser.add_argument("--target", metavar="ID", help="the GPU that the program finds (default: h100-sxm)")
    parser.add_argument(
        "--triton", action="store_true", help="a Python program: Triton and torch find the GPU"
    )
    parser.add_argument("program", metavar="PROGRAM", nargs=argparse.REMAINDER)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    command = arguments.program[1:] if arguments.program[:1] == ["--"] else arguments.program
    if not command:
        raise UsageError("say what to run: gpuperf run --triton -- PROGRAM ARGUMENTS")
    if not arguments.triton:
        raise UsageError("say what the program uses; accepted: --triton")
    if arguments.target is not None and arguments.target not in engine.machine_ids():
        raise UsageError(
            f"--target {arguments.target!r} is not known; "
            f"{nearest(arguments.target, engine.machine_ids(), noun='target')}"
        )
    program = shutil.which(command[0])
    if program is None:
        raise UsageError(f"{command[0]}: no such program")
    sys.stdout.flush()
    sys.stderr.flush()
    variables = environment(arguments.target or DEFAULT_MACHINE, [])
    return subprocess.run([program, *command[1:]], env={**os.environ, **variables}, check=False).returncode
