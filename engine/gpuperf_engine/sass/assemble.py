"""A kernel assembled by ``ptxas`` for one architecture, or read from the cache.

The assembled text maps machine instructions to PTX: debug information of the compiler is removed, and ``.loc 1 N 0`` precedes the Nth
instruction of the kernel and the functions that it reaches. ``ptxas`` keeps these lines through all optimisations, and generates the
same code with and without them. Of several on one line ``ptxas`` keeps only the last, so each instruction starts a line.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ..errors import MachineError
from ..isa.targets import sm_number
from ..jit import cache
from ..ptx.locations import FILE, LOC, LOC_INTERMEDIATE, SECTION
from ..ptx.module import Function
from ..ptx.syntax import Instruction
from ..ptx.text import Text
from ..simt.call_graph import reachable
from .cubin import is_whole
from .tools import Tool, find_tool, how_it_ended, run_tool, shortened

__all__ = ["Assembly", "assemble", "assemble_all", "instructions_of", "numbered"]

_NOT_NEWLINE = re.compile(r"[^\n]")
_TOO_OLD = re.compile(r"Value '[^']*' is not defined for option 'gpu-name'|Unsupported \.version")
#: The oldest architecture of CUDA 13 (its release notes: Maxwell, Pascal and Volta are removed).
_TURING = 75
_PLACE = re.compile(r"module\.ptx, line (\d+)")
_LATER = "higher than default SM version"
#: Kernels with longer names are not selected on the command line: all kernels of the module are assembled.
_LONGEST_NAME = 4096


@dataclass(frozen=True, slots=True)
class Assembly:
    """The output of ``ptxas`` for a kernel: the ELF file, and its report (``-v``). ``others``: functions of the module that the kernel
    does not reach; their code is in the file where ``ptxas`` does not select a kernel: with long names, and for debugging."""

    kernel: str
    architecture: str
    tool: Tool
    cubin: bytes
    report: str
    others: tuple[str, ...] = ()


def instructions_of(kernel: Function) -> tuple[Instruction, ...]:
    """The instructions of a kernel, then those of each function that it reaches, numbered from 1."""
    return tuple(item for function in reachable(kernel) for item in function.instructions)


def numbered(kernel: Function) -> str:
    """The text of the kernel's module with ``.loc 1 N 0`` before instruction N of ``instructions_of``. Line numbers are those of the
    original, except after instructions that follow others on a line (``_broken``)."""
    module = kernel.module
    text = Text(module.text, module.path)
    pieces: list[str] = []
    done = 0
    broken = set(_broken(kernel))
    clean = _without_debug(text, sections="debug" in module.target_options)
    marks = {
        text.starts[item.span.line - 1] + item.span.column - 1: number
        for number, item in enumerate(instructions_of(kernel), 1)
    }
    for offset, number in sorted(marks.items()):
        pieces += clean[done:offset], "\n" * (number in broken), f".loc 1 {number} 0 "
        done = offset
    return "".join([*pieces, clean[done:], '\n.file 1 "k.ptx"\n'])


def _broken(kernel: Function) -> dict[int, int]:
    """For each instruction before which ``numbered`` starts a line, by number, its line in the original. In the order of the text."""
    order = sorted(
        (item.span.line, item.span.column, number) for number, item in enumerate(instructions_of(kernel), 1)
    )
    return {
        number: line
        for (before, _, _), (line, _, number) in zip([(0, 0, 0), *order], order)
        if before == line
    }


def _original(kernel: Function, line: int) -> int:
    """The line of the module for a line of ``numbered``."""
    for more, broken in enumerate(_broken(kernel).values(), 1):
        if line < broken + more:
            return line - more + 1
    return line - len(_broken(kernel))


def _without_debug(text: Text, *, sections: bool) -> str:
    """The text with debugging directives replaced by blanks, and the sections with debug information unless ``sections``: PTX for
    ``.target …, debug``, which is not optimised, must have them. Comments are removed too, since they may look like directives."""
    ranges = [
        match.span() for pattern in (FILE, LOC, LOC_INTERMEDIATE) for match in pattern.finditer(text.code)
    ]
    for match in () if sections else SECTION.finditer(text.code):
        end = text.code.find("}", match.end())
        ranges.append((match.start(), len(text.code) if end < 0 else end + 1))
    pieces: list[str] = []
    done = 0
    for start, end in sorted(ranges):
        if start < done:
            continue
        pieces += text.original[done:start], _NOT_NEWLINE.sub(" ", text.original[start:end])
        done = end
    return "".join([*pieces, text.original[done:]])


def assemble(kernel: Function, architecture: str) -> Assembly:
    """Assembles the kernel for an architecture (``sm_89``), which may be later than the ``.target`` of its module.

    Raises ``MachineError`` if ``ptxas`` is missing, rejects the module, is too old for it or times out.
    """
    tool = find_tool("ptxas", architecture, kernel.module.version)
    memo = kernel.memo.get((Assembly, architecture, tool))
    if isinstance(memo, Assembly):
        return memo
    if isinstance(memo, MachineError):
        raise memo.with_traceback(None)
    try:
        assembly = _assembled(tool, kernel, architecture)
    except MachineError as error:  # a retry would fail or time out again
        kernel.memo[Assembly, architecture, tool] = error
        raise
    kernel.memo[Assembly, architecture, tool] = assembly
    return assembly


def _assembled(tool: Tool, kernel: Function, architecture: str) -> Assembly:
    text = numbered(kernel)
    name = cache.key("ptxas", tool.full_version, architecture, kernel.name, text)
    known = cache.read(name)
    if known is None:
        report, cubin = _run(tool, kernel, text, architecture)
        cache.write(name, len(report).to_bytes(8, "little") + report + cubin)
    else:
        end = 8 + int.from_bytes(known[:8], "little")
        report, cubin = known[8:end], known[end:]
    reached = {function.name for function in reachable(kernel)}
    others = tuple(name for name in kernel.module.functions if name not in reached)
    return Assembly(kernel.name, architecture, tool, cubin, report.decode("utf-8", "replace"), others)


def assemble_all(wanted: Iterable[tuple[Function, str]]) -> list[Assembly | MachineError]:
    """``assemble`` for several kernels and architectures in parallel. The results are in order; an error replaces a failed
    assembly."""

    def one(item: tuple[Function, str]) -> Assembly | MachineError:
        try:
            return assemble(*item)
        except MachineError as error:
            return error

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(one, wanted))


def _run(tool: Tool, kernel: Function, text: str, architecture: str) -> tuple[bytes, bytes]:
    with tempfile.TemporaryDirectory(prefix="gpuperf-") as folder:
        Path(folder, "module.ptx").write_bytes(text.encode("utf-8", "replace"))
        entry = ["-e", kernel.name] if len(kernel.name) <= _LONGEST_NAME else []
        options = ["-v", "-lineinfo", f"-arch={architecture}", *entry, *tool.options]
        relocatable = not {"-c", "--compile-only"}.isdisjoint(tool.options)
        output = "module.o" if relocatable else "module.cubin"
        done = run_tool("ptxas", [tool.path, *options, "module.ptx", "-o", output], folder)
        cubin = Path(folder, "module.cubin")
        if done.returncode:
            raise _refusal(tool, kernel, architecture, done)
        if relocatable:
            _link(tool, architecture, folder)
        content = cubin.read_bytes() if cubin.is_file() else b""
        if not is_whole(content):
            raise MachineError(
                f"ptxas {tool.version} writes no whole ELF file for {kernel.name!r} on {architecture}, and says that it succeeded",
                details=[f"{len(content):,} bytes; {tool.path}"],
                hint=f"is there room for temporary files, and is {tool.path} the ptxas of a CUDA toolkit?",
            )
        return done.stderr.encode(), content


def _link(tool: Tool, architecture: str, folder: str) -> None:
    """Links relocatable code, which has no addresses, by the ``nvlink`` beside ``ptxas``."""
    linker = shutil.which("nvlink", path=str(Path(tool.path).parent)) or shutil.which("nvlink")
    if not linker:
        raise MachineError(
            "there is no nvlink, which links relocatable code (GPUPERF_PTXAS_OPTIONS holds -c)",
            details=[f"looked for beside {tool.path} and on the PATH"],
            hint="pip install 'pytest-gpuperf[nvcc]', or leave out -c",
        )
    done = run_tool("nvlink", [linker, f"-arch={architecture}", "module.o", "-o", "module.cubin"], folder)
    if done.returncode:
        said = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise MachineError(
            f"nvlink does not link what ptxas {tool.version} made for {architecture} with -c",
            details=[shortened(line) for line in said[:3]] or [how_it_ended(done)],
            hint="kernels that call functions of other files need these; leave out -c",
        )


def _placed(kernel: Function, line: str) -> str:
    """A line of ``ptxas`` with its position in the user's module."""
    return _PLACE.sub(
        lambda match: f"{kernel.module.path}:{_original(kernel, int(match[1]))}", line.removeprefix("ptxas ")
    )


