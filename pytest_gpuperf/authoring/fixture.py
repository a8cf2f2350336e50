"""The object of the ``gpuperf`` fixture: device memory and kernels for a test, without a GPU."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import pytest

from ..config.declared import CaseSettings, case_settings, check_declaration, max_instructions, way
from ..config.settings import Settings
from .budget import budget_of, over_budget
from .progress import step

if TYPE_CHECKING:
    import subprocess

    from numpy.typing import DTypeLike

    import gpuperf_engine as engine
    from gpuperf_engine import Device, Profile, TensorMap
    from gpuperf_engine.errors import LaunchError
    from gpuperf_engine.memory.arrays import DeviceArray, HostArray
    from gpuperf_engine.memory.images import ImageObject, SamplerObject
    from gpuperf_engine.profile.budget import Budget

    from ..programs.device import Launch
    from .kernel import Kernel
    from .launches import LaunchStreams
    from .observed import ObservedProgram
    from .progress import Progress
    from .record import CaseRecord
    from .variants import Source

__all__ = ["PROGRESS", "RECORDER", "Gpuperf"]

P = ParamSpec("P")
R = TypeVar("R")

RECORDER: pytest.StashKey[Gpuperf] = pytest.StashKey()
PROGRESS: pytest.StashKey[Progress | None] = pytest.StashKey()


def _quiet(method: Callable[P, R]) -> Callable[P, R]:
    """Cut tracebacks of the engine's errors at the test's own line; the frames below do not concern the kernel."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        __tracebackhide__ = True
        from gpuperf_engine.errors import EngineError

        try:
            return method(*args, **kwargs)
        except (EngineError, pytest.UsageError) as error:
            raise error.with_traceback(None) from None

    return call


