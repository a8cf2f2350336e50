"""Kernels of functions whose own launcher makes each launch: ``kernel[grid](x, n, BLOCK=1024)``, or ``kernel(x, y)``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

from gpuperf_engine.errors import EngineError, LaunchError
from gpuperf_engine.machines.machine import Machine, load_machine

from ..config.declared import case_settings
from ..programs.device import DEFAULT_MACHINE
from ..sources.base import FunctionLaunch, LaunchedFunction
from .kernel import Kernel
from .progress import step
from .variants import Made, make_cases

if TYPE_CHECKING:
    import numpy as np
    import pytest
    from numpy.typing import NDArray

    from gpuperf_engine import Profile
    from gpuperf_engine.memory.arrays import DeviceArray

    from .fixture import Gpuperf

__all__ = ["LaunchedKernel"]

Launched: TypeAlias = "Profile | tuple[Profile, ...] | None"


class LaunchedKernel(Kernel):
    """A function of a test, with a case for each kernel that its launcher makes of it, and each compute capability."""

    def __init__(
        self,
        gpuperf: Gpuperf,
        function: LaunchedFunction,
        name: str | None,
        declared: Mapping[str, object],
        item: pytest.Item,
    ) -> None:
        self._gpuperf = gpuperf
        self._function = function
        self._name = name
        self._declared = declared
        self._item = item
        #: by their texts
        self._made: dict[tuple[str, ...], list[Made]] = {}

    def __repr__(self) -> str:
        return f"<kernel {self.name}>"

    @property
    def name(self) -> str:
        """The function's name."""
        return self._function.name

    @property
    def takes_grid(self) -> bool:
        """Whether a launch is ``kernel[grid](…)``, not ``kernel(…)``."""
        return self._function.takes_grid

    def symbol(self, name: str) -> DeviceArray:
        """Always raises ``LaunchError``: such functions have no variables."""
        raise LaunchError(f"{self.name!r} has no variable {name!r}")

    def __getitem__(self, grid: object) -> GridLauncher:  # type: ignore[override]
        """``kernel[grid]``, with what the function's own launcher takes for a grid. Raises ``LaunchError`` if it takes none."""
        __tracebackhide__ = True
        if not self.takes_grid:
            raise LaunchError(
                f"the launcher of {self.name!r} chooses its grid and its block",
                hint="write kernel(…), as on a GPU",
            )
        return GridLauncher(self, grid)

    def __call__(self, *args: object, **keywords: object) -> Launched:  # type: ignore[override]
        """Launches a function whose launcher takes no grid, or takes it among its arguments, as ``GridLauncher`` does. Raises
        ``EngineError``."""
        __tracebackhide__ = True
        if not self.takes_grid:
            return GridLauncher(self, None)(*args, **keywords)
        given = self._function.without_grid(args, keywords)
        if given is None:
            raise self._without_shape()
        grid, arguments, rest = given
        return GridLauncher(self, grid)(*arguments, **rest)

    def _without_shape(self) -> LaunchError:
        return LaunchError(f"kernel {self.name!r} needs a grid", hint="write kernel[grid](…), as on a GPU")

    def _machines(self) -> list[Machine]:
        """One of each compute capability that the test declares: the one with the least shared memory."""
        settings = self._gpuperf._settings
        rules = case_settings(settings, self._item, self._declared)
        names = [*rules.targets, *rules.skipped_targets] or [DEFAULT_MACHINE]
        machines = [load_machine(name, settings.target_files) for name in names]
        machines.sort(key=lambda machine: (machine.compute_capability, machine.shared_per_cta))
        return [
            machine
            for before, machine in zip([None, *machines], machines)
            if before is None or before.compute_capability != machine.compute_capability
        ]

    def _cases(self, launches: list[FunctionLaunch]) -> list[Made]:  # type: ignore[override]
        """Return a case for each launch: ``name@sm_80`` … for several compute capabilities of one kernel, ``name#2`` … for others."""
        key = tuple(launch.source.text for launch in launches)
        if key not in self._made:
            self._made[key] = self._declared_as(launches)
        return self._made[key]

    def _declared_as(self, launches: list[FunctionLaunch]) -> list[Made]:
        from .._engine import parse

        gpuperf = self._gpuperf
        recorder, settings = gpuperf._recorder, gpuperf._settings
        site = recorder.site()
        base = (self._name or self.name) + launches[0].part
        sources = [launch.source for launch in launches]
        given = (
            {parse(source.text, source.path).target: source for source in sources}
            if len(sources) > 1
            else sources[0]
        )
        for number in count(1):
            name = f"{base}#{number}" if number > 1 else base
            cases = make_cases(given, sources[0].entry, name, self._declared, self._item, settings, site)
            known = [recorder.cases.get(case.key, case) for case, _ in cases]
            if all(there.digest == case.digest for there, (case, _) in zip(known, cases)):
                break
        try:
            return [(recorder.declare(case), function) for case, function in cases]
        except ValueError as error:
            raise EngineError(str(error)) from None


@dataclass(frozen=True, slots=True)
class GridLauncher:
    """A function with its grid; calling it launches."""

    kernel: LaunchedKernel
    grid: Any

    def __call__(self, *args: object, **keywords: object) -> Launched:
        """Runs the kernel with the arguments of the function, and returns what was counted, a ``gpuperf_engine.Profile`` (of several
        compute capabilities that of the highest); ``None`` if the grid is empty, and a tuple if the call launches several kernels.
        Memory of the host is copied to the device and back. Raises ``EngineError``."""
        __tracebackhide__ = True
        kernel = self.kernel
        gpuperf = kernel._gpuperf
        try:
            with step(gpuperf._progress, f"compiling {kernel.name}"):
                steps, write_back = kernel._function.launches(
                    self.grid, args, keywords, kernel._machines(), self._move
                )
            profiles = [self._run(launches) for launches in steps]
            if profiles:
                write_back()
        except EngineError as error:
            # The frames of the emulator say nothing about the kernel; the message does.
            raise error.with_traceback(None) from None
        return tuple(profiles) if len(profiles) > 1 else (*profiles, None)[0]

    def _run(self, launches: list[FunctionLaunch]) -> Profile:
        """Runs one kernel for each compute capability, from the same memory; the results of the last one stay."""
        __tracebackhide__ = True
        gpuperf = self.kernel._gpuperf
        runs = list(zip(launches, self.kernel._cases(launches)))
        for launch, case in runs if gpuperf._settings.enabled else runs[-1:]:
            shape = (launch.grid, launch.block, launch.shared_bytes, launch.cluster, launch.cooperative)
            arguments = tuple(launch.arguments[: len(case[1].params)])
            profile = gpuperf._launch([case], shape, arguments, None)
        return profile

    def _move(self, host: NDArray[np.generic], name: str, contents: bool) -> DeviceArray:
        gpuperf = self.kernel._gpuperf
        return gpuperf.array(host, name) if contents else gpuperf.empty(host.shape, host.dtype, name)
