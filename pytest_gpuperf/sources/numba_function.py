"""PTX of Numba: functions of ``@cuda.jit``, compiled by numba-cuda for the arguments of each launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from gpuperf_engine.errors import EngineError

from .base import Bound, JitFunction, PtxSource

if TYPE_CHECKING:
    from gpuperf_engine.memory.arrays import DeviceArray, HostArray

__all__ = ["NumbaFunction", "pytest_gpuperf_ptx_source"]


@pytest.hookimpl
def pytest_gpuperf_ptx_source(source: object, target: str) -> JitFunction | None:
    """A function of ``@cuda.jit``. Raises ``EngineError`` for one of Numba's simulator, and of a Numba without numba-cuda."""
    kind = type(source)
    module = str(kind.__module__)
    if not module.startswith("numba.cuda.") or target:
        return None
    if module.startswith("numba.cuda.simulator"):
        raise EngineError(
            f"{getattr(source, '__name__', source)} is a function of Numba's simulator, which compiles nothing",
            hint="run without NUMBA_ENABLE_CUDASIM=1",
        )
    if kind.__name__ != "CUDADispatcher":
        return None
    if find_spec("numba_cuda") is None:
        raise EngineError(
            f"{getattr(source, '__name__', source)} is a function of a Numba without numba-cuda, which compiles for CUDA now",
            hint="pip install 'pytest-gpuperf[numba]'",
        )
    return NumbaFunction(source)


class NumbaFunction(JitFunction):
    """``function``: a dispatcher of numba-cuda."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.name = str(function.__name__)
        self._compiled: dict[tuple[object, ...], tuple[PtxSource, bool]] = {}

    def compile(self, arguments: Sequence[object], arch: str, shared: bool) -> tuple[PtxSource, bool]:
        from ..numba.kernels import compile_kernel, types_of
        from ..numba.linker import compiler

        kinds = types_of(self.function, arguments)
        key = (*kinds, arch, shared)
        if key not in self._compiled:
            text, entry, cooperative = compile_kernel(self.function, kinds, arch, shared)
            path = f"{self.name}({', '.join(map(_short, kinds))})[{arch}]"
            self._compiled[key] = PtxSource(text, path, entry, compiler()), cooperative
        return self._compiled[key]

    def bind(self, arguments: Sequence[object], move: Callable[[HostArray, str, bool], DeviceArray]) -> Bound:
        from ..numba.kernels import types_of, unpack

        return Bound(*unpack(self.function, types_of(self.function, arguments), arguments, move))


def _short(kind: Any) -> str:
    """A type as in signatures: ``float32[:]``."""
    if hasattr(kind, "ndim") and hasattr(kind, "dtype"):
        return f"{kind.dtype}[{', '.join(':' * kind.ndim)}]"
    return str(kind)
