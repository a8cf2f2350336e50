"""nvcc and NVRTC: CUDA C++ to PTX, from the cache where the same has been compiled before."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpuperf_engine.errors import EngineError, MachineError
from gpuperf_engine.jit import cache
from gpuperf_engine.sass.tools import Tool, find_tool, run_tool

from .base import PtxSource
from .files import read_source
from .nvrtc import Nvrtc, find_nvrtc

if TYPE_CHECKING:
    from .cuda_source import CudaSource

__all__ = ["compile_cuda", "compile_text"]

_IDENTIFIER = re.compile(r"\w+")
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include(?:_next)?[ \t]*(?:([<\"])([^>\"\n]+)[>\"]|(\S+))", re.MULTILINE)
_NAMED = "gpuperf_name_expression"
_NAME = re.compile(rf"^.*\b{_NAMED} = (\w+);.*$", re.MULTILINE)
_ENVIRONMENT = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "CPATH", "CPLUS_INCLUDE_PATH")
_SEARCHED = ("CPATH", "CPLUS_INCLUDE_PATH")
_LOG_LINES = 12


def compile_cuda(
    source: CudaSource, file: Path, shown: str, includes: Sequence[Path], arch: str, entry: str | None
) -> PtxSource:
    """The PTX of a file for an architecture. ``entry`` may be a name expression (``axpy<float>``): then the text names the kernel that
    it means. Raises ``EngineError`` with the compiler's first messages."""
    text = read_source(file, "surrogateescape")
    compiler = _compiler(source.compiler)
    expression = entry if entry is not None and not _IDENTIFIER.fullmatch(entry) else ""
    options = [
        *(f"-I{folder}" for folder in [file.resolve().parent, *includes]),
        *(f"-D{name}" if value is None else f"-D{name}={value}" for name, value in source.defines.items()),
        *([f"-std={source.std}"] if source.std else []),
        *source.options,
    ]
    number = arch.partition("_")[2]
    read = _dependencies(file, text, includes)
    name = None
    if read is not None:
        environment = [os.environ.get(variable, "") for variable in _ENVIRONMENT]
        name = cache.key(
            "cuda", compiler.title, number, expression, str(file.resolve()), *options, *environment, *read
        )
        known = cache.read(name)
        if known is not None:
            ptx, kernel = json.loads(known)
            return PtxSource(ptx, f"{shown}[sm_{number}]", kernel, compiler.title)
    ptx, kernel = compiler.compile(file, text, shown, number, options, expression)
    if name is not None:
        cache.write(name, json.dumps([ptx, kernel]).encode())
    return PtxSource(ptx, f"{shown}[sm_{number}]", kernel, compiler.title)


def compile_text(
    text: str, shown: str, options: Sequence[str], arch: str, expression: str = "", wanted: str = "nvrtc"
) -> PtxSource:
    """The PTX of a text that is in no file, otherwise as ``compile_cuda``; ``options`` as they stand, with folders to include from."""
    compiler = _compiler(wanted)
    number = arch.partition("_")[2]
    # the compiler searches the file's folder first for a quoted include
    file = Path.cwd() / shown
    includes = [Path(option[2:]) for option in options if option.startswith("-I") and option[2:]]
    read = _dependencies(file, text, includes)
    name = None
    if read is not None:
        name = cache.key("cuda-text", compiler.title, number, expression, shown, *options, *read)
        known = cache.read(name)
        if known is not None:
            ptx, kernel = json.loads(known)
            return PtxSource(ptx, f"{shown}[sm_{number}]", kernel, compiler.title)
    with tempfile.TemporaryDirectory(prefix="gpuperf-") as folder:
        if isinstance(compiler, _Nvcc):
            file = Path(folder) / f"{shown}.cu"
            file.write_text(text, encoding="utf-8", errors="surrogateescape")
        ptx, kernel = compiler.compile(file, text, shown, number, options, expression)
    if name is not None:
        cache.write(name, json.dumps([ptx, kernel]).encode())
    return PtxSource(ptx, f"{shown}[sm_{number}]", kernel, compiler.title)


