"""PTX of Triton: functions of ``@triton.jit``, compiled by the installed Triton for the arguments of each launch, and kernels that it
has compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from gpuperf_engine.errors import EngineError

from .base import FunctionLaunch, LaunchedFunction, PtxSource

if TYPE_CHECKING:
    from gpuperf_engine.machines.machine import Machine
    from gpuperf_engine.memory.arrays import DeviceArray, HostArray

__all__ = ["TritonFunction", "pytest_gpuperf_ptx_source"]


@pytest.hookimpl
def pytest_gpuperf_ptx_source(source: object, target: str) -> LaunchedFunction | PtxSource | None:
    """A function of ``@triton.jit`` or ``@gluon.jit``, or a compiled kernel. Raises ``EngineError`` for interpreted ones."""
    names = {kind.__name__ for kind in type(source).__mro__ if kind.__module__.startswith("triton.")}
    if "InterpretedFunction" in names:
        raise EngineError(
            f"{_name(source)} is a function of Triton's interpreter, which compiles nothing",
            hint="run without TRITON_INTERPRET=1",
        )
    if type(source).__module__.startswith("torch._inductor."):
        raise EngineError(
            f"{_name(source)} is from the output of Inductor, which launches it in its own way",
            hint="call it as on a GPU, in a test that is run with --gpuperf-triton: there each of its launches is a case",
        )
    if "CompiledKernel" in names:
        return _compiled(source)
    return TritonFunction(source) if "KernelInterface" in names and not target else None


def _compiled(kernel: Any) -> PtxSource:
    version = getattr(kernel.metadata, "triton_version", "")
    return PtxSource(
        kernel.asm["ptx"], f"{kernel.name}.ptx", kernel.name, f"triton {version}" if version else ""
    )


class TritonFunction(LaunchedFunction):
    """``function``: the result of Triton's decorators."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.name = _name(function)

    def launches(
        self,
        grid: object,
        arguments: Sequence[object],
        keywords: Mapping[str, object],
        machines: Sequence[Machine],
        move: Callable[[HostArray, str, bool], DeviceArray],
    ) -> tuple[list[list[FunctionLaunch]], Callable[[], None]]:
        from ..triton.activation import check_version

        check_version()
        from ..triton.kernels import Architecture, Moved, capture, compiler

        moved = Moved(move)
        made: list[FunctionLaunch] = []
        for machine in machines:
            architecture = Architecture(machine.compute_capability, machine.sm_count, machine.shared_per_cta)
            launch = capture(self.function, architecture, grid, arguments, keywords, moved)
            if launch is None:
                continue
            path = f"{self.name}[{architecture.name}]"
            made.append(
                FunctionLaunch(
                    PtxSource(launch.ptx, path, launch.name, compiler()),
                    launch.grid,
                    launch.threads,
                    launch.shared_bytes,
                    (launch.ctas, 1, 1) if launch.ctas > 1 else None,
                    launch.cooperative,
                    launch.arguments,
                )
            )
        return [made] if made else [], moved.write_back


def _name(function: Any) -> str:
    while hasattr(function, "fn"):
        function = function.fn
    return str(getattr(function, "__name__", type(function).__name__))
