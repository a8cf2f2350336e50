"""Checks that a program can run on the emulator: it uses CUDA 12 or 13, is not stripped, and needs no library that requires a GPU."""

from __future__ import annotations

import mmap
import re
import struct
from pathlib import Path

from ..binaries.elf import MAGIC, read_elf
from ..errors import MachineError

__all__ = ["check_program"]

_LIBRARY = re.compile(
    r"lib(cublas|cublasLt|cufft|cufftw|curand|cusparse|cusolver|cudnn|nccl|npp\w+|nvjpeg)\.so"
)
_FUNCTION = re.compile(r"(?:cublas|cufft|curand|cusparse|cusolver|cudnn|nccl|nvjpeg)[A-Z]\w+|npp\w+_\w+")
_RUNTIME = re.compile(r"libcudart\.so\.(\d+)")
_VERSIONS = ("12", "13")
#: functions of the static runtime; the second is only in those before CUDA 12
_TELLING = (b"cudaMalloc", b"__cudaRegisterTexture")
_OLD = _TELLING[1]
#: a tag of the dynamic section (System V ABI, "Dynamic Section")
_NEEDED = 1
_ENTRY = struct.Struct("<QQ")


def check_program(path: Path) -> bool:
    """Whether a program itself contains functions of CUDA. Raises ``MachineError`` for a CUDA program that cannot run, naming what it
    needs and what to do, and ``BinaryError`` for a damaged file."""
    with path.open("rb") as stream:
        if stream.read(len(MAGIC)) != MAGIC:
            return False  # a script, which may start programs
        data = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
    file = read_elf(data, path.name, (".dynamic", ".dynstr", ".strtab", ".nv_fatbin"))
    sections = {
        section.name: bytes(section.data) for section in file.sections if section.name != ".nv_fatbin"
    }
    strings = sections.get(".dynstr", b"")
    entries = list(
        _ENTRY.iter_unpack(sections.get(".dynamic", b"")[: len(sections.get(".dynamic", b"")) // 16 * 16])
    )
    needed = [_text(strings, value) for tag, value in entries if tag == _NEEDED]
    foreign = [name for name in needed if _LIBRARY.match(name)]
    if foreign:
        used = sorted(
            {name for name in strings.decode("utf-8", "replace").split("\0") if _FUNCTION.fullmatch(name)}
        )
        shown = ", ".join(used[:6]) + (f", … ({len(used)} in all)" if len(used) > 6 else "")
        raise MachineError(
            f"{path.name} needs {', '.join(foreign)}, which the emulator does not have",
            details=[f"it calls {shown}"] if used else [],
            hint="programs of the runtime API can be run; measure kernels of this one: gpuperf.kernel(FILE, NAME)",
        )
    versions = [match[1] for match in map(_RUNTIME.match, needed) if match]
    contained = {name for name in _TELLING if b"\0" + name + b"\0" in sections.get(".strtab", b"")}
    if (
        not versions
        and len(file.sections) > len(sections)
        and b"cudaMalloc" not in contained
        and "libcuda.so.1" not in needed
    ):
        raise MachineError(
            f"{path.name} contains the static CUDA runtime and was stripped: its functions cannot be found",
            hint="do not use strip or -s, or link it with nvcc -cudart shared (CMake: CUDA_RUNTIME_LIBRARY Shared)",
        )
    if _OLD in contained and not versions:
        versions = ["11"]
    if versions and versions[0] not in _VERSIONS:
        raise MachineError(
            f"{path.name} is linked to the runtime of CUDA {versions[0]}",
            hint="programs of CUDA 12 and 13 can be run: compile it with one of these",
        )
    return bool(versions or contained or "libcuda.so.1" in needed)


def _text(strings: bytes, start: int) -> str:
    return strings[start : start + 4096].partition(b"\0")[0].decode("utf-8", "replace")
