"""Kernels that are compiled for the arguments of each launch: ``kernel[grid, block, stream, shared_bytes](x, n)``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

from gpuperf_engine.errors import EngineError, LaunchError

from ..config.declared import case_settings
from ..sources.base import JitFunction, PtxSource
from .kernel import Dim, Kernel, Launcher
from .progress import step
from .variants import are_alike, lowest, make_cases

if TYPE_CHECKING:
    import numpy as np
    import pytest
    from numpy.typing import NDArray

    from gpuperf_engine import Profile
    from gpuperf_engine.memory.arrays import DeviceArray

    from .fixture import Gpuperf

__all__ = ["JitKernel"]


class JitKernel(Kernel):
    """A function of a test whose kernels are compiled as they are launched, a case for each set of types."""

    def __init__(
        self,
        gpuperf: Gpuperf,
        function: JitFunction,
        name: str | None,
        declared: Mapping[str, object],
        item: pytest.Item,
    ) -> None:
        self._gpuperf = gpuperf
        self._function = function
        self._name = name
        self._declared = declared
        self._item = item
        self._kernels: dict[str, Kernel] = {}

    def __repr__(self) -> str:
        return f"<kernel {self.name}>"

    @property
    def name(self) -> str:
        """The function's name."""
        return self._function.name

    def symbol(self, name: str) -> DeviceArray:
        """The array of a variable of the kernel's module, once it has been launched with arguments of one set of types."""
        if len(self._kernels) != 1:
            raise LaunchError(
                f"{self.name!r} has been compiled for {len(self._kernels)} sets of types: no single module is meant",
                hint="launch it with one set of types first",
            )
        return next(iter(self._kernels.values())).symbol(name)

    def __getitem__(self, shape: tuple[Any, ...]) -> Launcher:
        """``kernel[grid, block]``, ``kernel[grid, block, stream]`` or ``kernel[grid, block, stream, shared_bytes]``; streams are in
        order, so any does."""
        __tracebackhide__ = True
        if not isinstance(shape, tuple) or not 2 <= len(shape) <= 4:
            raise LaunchError(
                f"kernel {self.name!r} needs a grid and a block",
                hint="write kernel[grid, block](…) or kernel[grid, block, stream, shared_bytes](…)",
            )
        return JitLauncher(self, shape[0], shape[1], shape[3] if len(shape) == 4 else 0)

    def _kernel_for(self, arguments: tuple[object, ...]) -> tuple[Kernel, bool]:
        gpuperf = self._gpuperf
        settings = gpuperf._settings
        rules = case_settings(settings, self._item, self._declared)
        machines = [*rules.targets, *rules.skipped_targets]
        with step(gpuperf._progress, f"compiling {self.name}"):
            source, cooperative = self._function.compile(
                arguments,
                lowest(machines, settings.target_files),
                not are_alike(machines, settings.target_files),
            )
        if source.entry not in self._kernels:
            self._kernels[source.entry] = self._declared_as(source)
        return self._kernels[source.entry], cooperative

    def _declared_as(self, source: PtxSource) -> Kernel:
        """Return the kernel with its own case; kernels of other types are ``name``, ``name#2`` …"""
        gpuperf = self._gpuperf
        recorder, settings = gpuperf._recorder, gpuperf._settings
        site = recorder.site()
        base = self._name or self.name
        for number in count(1):
            name = f"{base}#{number}" if number > 1 else base
            cases = make_cases(source, source.entry, name, self._declared, self._item, settings, site)
            known = [recorder.cases.get(case.key, case) for case, _ in cases]
            if all(there.digest == case.digest for there, (case, _) in zip(known, cases)):
                break
        try:
            return Kernel(gpuperf, [(recorder.declare(case), function) for case, function in cases])
        except ValueError as error:
            raise EngineError(str(error)) from None


@dataclass(frozen=True, slots=True)
class JitLauncher(Launcher):
    """As ``Launcher``, with the arguments that the function takes: host arrays are copied to the device and back."""

    kernel: JitKernel
    grid: Dim
    block: Dim
    shared_bytes: int = 0

    def __call__(
        self,
        *args: object,
        cluster: Dim | None = None,
        cooperative: bool = False,
        max_instructions: int | None = None,
    ) -> Profile:
        """Runs the kernel and returns what was counted, a ``gpuperf_engine.Profile``. Raises ``EngineError``."""
        __tracebackhide__ = True
        try:
            kernel, together = self.kernel._kernel_for(args)
            bound = self.kernel._function.bind(args, self._move)
        except EngineError as error:
            raise error.with_traceback(None) from None
        launcher = Launcher(kernel, self.grid, self.block, self.shared_bytes)
        # truncate numbers to the bytes of the parameter
        fitting = [
            argument[: param.size].ljust(param.size, b"\0") if isinstance(argument, bytes) else argument
            for argument, param in zip(bound.arguments, kernel.function.params)
        ]
        profile = launcher(
            *fitting, cluster=cluster, cooperative=cooperative or together, max_instructions=max_instructions
        )
        for write in bound.written:
            write()
        return profile

    def _move(self, host: NDArray[np.generic], name: str, contents: bool) -> DeviceArray:
        gpuperf = self.kernel._gpuperf
        return gpuperf.array(host, name) if contents else gpuperf.empty(host.shape, host.dtype, name)
