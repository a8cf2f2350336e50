"""PTX of CuPy's functions that are called: CuPy writes their CUDA C++ for the arguments of each launch, without a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from gpuperf_engine.errors import EngineError, LaunchError

from .base import FunctionLaunch, LaunchedFunction

if TYPE_CHECKING:
    from gpuperf_engine.machines.machine import Machine
    from gpuperf_engine.memory.arrays import DeviceArray, HostArray

    from ..cupy.arguments import CupyLaunch
    from ..cupy.memory import MovedArrays

__all__ = ["CupyFunction", "pytest_gpuperf_ptx_source"]

_OLDEST = 14
_ANYWHERE = (
    "call it as on a GPU, in a test that is run with --gpuperf-cuda: there each of its launches is a case"
)
#: classes of ``cupy`` and ``cupyx`` and how they are called
_KINDS = {
    "ElementwiseKernel": "an ElementwiseKernel",
    "ReductionKernel": "a ReductionKernel",
    "Fusion": "a function of cupy.fuse",
    "_JitRawKernel": "a function of cupyx.jit.rawkernel",
}


@pytest.hookimpl
def pytest_gpuperf_ptx_source(source: object, target: str) -> LaunchedFunction | None:
    """An ``ElementwiseKernel`` or ``ReductionKernel``, a function of ``cupy.fuse`` or ``cupyx.jit.rawkernel``. Raises ``EngineError``
    for a ufunc, which is written at launch too, and for a CuPy before version 14."""
    kind = type(source)
    if not str(kind.__module__).startswith(("cupy.", "cupyx.")) or target:
        return None
    if kind.__name__ == "ufunc":
        raise EngineError(f"CuPy writes the CUDA C++ of a {kind.__name__} only at launch", hint=_ANYWHERE)
    if kind.__name__ not in _KINDS:
        return None
    import cupy

    if int(cupy.__version__.partition(".")[0]) < _OLDEST:
        raise EngineError(
            f"{_KINDS[kind.__name__]} of CuPy {cupy.__version__} cannot be compiled without a launch",
            hint=f"pip install 'cupy-cuda13x>={_OLDEST}' (or cupy-cuda12x), or {_ANYWHERE}",
        )
    return CupyFunction(source, kind.__name__)


class CupyFunction(LaunchedFunction):
    """``function``: an object of the class ``kind``, called as in CuPy with arrays for its outputs: ``kernel(x, y, out)``."""

    def __init__(self, function: Any, kind: str) -> None:
        self.function = function
        self.kind = kind
        self.takes_grid = kind == "_JitRawKernel"
        self.name = str(function.__name__ if self.takes_grid else function.name)

    def without_grid(
        self, arguments: Sequence[object], keywords: Mapping[str, object]
    ) -> tuple[object, Sequence[object], Mapping[str, object]] | None:
        """The other form of CuPy's: ``kernel(grid, block, (x, n), shared_mem)``."""
        named = dict(zip(("grid", "block", "args", "shared_mem", "stream"), arguments)) | dict(keywords)
        given = [named.pop(key, None) for key in ("grid", "block", "args")]
        if len(arguments) > 5 or not isinstance(given[2], (tuple, list)):
            return None
        return (given[0], given[1]), given[2], named

    def launches(
        self,
        grid: object,
        arguments: Sequence[object],
        keywords: Mapping[str, object],
        machines: Sequence[Machine],
        move: Callable[[HostArray, str, bool], DeviceArray],
    ) -> tuple[list[list[FunctionLaunch]], Callable[[], None]]:
        from ..cupy.memory import MovedArrays
        from ..cupy.options import compiler
        from .compiler import compile_text

        moved = MovedArrays(move)
        steps: list[list[FunctionLaunch]] = []
        for launch in self._prepare(grid, arguments, keywords, moved):
            step: list[FunctionLaunch] = []
            for machine in machines:
                arch = "sm_{}{}".format(*machine.compute_capability)
                made = compile_text(launch.text, launch.name, launch.options, arch)
                source = replace(made, entry=launch.name, compiler=compiler(made.compiler))
                step.append(
                    FunctionLaunch(
                        source,
                        launch.grid,
                        launch.block,
                        launch.shared_bytes,
                        None,
                        launch.cooperative,
                        launch.arguments,
                        launch.part,
                    )
                )
            steps.append(step)
        return steps, moved.write_back

    def _prepare(
        self,
        grid: object,
        arguments: Sequence[object],
        keywords: Mapping[str, object],
        moved: MovedArrays,
    ) -> list[CupyLaunch]:
        from ..cupy import elementwise, fused, jit, reduction

        if self.kind == "_JitRawKernel":
            if not isinstance(grid, tuple) or len(grid) != 2:
                raise LaunchError(
                    f"kernel {self.name!r} needs a grid and a block",
                    hint="write kernel[grid, block](…) or kernel(grid, block, (…))",
                )
            return jit.prepare(self.function, grid, arguments, keywords, moved)
        ways = {
            "ElementwiseKernel": elementwise.prepare,
            "ReductionKernel": reduction.prepare,
            "Fusion": fused.prepare,
        }
        return ways[self.kind](self.function, arguments, keywords, moved)
