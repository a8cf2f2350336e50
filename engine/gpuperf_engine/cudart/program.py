"""What a program must be to run here: linked to the shared CUDA runtime, and to no library that needs a GPU."""

from __future__ import annotations

import re
from pathlib import Path

from ..binaries.elf import MAGIC
from ..errors import MachineError

__all__ = ["check_program"]

_LIBRARIES = re.compile(
    rb"\0(lib(cublas|cublasLt|cufft|cufftw|curand|cusparse|cusolver|cudnn|nccl|npp\w+|nvjpeg|nvrtc)\.so\.[\d.]+)\0"
)
_FUNCTIONS = re.compile(
    rb"\0((?:cublas|cufft|curand|cusparse|cusolver|cudnn|nccl|npp|nvjpeg)[A-Z]\w+|nccl[A-Z]\w+|npp\w+_\w+)(?=\0)"
)
_RUNTIME = re.compile(rb"\0libcudart\.so\.([\d.]+)\0")
_NATIVE = (b"nvrtc",)


def check_program(path: Path) -> None:
    """Raises ``MachineError`` for a program of CUDA that cannot be run: what it needs, by name, and what to do."""
    data = path.read_bytes()
    if not data.startswith(MAGIC):
        return  # a script, which may start programs
    needed = [match for match in _LIBRARIES.findall(data) if match[1] not in _NATIVE]
    if needed:
        used = sorted({name.decode() for name in _FUNCTIONS.findall(data)})
        shown = ", ".join(used[:6]) + (f", … ({len(used)} in all)" if len(used) > 6 else "")
        raise MachineError(
            f"{path.name} needs {', '.join(sorted(name.decode() for name, _ in needed))}, whose kernels are machine code alone",
            details=[f"it calls {shown}"] if used else [],
            hint="the emulator has CUDA's runtime; measure kernels of the program's own: gpuperf.kernel(FILE, NAME)",
        )
    runtime = _RUNTIME.search(data)
    if runtime is None and b"\0.nv_fatbin\0" in data and b"libcuda.so" in data:
        raise MachineError(
            f"{path.name} is linked to the static CUDA runtime, which cannot be replaced",
            hint="link it with nvcc -cudart shared (CMake: set CUDA_RUNTIME_LIBRARY to Shared)",
        )
    if runtime is not None and runtime[1].split(b".")[0] not in (b"12", b"13"):
        raise MachineError(
            f"{path.name} is linked to libcudart.so.{runtime[1].decode()}",
            hint="programs of CUDA 12 and 13 can be run: compile it with one of these",
        )