def _compiler(wanted: str) -> _Nvcc | Nvrtc:
    if wanted in ("auto", "nvcc"):
        try:
            return _Nvcc(find_tool("nvcc"))
        except MachineError:
            # A variable that names no program is an error, not a reason to compile with another one.
            if wanted == "nvcc" or os.environ.get("GPUPERF_NVCC"):
                raise
    return find_nvrtc()


class _Nvcc:
    """nvcc of a toolkit or of the wheel: whole programs, with the host's headers; it needs a C++ compiler of the host."""

    def __init__(self, tool: Tool) -> None:
        self.tool = tool
        self.title = f"nvcc {tool.full_version}"

    def compile(
        self, file: Path, text: str, shown: str, number: str, options: Sequence[str], expression: str
    ) -> tuple[str, str]:
        """The PTX, and the kernel that the name expression means. ``text`` is what the file has."""
        with tempfile.TemporaryDirectory(prefix="gpuperf-") as folder:
            given = file.resolve()
            if expression:
                # what the variable is set to is the kernel's name, and takes an instance of the template
                given = Path(folder) / file.name
                given.write_text(
                    f'#include "{file.resolve()}"\n__device__ auto {_NAMED} = {expression};\n',
                    encoding="utf-8",
                )
            output = Path(folder) / "module.ptx"
            command = [self.tool.path, "-ptx", "-lineinfo", f"-arch=compute_{number}", *options]
            done = run_tool("nvcc", [*command, "-x", "cu", str(given), "-o", str(output)], folder)
            if done.returncode or not output.is_file():
                raise failed(self.title, shown, done.stderr + done.stdout, number)
            return lowered(output.read_text(encoding="utf-8", errors="replace"))


def lowered(ptx: str) -> tuple[str, str]:
    """PTX without the variable that has the name expression's kernel, and that kernel; lines stay where they are."""
    match = _NAME.search(ptx)
    return (ptx, "") if match is None else (_NAME.sub("", ptx), match[1])


def failed(title: str, shown: str, log: str, number: str) -> EngineError:
    """The error for a file that does not compile, with the compiler's first messages."""
    lines = [line for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()] or lines
    return EngineError(
        f"{shown} does not compile for compute_{number} ({title})",
        details=errors[:_LOG_LINES] or ["the compiler printed nothing"],
        hint="options: gpuperf.kernel(CudaSource(path, includes=…, defines=…, std=…), …); "
        'another architecture: arch="sm_90a", or other targets',
    )


def _dependencies(file: Path, text: str, includes: Sequence[Path]) -> list[bytes] | None:
    """The contents that decide what is compiled: the file and all that it includes from folders that are searched, in a fixed order.
    Headers of the compiler are known by its version. ``None`` where a macro decides what is included."""
    further = [
        Path(part) for name in _SEARCHED for part in os.environ.get(name, "").split(os.pathsep) if part
    ]
    folders = [*includes, *further]
    contents, seen = [text.encode("utf-8", "surrogateescape")], {file.resolve()}
    todo = [(file.resolve().parent, text)]
    while todo:
        folder, including = todo.pop()
        for quote, name, other in _INCLUDE.findall(including):
            if other:
                return None
            searched = (
                [folder, file.resolve().parent, *folders]
                if quote == '"'
                else [file.resolve().parent, *folders]
            )
            found = next(_existing(searched, name), None)
            if found is None or found in seen:
                continue
            seen.add(found)
            content = found.read_bytes()
            contents += str(found).encode("utf-8", "surrogateescape"), content
            todo.append((found.parent, content.decode("utf-8", "surrogateescape")))
    return contents


def _existing(folders: Sequence[Path], name: str) -> Iterator[Path]:
    for folder in folders:
        try:
            path = (folder / name).resolve()
            if path.is_file():
                yield path
        except (OSError, ValueError):
            continue
