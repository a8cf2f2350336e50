"""``gpuperf run``: runs an unchanged program on the emulator; ``--gate`` judges its launches."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from gpuperf_engine.cudart.program import check_program

from ..config.options import CHOICES
from ..programs.device import DEFAULT_MACHINE
from ..programs.processes import handed_down
from ..programs.start import OFF, environment, observing, say_nothing_ran, say_races_not_sought
from .common import Subcommands, UsageError, check_targets

__all__ = ["add_parser"]

_OF_GATE = {
    "update": "--update",
    "kernels": "--kernels",
    "baselines": "--baselines",
    "report": "--report",
    "budget": "--budget",
}


#: exit code of a program killed by a signal, less the number of the signal, as in shells
_SIGNAL = 128


def add_parser(commands: Subcommands) -> None:
    """Registers the subcommand."""
    parser = commands.add_parser(
        "run",
        help="run a program, unchanged, on the emulator; --gate compares its launches with a baseline",
        usage="gpuperf run [--target ID] [--triton | --races MODE --uninitialized MODE --values WHAT -o FILE.json | --gate …] "
        "-- PROGRAM [ARGUMENT …]",
        epilog="example: gpuperf run --gate --update --target h100-sxm -- build/app --size 1000",
    )
    parser.add_argument(
        "--target",
        metavar="ID",
        action="append",
        help="the GPU that the program finds (default: h100-sxm); with --gate repeatable: time is predicted for all",
    )
    parser.add_argument(
        "--triton", action="store_true", help="a Python program: Triton and torch find the GPU"
    )
    parser.add_argument(
        "--races",
        choices=("off", "note", "error"),
        help="CUDA programs: detect races (default: off; with --gate as configured)",
    )
    parser.add_argument(
        "--uninitialized",
        choices=("off", "note", "error"),
        help="CUDA programs: detect reads of device memory that nothing wrote (default: off; with --gate as configured)",
    )
    parser.add_argument(
        "--values",
        choices=CHOICES["program_values"],
        help="CUDA programs: find value patterns of objects, or also of single accesses (default: off; with --gate as "
        "configured)",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE.json",
        help="CUDA programs: write counts by kernel, and findings of --values, to this file",
    )
    parser.add_argument(
        "--max-instructions",
        metavar="N",
        type=int,
        help="CUDA programs: the most warp instructions of one warp before its kernel is stopped (default: 100000000)",
    )
    _add_gate(parser)
    parser.add_argument("program", metavar="PROGRAM", nargs=argparse.REMAINDER)
    parser.set_defaults(run=run)


def _add_gate(parser: argparse.ArgumentParser) -> None:
    """``--gate``, and options that need it."""
    gate = parser.add_argument_group(
        "gate", "for CUDA programs; configured like pytest, by the ini file of this folder"
    )
    gate.add_argument(
        "--gate",
        action="store_true",
        help="compare every launch with the baseline; exit code 1 if it got worse",
    )
    gate.add_argument("--update", action="store_true", help="store the measurements in the baseline")
    gate.add_argument(
        "--baselines",
        metavar="DIR",
        help="folder of the baselines (default: ini gpuperf_baseline_dir, baselines)",
    )
    gate.add_argument("--report", metavar="DIR", help="write gpuperf.json, .html, .md and candidates/")
    gate.add_argument(
        "--kernels", metavar="GLOB", action="append", help="compare only these kernels (repeatable)"
    )
    gate.add_argument(
        "--budget", metavar="N", help="warp instructions (20e9) or seconds (600s) that all launches may cost"
    )


def run(arguments: argparse.Namespace) -> int:
    command = arguments.program[1:] if arguments.program[:1] == ["--"] else arguments.program
    if not command:
        raise UsageError("give a program: gpuperf run -- PROGRAM ARGUMENTS")
    of_cuda = {
        "--races": arguments.races,
        "--uninitialized": arguments.uninitialized,
        "--values": arguments.values,
        "--max-instructions": arguments.max_instructions,
        "-o": arguments.output,
    }
    if arguments.triton and any(of_cuda.values()):
        *names, last = of_cuda
        raise UsageError(f"{', '.join(names)} and {last} are for CUDA programs: omit --triton")
    if arguments.max_instructions is not None and arguments.max_instructions < 1:
        raise UsageError(f"--max-instructions {arguments.max_instructions}: at least 1")
    idle = [option for name, option in _OF_GATE.items() if getattr(arguments, name)]
    if idle and not arguments.gate:
        raise UsageError(f"{', '.join(idle)} {'does' if len(idle) == 1 else 'do'} nothing without --gate")
    if arguments.gate and (arguments.triton or arguments.output):
        raise UsageError(
            "--gate is for CUDA programs, and --report is its output: tests of Triton are gated by pytest --gpuperf-triton --gpuperf"
        )
    targets = arguments.target or []
    if len(targets) > 1 and not arguments.gate:
        raise UsageError("a program finds one GPU: give one --target, or --gate")
    check_targets(*targets)
    program = shutil.which(command[0])
    if program is None:
        raise UsageError(f"{command[0]}: no such program")
    if arguments.gate:
        from .run_gate import gate

        return gate(arguments, command)
    target = targets[0] if targets else DEFAULT_MACHINE
    if arguments.triton:
        return _start([program, *command[1:]], handed_down(["triton"], target, []))
    has_cuda = check_program(Path(program))
    values = arguments.values or OFF
    device = {"races": arguments.races or "off", **observing(values)}
    if arguments.max_instructions:
        device["max_instructions"] = arguments.max_instructions
    with tempfile.TemporaryDirectory(prefix="gpuperf-") as folder:
        logged = Path(folder) / "launches"
        logged.mkdir()
        variables = environment(
            target,
            device=device,
            output=arguments.output,
            folder=str(logged) if values != OFF else "",
            telling=True,
            uninitialized=arguments.uninitialized or OFF,
        )
        used = Path(folder) / "used"
        code = _start([program, *command[1:]], {**variables, "GPUPERF_RUN_USED": str(used)})
        if not used.exists():
            say_nothing_ran(command[0], has_cuda)
            return code
        if values != OFF:
            from .run_values import report_values

            report_values(logged, target, arguments.output)
    if 0 < code < _SIGNAL and device["races"] == OFF:
        say_races_not_sought(command[0], code)
    return code


def _start(command: list[str], variables: dict[str, str]) -> int:
    """Run a program with these variables in its environment; return its exit code, as shells report it."""
    sys.stdout.flush()
    sys.stderr.flush()
    code = subprocess.run(command, env={**os.environ, **variables}, check=False).returncode
    return code if code >= 0 else _SIGNAL - code
