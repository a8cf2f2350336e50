"""``--gpuperf-triton``, ``--gpuperf-numba``, ``--gpuperf-cuda``: programs find a GPU, and with the gate each of their launches is
part of a case of the test that makes it."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

from .._engine import are_inputs_kept
from ..config.declared import check_targets
from ..config.options import enabled
from ..config.settings import Settings

if TYPE_CHECKING:
    from gpuperf_engine.device.options import DeviceOptions

    from ..authoring.fixture import Gpuperf
    from ..authoring.observed import ObservedWindow
    from ..programs.device import Launch

__all__ = ["CudaErrors", "LaunchTracebacks", "ProgramGate", "switch_on"]

_OWN = ("pytest_gpuperf", "gpuperf_engine")


def switch_on(config: pytest.Config) -> None:
    """Activate the drivers, before tests and their conftest.py are imported. Raises ``pytest.UsageError`` for an unknown target."""
    from ..programs.device import DEFAULT_MACHINE
    from ..programs.processes import handed_down
    from ..programs.start import VALUES, environment, observing

    lines = [part.strip() for line in config.getini("gpuperf_targets") for part in str(line).split(",")]
    search = tuple(str(config.rootpath / str(line).strip()) for line in config.getini("gpuperf_target_files"))
    targets = [line for line in lines if line]
    check_targets(targets, "gpuperf_targets", search)
    given = config.known_args_namespace
    options: DeviceOptions
    if enabled(given):
        races = str(config.getini("gpuperf_races")).strip()
        options = {"races": races, "strict": str(config.getini("gpuperf_strict")).strip()}
    else:
        options = {"races": "off"}
    values = str(config.getini("gpuperf_program_values")).strip()
    if enabled(given) and values in VALUES:
        options |= observing(values)
    backend = str(config.getini("gpuperf_backend")).strip()
    if backend != "auto":
        options["backend"] = backend
    machine = targets[0] if targets else DEFAULT_MACHINE
    kinds = [kind for kind in ("triton", "numba") if getattr(given, f"gpuperf_{kind}")]
    if kinds:
        _hand_down(config, handed_down(kinds, machine, search))
    if given.gpuperf_triton:
        from ..triton import activation as triton

        triton.switch_on(machine, search, **options)
    if given.gpuperf_numba:
        from ..numba import activation as numba

        numba.switch_on(machine, search, lines=enabled(given), **options)
    if given.gpuperf_cuda:
        from gpuperf_engine.errors import EngineError

        from ..programs import cuda

        try:
            cuda.switch_on(machine, search, telling=not enabled(given), **options)
            device = {"races": "off"} | ({} if backend == "auto" else {"backend": backend})
            _hand_down(
                config, environment(machine, search=search, device=device, telling=True, of_python=True)
            )
        except EngineError as error:
            raise pytest.UsageError(f"--gpuperf-cuda: {error}") from None


class CudaErrors:
    """Under ``--gpuperf-cuda``: a kernel that fails leaves the device in error for its test, not for those that follow."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        from ..programs.cuda import forgive

        forgive()


def _hand_down(config: pytest.Config, variables: dict[str, str]) -> None:
    """Set these variables for processes that tests start, until pytest ends."""
    before = {name: os.environ.get(name) for name in variables}

    def restore() -> None:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    os.environ.update(variables)
    config.add_cleanup(restore)


class LaunchTracebacks:
    """The traceback of a launch that failed ends at the line of the program that launches: how the libraries between it and the
    emulator go on is shown with ``--full-trace``."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None]:
        from gpuperf_engine.errors import EngineError

        from ..programs.errors import KernelError

        try:
            return (yield)
        except (KernelError, EngineError) as error:
            _end_at_program(error)
            raise


def _end_at_program(error: BaseException) -> None:
    from ..programs.device import BETWEEN

    trace, last = error.__traceback__, None
    while trace is not None:
        package = str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        if package not in BETWEEN and package not in _OWN:
            last = trace
        trace = trace.tb_next
    if last is not None:
        last.tb_next = None
        error.__cause__ = None  # its text is in the message


class ProgramGate:
    """Records the launches of each test as cases: one for each kernel and launching line."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    # trylast: inside the wrapper of ``GateWorker``, which judges the cases recorded here
    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None]:
        from ..authoring.launches import digest_of
        from ..authoring.observed import ObservedWindow
        from ..programs.device import Observer, observe

        window = ObservedWindow()
        inputs = None
        if are_inputs_kept(self.settings.judge, self.settings.time_model):
            from gpuperf_engine.device.first_inputs import FirstInputs

            inputs = FirstInputs()

        def launched(launch: Launch) -> None:
            __tracebackhide__ = True
            self._launched(item, launch, window)

        observe(Observer(digest_of, launched, inputs))
        try:
            return (yield)
        finally:
            observe(None)
            if window.cases:
                self._gpuperf(item)._observed.append(window.program())

    def _launched(self, item: pytest.Item, launch: Launch, window: ObservedWindow) -> None:
        __tracebackhide__ = True
        case = self._gpuperf(item)._launched(launch)
        if case is not None and launch.event >= 0:
            case.values = self.settings.program_values
        window.launched(launch, case)

    def _gpuperf(self, item: pytest.Item) -> Gpuperf:
        from ..authoring.fixture import RECORDER, Gpuperf

        known = item.stash.get(RECORDER, None)
        return known if known is not None else Gpuperf(item, self.settings)