class Gpuperf:
    """The object behind the fixture: one device for one test. All launches, copies and memsets form one program."""

    def __init__(self, item: pytest.Item, settings: Settings) -> None:
        from .record import Recorder

        self._item = item
        self._settings = settings
        self._device: Device | None = None
        self._recorder = Recorder(settings.rootdir)
        self._progress = item.config.stash.get(PROGRESS, None)
        self._launch_streams: LaunchStreams | None = None
        #: recordings of the programs that the test ran
        self._observed: list[ObservedProgram] = []
        self._rules: CaseSettings | None = None
        self._spent: Budget | None = None
        self.judged = False
        item.stash[RECORDER] = self

    @property
    def device(self) -> Device:
        """The engine's ``Device`` behind this fixture."""
        if self._device is None:
            from .device import make_device

            ways = (way(self._settings, self._item, key) for key in ("strict", "races"))
            self._device = make_device(self._settings, *ways)
        return self._device

    @property
    def launches(self) -> tuple[Profile, ...]:
        """The profiles of all launches so far, in order."""
        return self._recorder.launched_profiles()

    @_quiet
    def array(self, host: object, name: str | None = None, pad: int | None = None) -> DeviceArray:
        """A device array with the contents, shape and dtype of ``host``; ``.numpy()`` copies it out.

        ``pad``: bytes past the end that kernels may also access, with a note; ``None``: only those of an element that begins
        inside; 0: none.
        """
        __tracebackhide__ = True
        return self.device.array(host, **_given(name=name, pad=pad))

    @_quiet
    def zeros(
        self, shape: int | Sequence[int], dtype: DTypeLike, name: str | None = None, pad: int | None = None
    ) -> DeviceArray:
        """A device array of zeros. ``pad``: see ``array``."""
        __tracebackhide__ = True
        return self.device.zeros(shape, dtype, **_given(name=name, pad=pad))

    @_quiet
    def empty(
        self, shape: int | Sequence[int], dtype: DTypeLike, name: str | None = None, pad: int | None = None
    ) -> DeviceArray:
        """An uninitialised device array; reads before the first write are reported. ``pad``: see ``array``."""
        __tracebackhide__ = True
        return self.device.empty(shape, dtype, **_given(name=name, pad=pad))

    @_quiet
    def tensor_map(self, array: DeviceArray, box: Sequence[int] | int, **options: Any) -> TensorMap:
        """A tensor map of a device array, for kernels that copy boxes of ``box`` elements (``cp.async.bulk.tensor``): pass it for the
        ``const __grid_constant__ CUtensorMap`` parameter. Options as ``gpuperf_engine.TensorMap``: ``swizzle``, ``fill`` …"""
        __tracebackhide__ = True
        from gpuperf_engine import TensorMap

        return TensorMap(array, box, **options)

    @_quiet
    def im2col_map(self, array: DeviceArray, channels: int, pixels: int, **options: Any) -> TensorMap:
        """A tensor map for copies of ``pixels`` of a convolution, with ``channels`` each (``cp.async.bulk.tensor``, ``.im2col``).
        Options as ``gpuperf_engine.TensorMap.im2col``: ``lower``, ``upper`` …"""
        __tracebackhide__ = True
        from gpuperf_engine import TensorMap

        return TensorMap.im2col(array, channels, pixels, **options)

    @_quiet
    def im2col_wide_map(
        self, array: DeviceArray, channels: int, pixels: int | None, **options: Any
    ) -> TensorMap:
        """As ``im2col_map``, for copies along W (``.im2col::w``; ``pixels=None``: ``.im2col::w::128``)."""
        __tracebackhide__ = True
        from gpuperf_engine import TensorMap

        return TensorMap.im2col_wide(array, channels, pixels, **options)

    @_quiet
    def memset(self, array: DeviceArray, value: object) -> None:
        """Sets every element of a device array or view to ``value``."""
        __tracebackhide__ = True
        self.device.memset(array, value)

    @_quiet
    def copy(self, destination: DeviceArray, source: HostArray | DeviceArray) -> None:
        """Copies a host array or a device array to a device array of equal size in bytes."""
        __tracebackhide__ = True
        self.device.copy(destination, source)

    @_quiet
    def texture(self, array: DeviceArray | Sequence[DeviceArray], **options: Any) -> ImageObject:
        """A texture object of a device array, or of one for each level of detail, an argument for kernels; options as
        ``Device.texture`` of the engine."""
        __tracebackhide__ = True
        return self.device.texture(array, **options)

    @_quiet
    def surface(self, array: DeviceArray, **options: Any) -> ImageObject:
        """A surface object of a device array, an argument for kernels; options as ``Device.surface`` of the engine."""
        __tracebackhide__ = True
        return self.device.surface(array, **options)

    @_quiet
    def sampler(self, **options: Any) -> SamplerObject:
        """A sampler apart from textures, an argument for kernels; options as ``Device.sampler`` of the engine."""
        __tracebackhide__ = True
        return self.device.sampler(**options)

    @_quiet
    def kernel(
        self,
        source: Source | Mapping[str, Source],
        entry: str | None = None,
        *,
        name: str | None = None,
        targets: Sequence[str] | None = None,
        tolerance: Mapping[str, object] | None = None,
        limits: Mapping[str, float] | None = None,
    ) -> Kernel:
        """The kernel ``entry`` of PTX; ``entry`` may be omitted if there is only one kernel.

        ``source`` is the path of a PTX file, PTX text, a program, library, object, cubin or fat binary that holds PTX, or CUDA
        C++ that is compiled now (a path, or a ``pytest_gpuperf.CudaSource`` with options); there ``entry`` may be an instance of
        a template (``axpy<float>``). A kernel of Triton, Numba (``@cuda.jit``) or CuPy is a source too.

        Paths are relative to the test file, then to the rootdir. A dictionary has different PTX for different targets: its keys are
        ``.target`` names (``sm_80``, ``sm_90a``) or machine ids, and each variant is a separate case. ``name`` distinguishes
        kernels of one test that have the same entry; ``targets`` are the machines for which time is predicted; ``tolerance`` and
        ``limits`` are dictionaries by metric. Raises ``EngineError`` for invalid PTX and for variants that do not fit the targets,
        and ``pytest.UsageError`` for invalid settings.
        """
        __tracebackhide__ = True
        from gpuperf_engine.errors import EngineError

        from ..sources.base import JitFunction, LaunchedFunction
        from .asking import ptx_of
        from .jit_kernel import JitKernel
        from .kernel import Kernel
        from .launched_kernel import LaunchedKernel
        from .variants import make_cases

        declared = {"targets": targets, "tolerance": tolerance, "limits": limits}
        site = self._recorder.site()
        if name is not None and (not isinstance(name, str) or not name.strip()):
            raise EngineError(f"name={name!r} names nothing", hint="give it a text, or omit it")
        settings = self._settings
        check_declaration(declared, f"gpuperf.kernel at {site}", settings.metrics, settings.target_files)
        with step(self._progress, "reading PTX"):
            given = ptx_of(source, entry, "", self._item)
            if isinstance(given, JitFunction):
                return JitKernel(self, given, name, declared, self._item)
            if isinstance(given, LaunchedFunction):
                return LaunchedKernel(self, given, name, declared, self._item)
            cases = make_cases(given, entry, name, declared, self._item, settings, site)
        if len(cases) > 1:
            self.device.share_variables(function for _, function in cases)
        try:
            return Kernel(self, [(self._recorder.declare(case), function) for case, function in cases])
        except ValueError as error:
            raise EngineError(str(error)) from None

    @_quiet
    def check(
        self,
        source: Source | Mapping[str, Source],
        entry: str | None = None,
        *,
        grid: int | tuple[int, ...],
        block: int | tuple[int, ...],
        args: Sequence[object] = (),
        shared_bytes: int = 0,
        cluster: int | tuple[int, ...] | None = None,
        **declared: Any,
    ) -> Profile:
        """One launch of one kernel, for simple tests: host arrays among ``args`` are copied to the device.

        ``declared`` are the keyword arguments of ``kernel``. Returns the ``gpuperf_engine.Profile`` of the launch.
        """
        __tracebackhide__ = True
        import numpy as np

        from gpuperf_engine.errors import LaunchError

        from .jit_kernel import JitKernel
        from .launched_kernel import LaunchedKernel

        kernel = self.kernel(source, entry, **declared)
        if isinstance(kernel, LaunchedKernel):
            raise LaunchError(
                f"the launcher of {kernel.name!r} chooses its block",
                hint=f"write gpuperf.kernel(…){'[grid]' if kernel.takes_grid else ''}(…), as on a GPU",
            )
        if isinstance(kernel, JitKernel):  # it takes the function's own arguments
            return kernel[grid, block, 0, shared_bytes](*args, cluster=cluster)
        moved = [self.array(arg) if isinstance(arg, np.ndarray) else arg for arg in args]
        return kernel[grid, block, shared_bytes](*moved, cluster=cluster)

    def _launch(
        self,
        cases: Sequence[tuple[CaseRecord, engine.Kernel]],
        shape: tuple[Any, ...],
        args: tuple[object, ...],
        steps: int | None,
    ) -> Profile:
        """Launches every variant from the same memory; the results of the last one stay. Returns its profile."""
        __tracebackhide__ = True
        from .device import check_uninitialized

        if self.judged:
            raise self._too_late()
        grid, block, shared_bytes, cluster, cooperative = shape
        profile: Profile | None = None
        for case, function in cases if self._settings.enabled else cases[-1:]:
            with step(self._progress, f"running {case.key}"):
                profile = self.device.launch(
                    function,
                    grid=grid,
                    block=block,
                    args=list(args),
                    shared_bytes=shared_bytes,
                    cluster=cluster,
                    cooperative=cooperative,
                    demand="values",
                    max_instructions=max_instructions(self._settings, self._item, steps),
                    **({"keep": False} if case.shadowed else {}),
                )
            profile = check_uninitialized(profile, self._settings)
            self._recorder.launched(case, profile, shape, args, self.device)
            self._spend(profile)
        assert profile is not None
        return profile

    def _spend(self, profile: Profile) -> None:
        """Raises ``BudgetExceeded`` if the launches of the test exceed its budget."""
        __tracebackhide__ = True
        over = self._budget.spend(profile)
        if over:
            raise over_budget(over)

    @property
    def _budget(self) -> Budget:
        if self._spent is None:
            self._spent = budget_of(self._settings, self._item)
        return self._spent

    @property
    def _streams(self) -> LaunchStreams:
        """Launches that the test does not write itself."""
        if self._launch_streams is None:
            from .launches import LaunchStreams

            self._launch_streams = LaunchStreams(self._recorder, self._settings.kernels)
        return self._launch_streams

    def _launched(self, launch: Launch) -> CaseRecord | None:
        """Records a launch through one of our drivers; returns its case."""
        __tracebackhide__ = True
        if self._rules is None:
            self._rules = case_settings(self._settings, self._item, {})
        case = self._streams.launched(launch, self._rules)
        self._spend(launch.profile)
        return case

    @_quiet
    def run(
        self,
        command: Sequence[str | os.PathLike[str]] | str | os.PathLike[str],
        *,
        check: bool = True,
        input: str | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        targets: Sequence[str] | None = None,
        tolerance: Mapping[str, object] | None = None,
        limits: Mapping[str, float] | None = None,
        values: str | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a CUDA program, unchanged, on the emulator; each combination of kernel, launching host line and shape is a case.

        ``command`` is the program and its arguments (no shell). A path of the program is relative to the test file, then to the
        rootdir, then to the current folder. ``check``, ``input``, ``cwd``, ``env`` and ``timeout`` (seconds) are those of
        ``subprocess.run``, and so is the result, with ``returncode``, ``stdout`` and ``stderr`` as text; pytest also shows the
        program's output. The GPU of the program is the first of the targets. ``targets``, ``tolerance`` and ``limits`` as for
        ``kernel``. ``values``: the value patterns that the gate searches for, ``off``, of whole ``objects``, or also of single
        ``accesses`` (``None``: as set by ``gpuperf_program_values``).

        Raises ``subprocess.CalledProcessError`` for an exit code other than 0 unless ``check`` is false, ``TimeoutExpired``, and
        ``EngineError`` for a program that cannot be run or exceeds the budget of the test.
        """
        __tracebackhide__ = True
        from ..config.declared import unknown
        from ..programs.start import VALUES
        from .programs import run_program

        declared = {"targets": targets, "tolerance": tolerance, "limits": limits}
        site = self._recorder.site()
        settings = self._settings
        if values is not None and values not in VALUES:
            raise unknown(f"gpuperf.run at {site}: values={values!r}", values, tuple(VALUES))
        check_declaration(declared, f"gpuperf.run at {site}", settings.metrics, settings.target_files)
        if self.judged:
            raise self._too_late()
        words = [command] if isinstance(command, (str, os.PathLike)) else [*command]
        with step(self._progress, f"running {os.fspath(words[0]) if words else 'a program'}"):
            return run_program(
                self,
                words,
                declared,
                site,
                check=check,
                input=input,
                cwd=cwd,
                env=env,
                timeout=timeout,
                values=values,
            )

    def _too_late(self) -> LaunchError:
        from gpuperf_engine.errors import LaunchError

        return LaunchError(
            f"the kernels of {self._item.nodeid} have been judged already, this launch would not be judged",
            hint="launch in the test's body or in fixtures before it, each test with its own gpuperf",
        )


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
