"""Finds ``ptxas``, ``nvdisasm`` and ``nvcc`` as users have them installed, and runs them with a time limit.

They are part of the CUDA toolkit and available as wheels (``nvidia-cuda-nvcc``, ``nvidia-cuda-nvdisasm``: extra ``[nvcc]``); the
first two come with Triton, too. None needs a GPU or a driver.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import util
from pathlib import Path
from typing import IO

from ..errors import MachineError

__all__ = ["SECONDS", "Tool", "find_tool", "how_it_ended", "run_tool", "shortened"]

#: The time limit of one run of a tool.
SECONDS = 60
#: After this many consecutive runs that timed out, a tool is not run again in this process.
_HANGS = 2
#: A tool that prints more bytes is ended: a listing has about 250 for each machine instruction.
_LARGEST = 1 << 29
#: Messages quote this many characters of a line of a tool's output.
_QUOTED = 400
#: Options of ``ptxas`` that are set for each kernel, or without which it assembles nothing.
_OWN = re.compile(
    r"--?(arch|gpu-name|o|output-file|e|entry|v|verbose|h|help|V|version|lineinfo|generate-line-info|dryrun)\b"
)
_RELEASE = re.compile(r"release (\d+\.\d+)(?:, V([\d.]+))?")


@dataclass(frozen=True, slots=True)
class Tool:
    """A program: its name, its path, and its versions, short (``13.0``) and full (``13.0.88``); ``unknown`` if it reports none.
    ``options`` are those of the user, which the full version names too."""

    name: str
    path: str
    version: str
    full_version: str
    options: tuple[str, ...] = ()


def find_tool(name: str, architecture: str = "", ptx: tuple[int, int] = (0, 0)) -> Tool:
    """Finds ``ptxas``, ``nvdisasm`` or ``nvcc`` in ``$GPUPERF_PTXAS`` (and so on), the search path, ``bin`` of ``$CUDA_HOME`` or
    ``$CUDA_PATH``, NVIDIA's wheels, or Triton, which has two ``ptxas`` for different architectures (``sm_89``), in this order: the
    first ``ptxas`` that reads PTX of the version ``ptx``, or the first one if none does. Raises ``MachineError`` if there is none."""
    chosen = {
        "ptxas": os.environ.get("GPUPERF_PTXAS"),
        "nvdisasm": os.environ.get("GPUPERF_NVDISASM"),
        "nvcc": os.environ.get("GPUPERF_NVCC"),
    }
    own, tool = chosen[name], None
    if own:
        _check_chosen(name, own)
    for path in (own,) if own else _found(name, architecture):
        one = _asked(name, path, _stamp(path))
        tool = tool or one
        if name != "ptxas" or _reads(one) >= ptx:
            tool = one
            break
    if tool is None:
        raise MachineError(
            f"there is no {name}",
            details=[
                "looked for on the PATH, in $CUDA_HOME/bin, in $CUDA_PATH/bin, among the installed wheels and in Triton"
            ],
            hint=f"pip install 'pytest-gpuperf[nvcc]', or set CUDA_HOME, or GPUPERF_{name.upper()} to the program",
        )
    options = _options() if name == "ptxas" else ()
    return replace(tool, full_version=" ".join((tool.full_version, *options)), options=options)


def _found(name: str, architecture: str) -> Iterator[str]:
    for look in (shutil.which, _in_toolkit, _in_wheel):
        if path := look(name):
            yield path
    if path := _in_triton(name, architecture):
        yield path


def _reads(tool: Tool) -> tuple[int, int]:
    """The latest version of PTX that a ``ptxas`` reads (PTX ISA, *Release Notes*: CUDA 11.x has PTX 7.x, 13.x has PTX 9.x)."""
    match = re.fullmatch(r"(\d+)\.(\d+)", tool.version)
    if match is None:
        return _UNKNOWN
    toolkit, minor = int(match[1]), int(match[2])
    return toolkit - 4, minor - (toolkit == 12 and minor > _SAME_PTX)


def _options() -> tuple[str, ...]:
    """The options in ``$GPUPERF_PTXAS_OPTIONS``. Raises ``MachineError`` for those that are set for each kernel."""
    given = os.environ.get("GPUPERF_PTXAS_OPTIONS", "")
    try:
        options = tuple(shlex.split(given))
    except ValueError as error:
        raise MachineError(f"GPUPERF_PTXAS_OPTIONS: {error}", details=[shortened(given)]) from None
    for option in options:
        if _OWN.match(option) or not option.startswith("-"):
            raise MachineError(
                f"GPUPERF_PTXAS_OPTIONS holds {shortened(option)}",
                details=[shortened(given)],
                hint="files, the kernel, the architecture and what is printed are set for each kernel; write values behind an equals "
                "sign: -maxrregcount=32 -O1 -c",
            )
    return options


def _check_chosen(name: str, path: str) -> None:
    """Raises ``MachineError`` unless the path in ``$GPUPERF_PTXAS`` (and so on) is that of a program, or a name on the search path."""
    if shutil.which(path):
        return
    variable = f"GPUPERF_{name.upper()}"
    if os.path.isdir(path):
        problem = "a folder"
    elif os.path.exists(path):
        problem = "a file that cannot be executed"
    else:
        problem = "a file that does not exist"
    raise MachineError(
        f"{variable} names {problem}: {shortened(path)}",
        details=[
            f"looked for {name} only there, because the variable is set; it was not looked for anywhere else"
        ],
        hint=f"set {variable} to the path of {name} itself, or unset it: then {name} is looked for on the PATH, in $CUDA_HOME/bin, "
        "in $CUDA_PATH/bin, among the installed wheels and in Triton",
    )


def _in_toolkit(name: str) -> str | None:
    for folder in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")):
        path = shutil.which(name, path=str(Path(folder) / "bin")) if folder else None
        if path:
            return path
    return None


def _in_wheel(name: str) -> str | None:
    spec = util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        for program in sorted(Path(folder).glob(f"*/bin/{name}*"), reverse=True):
            if program.stem == name:
                return str(program)
    return None


def _in_triton(name: str, architecture: str) -> str | None:
    """The program of an installed Triton, which is not imported. For Blackwell its PTX is of the version of another ``ptxas``."""
    number = re.match(r"sm_(\d+)", architecture)
    later = name == "ptxas" and number is not None and int(number[1]) >= 100
    spec = util.find_spec("triton")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        programs = str(Path(folder) / "backends" / "nvidia" / "bin")
        for program in ("ptxas-blackwell", name) if later else (name,):
            if path := shutil.which(program, path=programs):
                return path
    return None


def _stamp(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


@lru_cache(maxsize=16)
def _asked(name: str, path: str, stamp: tuple[int, int]) -> Tool:
    """Queries the version. ``stamp`` invalidates the result for a program that was replaced."""
    match = _RELEASE.search(run_tool(name, [path, "--version"]).stdout)
    if match is None:
        # Distinguishes programs that report no version in the cache.
        return Tool(
            name,
            path,
            "unknown",
            f"unknown ({hashlib.blake2b(repr((path, stamp)).encode(), digest_size=4).hexdigest()})",
        )
    return Tool(name, path, match[1], match[2] or match[1])


#: Later than any version of PTX: of a program that does not report its own.
_UNKNOWN = (1 << 16, 0)
#: CUDA 12.6 has the PTX of 12.5: from there on the minor version of PTX is one less.
_SAME_PTX = 5


#: By path, the number of consecutive runs that timed out.
_hung: dict[str, int] = {}


class _Reader(threading.Thread):
    """Reads an unbuffered stream to its end. Calls ``end`` and stops after ``_LARGEST`` bytes."""

    def __init__(self, stream: IO[bytes], end: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._stream, self._end = stream, end
        self._content = bytearray()
        self.full = False
        self.start()

    def run(self) -> None:
        with contextlib.suppress(OSError, ValueError):  # closed after a time-out
            while piece := self._stream.read(1 << 16):
                self._content += piece
                if len(self._content) > _LARGEST:
                    self.full = True
                    return self._end()

    def text(self) -> str:
        return self._content.decode("utf-8", "replace").replace("\r\n", "\n")


def run_tool(
    name: str, command: Sequence[str], folder: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a command in a folder and returns its result, whatever the exit code. Raises ``MachineError`` if it cannot be started,
    takes longer than ``SECONDS`` or prints more than 512 MiB; then all of its processes are killed, and after two consecutive
    time-outs the command is not run again."""
    if _hung.get(command[0], 0) >= _HANGS:
        raise MachineError(
            f"{name} is no longer run: {_HANGS} times in a row it did not end within {SECONDS} s",
            details=[command[0]],
            hint=f"run it by hand, or set GPUPERF_{name.upper()} to another one",
        )
    process = _started(name, command, folder)

    def end() -> None:
        with contextlib.suppress(ProcessLookupError):
            if os.name == "posix":
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()

    with process:
        readers = [_Reader(stream, end) for stream in (process.stdout, process.stderr) if stream is not None]
        if not _ended_in_time(process, readers, end):
            _hung[command[0]] = _hung.get(command[0], 0) + 1
            raise MachineError(
                f"{name} did not end within {SECONDS} s, and was ended",
                details=[" ".join(command)],
                hint="run it by hand; a kernel that takes so long may be too large",
            )
    _hung.pop(command[0], None)
    if any(reader.full for reader in readers):
        raise MachineError(
            f"{name} printed more than {_LARGEST >> 20} MiB, and was ended",
            details=[" ".join(command)],
            hint=f"is {command[0]} the {name} of a CUDA toolkit?",
        )
    output, errors = (reader.text() for reader in readers)
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def _started(name: str, command: Sequence[str], folder: str | None) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command,
            bufsize=0,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=os.name == "posix",
        )
    except OSError as error:
        raise MachineError(
            f"cannot run {command[0]}: {error.strerror or error}", hint=f"is it the {name} of a CUDA toolkit?"
        ) from None


def _ended_in_time(
    process: subprocess.Popen[bytes], readers: Sequence[_Reader], end: Callable[[], None]
) -> bool:
    """Waits until a process has ended and closed its streams, at most ``SECONDS``; then, or if interrupted, calls ``end``."""
    deadline = time.monotonic() + SECONDS
    try:
        for reader in readers:
            reader.join(max(0.0, deadline - time.monotonic()))
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        end()
        return False
    except BaseException:
        end()
        raise
    if any(reader.is_alive() for reader in readers):
        end()
        return False
    return True


def how_it_ended(done: subprocess.CompletedProcess[str]) -> str:
    """The exit code of a program without output, or the signal that ended it."""
    if done.returncode >= 0:
        return f"no message, exit code {done.returncode}"
    number = -done.returncode
    names = {item.value: item.name for item in signal.Signals}
    return f"no message, ended by {names.get(number, f'signal {number}')}"


def shortened(line: str) -> str:
    """A line of output for a message: shortened, with everything that is not printable written out."""
    shown = "".join(char if char.isprintable() else repr(char)[1:-1] for char in line[:_QUOTED])
    return shown if len(line) <= _QUOTED else f"{shown}… ({len(line):,} characters)"
