"""PTX of CuPy's ``ElementwiseKernel``: CuPy writes its CUDA C++ for the arguments of each launch, without a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from gpuperf_engine.errors import EngineError

from .base import FunctionLaunch, LaunchedFunction

if TYPE_CHECKING:
    from gpuperf_engine.machines.machine import Machine
    from gpuperf_engine.memory.arrays import DeviceArray, HostArray

__all__ = ["ElementwiseFunction", "pytest_gpuperf_ptx_source"]

_OLDEST = 14
_ANYWHERE = (
    "call it as on a GPU, in a test that is run with --gpuperf-cuda: there each of its launches is a case"
)


@pytest.hookimpl
def pytest_gpuperf_ptx_source(source: object, target: str) -> LaunchedFunction | None:
    """An ``ElementwiseKernel``. Raises ``EngineError`` for what else CuPy writes at launch, and for a CuPy before version 14."""
    kind = type(source)
    if not str(kind.__module__).startswith("cupy.") or target:
        return None
    if kind.__name__ in ("ReductionKernel", "ufunc"):
        raise EngineError(
            f"CuPy writes the CUDA C++ of a {kind.__name__} only at launch",
            hint=_ANYWHERE,
        )
    if kind.__name__ != "ElementwiseKernel":
        return None
    import cupy

    if int(cupy.__version__.partition(".")[0]) < _OLDEST:
        raise EngineError(
            f"an ElementwiseKernel of CuPy {cupy.__version__} cannot be compiled without a launch",
            hint=f"install CuPy {_OLDEST} or later, or {_ANYWHERE}",
        )
    return ElementwiseFunction(source)


class ElementwiseFunction(LaunchedFunction):
    """``function``: an ``ElementwiseKernel``, called as in CuPy with all its outputs: ``kernel(x, y, out)``."""

    takes_grid = False

    def __init__(self, function: Any) -> None:
        self.function = function
        self.name = str(function.name)

    def launches(
        self,
        grid: object,
        arguments: Sequence[object],
        keywords: Mapping[str, object],
        machines: Sequence[Machine],
        move: Callable[[HostArray, str, bool], DeviceArray],
    ) -> tuple[list[FunctionLaunch], Callable[[], None]]:
        from ..cupy.elementwise import prepare
        from ..cupy.memory import MovedArrays
        from .compiler import compile_text
        from .cupy_raw import options

        moved = MovedArrays(move)
        launch = prepare(self.function, arguments, keywords, moved)
        if launch is None:
            return [], moved.write_back
        made: list[FunctionLaunch] = []
        given = options(self.function.kwargs.get("options", ()))
        for machine in machines:
            arch = "sm_{}{}".format(*machine.compute_capability)
            source = replace(compile_text(launch.text, self.name, given, arch), entry=self.name)
            made.append(
                FunctionLaunch(
                    source, (launch.blocks, 1, 1), launch.threads, 0, None, False, launch.arguments
                )
            )
        return made, moved.write_back
