"""Machine code of Triton's kernels on demand, as the binary that Triton stores is PTX. Imports Triton.

``kernel.asm["cubin"]`` and ``kernel.asm["sass"]`` are created on first access, by the ``ptxas`` that comes with Triton.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TypeGuard

import triton.compiler.compiler as compiler
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend
from triton.tools import disasm

__all__ = ["assemble_on_demand"]

_ELF = b"\x7fELF"
_TARGET = re.compile(rb"^\s*\.target\s+sm_(\d+)", re.MULTILINE)

#: the signature of ``CUDABackend.make_cubin``: backend, PTX, metadata, options, compute capability
_Assemble = Callable[[CUDABackend, str, dict[str, object], object, int], bytes]


class Binaries(compiler.AsmDict):  # type: ignore[misc]
    """The forms of a kernel; its cubin is assembled on first access. ``options``: its compile options."""

    def __init__(self, forms: Mapping[str, str | bytes], assemble: _Assemble, options: object) -> None:
        super().__init__(forms)
        self._assemble, self._options = assemble, options

    def __getitem__(self, form: str) -> str | bytes:
        value: str | bytes = super().__getitem__(form)
        if form == "cubin" and _is_ptx(value):
            value = self[form] = _assembled(value, self._assemble, self._options)
        return value


def assemble_on_demand(assemble: _Assemble) -> None:
    """Provide machine code of kernels from now on; ``assemble``: Triton's ``make_cubin``. Further calls have no effect."""
    kernel = compiler.CompiledKernel
    if getattr(kernel.__init__, "assembles", False):
        return
    initialize, get_sass = kernel.__init__, disasm.get_sass

    def __init__(self: compiler.CompiledKernel, *arguments: object, **more: object) -> None:
        initialize(self, *arguments, **more)
        self.asm = Binaries(self.asm, assemble, self.metadata)

    @lru_cache
    def sass(cubin_asm: bytes, fun: str | None = None) -> str:
        text: str = get_sass(_assembled(cubin_asm, assemble) if _is_ptx(cubin_asm) else cubin_asm, fun)
        return text

    __init__.assembles = True  # type: ignore[attr-defined]
    kernel.__init__ = __init__
    disasm.get_sass = compiler.get_sass = sass


def _is_ptx(binary: str | bytes) -> TypeGuard[bytes]:
    return isinstance(binary, bytes) and not binary.startswith(_ELF) and _TARGET.search(binary) is not None


def _assembled(ptx: bytes, assemble: _Assemble, options: object = None) -> bytes:
    found = _TARGET.search(ptx)
    assert found is not None
    capability = int(found[1])
    backend = CUDABackend(GPUTarget("cuda", capability, 32))
    return assemble(backend, ptx.decode(), {}, options or backend.parse_options({}), capability)