def _refusal(
    tool: Tool, kernel: Function, architecture: str, done: subprocess.CompletedProcess[str]
) -> MachineError:
    said = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    lines = [shortened(_placed(kernel, line)) for line in said]
    first = next((line for line in lines if "error" in line or "fatal" in line), "")
    first = first or next(iter(lines), how_it_ended(done))
    if done.returncode < 0:
        return MachineError(
            f"ptxas {tool.version} was ended while it assembled {kernel.name!r} for {architecture}: {how_it_ended(done)}",
            details=lines[:3],
            hint=f"run {tool.path} by hand; SIGKILL is often the limit of memory of a container",
        )
    if _LATER in first:
        return MachineError(
            f"{kernel.name!r} is PTX for {kernel.module.target}, which {architecture} cannot run",
            details=[first],
            hint="compile it for an architecture that all targets can run, or choose another target",
        )
    if _TOO_OLD.search(first):
        hint = "it supports other architectures and PTX versions: install a later CUDA toolkit, or choose a target that it supports"
        if "gpu-name" in first and sm_number(architecture) < _TURING:
            hint = (
                f"CUDA 13 has no architectures before sm_{_TURING}: set GPUPERF_PTXAS and GPUPERF_NVDISASM to the programs of a "
                "CUDA 12 toolkit"
            )
        return MachineError(
            f"ptxas {tool.version} cannot assemble {kernel.name!r} for {architecture}: {first}", hint=hint
        )
    hint = f"{tool.path} also refuses it alone"
    if tool.options:
        hint = f"GPUPERF_PTXAS_OPTIONS is {shortened(shlex.join(tool.options))}; {tool.path} may accept it without these options"
    return MachineError(
        f"ptxas {tool.version} refuses {kernel.name!r} for {architecture}: {first}",
        details=lines[1:4],
        hint=hint,
    )
