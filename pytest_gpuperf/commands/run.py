"""``gpuperf run``: a program, unchanged, on the emulator."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from gpuperf_engine.cudart.build import VERSIONS, build_library
from gpuperf_engine.cudart.program import check_program
from gpuperf_engine.errors import MachineError

from ..triton.activation import environment
from ..triton.device import DEFAULT_MACHINE
from .common import Subcommands, UsageError, check_targets

__all__ = ["add_parser"]


def add_parser(commands: Subcommands) -> None:
    """Registers the subcommand."""
    parser = commands.add_parser(
        "run",
        help="run a program, unchanged, on the emulator",
        usage="gpuperf run [--target ID] [--triton | --races MODE -o FILE.json] -- PROGRAM [ARGUMENT …]",
    )
    parser.add_argument("--target", metavar="ID", help="the GPU that the program finds (default: h100-sxm)")
    parser.add_argument(
        "--triton", action="store_true", help="a Python program: Triton and torch find the GPU"
    )
    parser.add_argument(
        "--races",
        choices=("off", "note", "error"),
        help="of a CUDA program: whether races are looked for (default: off)",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE.json",
        help="of a CUDA program: write there what was counted, by kernel",
    )
    parser.add_argument("program", metavar="PROGRAM", nargs=argparse.REMAINDER)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    command = arguments.program[1:] if arguments.program[:1] == ["--"] else arguments.program
    if not command:
        raise UsageError("say what to run: gpuperf run -- PROGRAM ARGUMENTS")
    if arguments.triton and (arguments.races or arguments.output):
        raise UsageError("--races and -o are for CUDA programs: leave out --triton")
    target = arguments.target or DEFAULT_MACHINE
    check_targets(target)
    program = shutil.which(command[0])
    if program is None:
        raise UsageError(f"{command[0]}: no such program")
    if arguments.triton:
        return _start([program, *command[1:]], environment(target, []))
    check_program(Path(program))
    variables = _cuda(target, arguments.races or "off", arguments.output)
    with tempfile.TemporaryDirectory(prefix="gpuperf-") as folder:
        used = Path(folder) / "used"
        code = _start([program, *command[1:]], {**variables, "GPUPERF_RUN_USED": str(used)})
        if not used.exists():
            message = f"gpuperf: {command[0]} has called no function of the CUDA runtime: nothing was run on the emulator"
            hint = "programs of Triton need --triton, others the shared runtime (nvcc -cudart shared)"
            print(f"{message}\n  {hint}", file=sys.stderr)
    return code


def _start(command: list[str], variables: dict[str, str]) -> int:
    """The exit code of a program with these variables in its environment."""
    sys.stdout.flush()
    sys.stderr.flush()
    return subprocess.run(command, env={**os.environ, **variables}, check=False).returncode


def _cuda(target: str, races: str, output: str | None) -> dict[str, str]:
    """The environment of a CUDA program. Raises ``MachineError``."""
    folders = [str(build_library(version)) for version in VERSIONS]
    others = os.environ.get("LD_LIBRARY_PATH")
    return {
        "LD_LIBRARY_PATH": os.pathsep.join([*folders, *([others] if others else [])]),
        "GPUPERF_RUN_PYTHON": sys.executable,
        "GPUPERF_RUN_LIBPYTHON": str(_python_library()),
        "GPUPERF_RUN_TARGET": target,
        "GPUPERF_RUN_RACES": races,
        "GPUPERF_RUN_OUTPUT": os.path.abspath(output) if output else "",
    }


def _python_library() -> Path:
    """The shared library of this Python. Raises ``MachineError`` where it was built without one."""
    version = sysconfig.get_config_var("LDVERSION") or "{}.{}".format(*sys.version_info[:2])
    name = sysconfig.get_config_var("INSTSONAME") or f"libpython{version}.so.1.0"
    folders = [
        sysconfig.get_config_var("LIBDIR"),
        os.path.join(sys.base_prefix, "lib"),
        sysconfig.get_config_var("LIBPL"),
    ]
    names = [name, f"libpython{version}.so.1.0", f"libpython{version}.so"]
    for folder in filter(None, folders):
        for candidate in names:
            path = Path(folder) / candidate
            if path.is_file() and re.search(r"\.so(\.|$)", candidate):
                return path
    raise MachineError(
        f"there is no {names[1]}: this Python was built without a shared library",
        details=[f"looked in {', '.join(filter(None, folders))}"],
        hint=f"apt-get install libpython{version} (Debian, Ubuntu), or use a Python built with --enable-shared",
    )
