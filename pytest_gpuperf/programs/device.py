"""The device of programs: one of the engine, with the properties of a machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, TypedDict

from .._engine import engine
from ..core.time_model import ALWAYS

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from gpuperf_engine import Device, Kernel, Predictor, Profile
    from gpuperf_engine.device.first_inputs import FirstInputs
    from gpuperf_engine.device.options import DeviceOptions

__all__ = [
    "BETWEEN",
    "DEFAULT_MACHINE",
    "MOST_EVENTS",
    "UNNAMED",
    "Launch",
    "Observer",
    "ProgramDevice",
    "observe",
    "shared_device",
]

DEFAULT_MACHINE = "h100-sxm"
"""The machine if none is declared."""
MOST_EVENTS = 10_000
"""Most steps of a test with observed values."""
BETWEEN = ("triton", "torch", "numba", "cupy", "cupyx", "cupy_backends", "cuda", "contextlib")
"""Packages whose frames are between a program and its device."""
UNNAMED = ("array", "a tensor", "a device array", "an array of the host")
"""Default names of arrays, before a kernel takes them as arguments."""


@dataclass(frozen=True)
class Launch:
    """A launch that has ended. ``inputs`` is what the observer said of its arguments, ``inputs_known`` whether these are all that it
    reads; ``compiler`` what made the kernel; ``event`` the number of the step where values are observed, else −1."""

    kernel: Kernel
    profile: Profile
    inputs: str
    compiler: str
    event: int = -1
    inputs_known: bool = True


@dataclass(frozen=True)
class Observer:
    """``before`` is called with the arguments of each launch and says what they are, ``after`` with the launch. ``inputs`` keeps what
    launches find in memory, if that is asked for."""

    before: Callable[[tuple[object, ...]], str]
    after: Callable[[Launch], object]
    inputs: FirstInputs | None = None


_observer: Observer | None = None
#: a process maps memory at its addresses only once, so all programs share one device
_shared: Device | None = None


def observe(observer: Observer | None) -> None:
    """Set or remove the observer of launches of all programs in this process."""
    global _observer
    _observer = observer


def shared_device() -> Device | None:
    """The device of this process, once a program has used it."""
    return _shared


class _Demand(TypedDict, total=False):
    """Options of a launch for the requested results."""

    demand: str
    keep: bool


class ProgramDevice:
    """``machine``: the id of a description; ``search``: folders with more of them; ``options``: of the engine's device.

    ``elapsed_us`` is the predicted time of all launches while ``timing``; ``inputs_known``: the arguments that it is given tell what
    kernels read.
    """

    inputs_known = True

    def __init__(
        self, machine: str = DEFAULT_MACHINE, search: Sequence[str] = (), **options: Unpack[DeviceOptions]
    ) -> None:
        from gpuperf_engine.machines.machine import load_machine

        self.machine = load_machine(machine, search)
        self.search = tuple(search)
        self.device = _mapped(options)
        self.timing = self._trying = False
        #: options of launches
        self._demand: _Demand = {}
        self.elapsed_us = 0.0

    @cached_property
    def _predictor(self) -> Predictor:
        return engine.predictor(
            self.machine, self.search, model=ALWAYS
        )  # programs see it: the same on all hosts

    @contextmanager
    def trying_out(self, *, results: bool = True) -> Iterator[None]:
        """Context of launches that an autotuner times: they do not count as launches of the program, and are not observed. Without
        ``results`` they store nothing, and only computations that determine their time run."""
        outer = self._trying, self._demand
        self._trying, self._demand = True, {} if results else {"demand": "addresses", "keep": False}
        try:
            yield
        finally:
            self._trying, self._demand = outer

    def during_launch(
        self, arguments: Iterable[object]
    ) -> AbstractContextManager[Mapping[int, tuple[int, int]]]:
        """What holds while a kernel runs with these arguments; of memory that stands elsewhere meanwhile the bytes and the address."""
        return nullcontext({})

    def run(
        self,
        kernel: Kernel,
        grid: tuple[int, int, int],
        block: int | tuple[int, ...],
        parameters: bytes,
        arguments: Iterable[object],
        *,
        shared_bytes: int = 0,
        cluster: tuple[int, int, int] | None = None,
        cooperative: bool = False,
        compiler: str = "",
        named: Mapping[int, str] | None = None,
    ) -> Profile:
        """Run a kernel with the bytes of its parameter buffer, made of ``arguments``, which only an observer and ``during_launch``
        read; ``named``: the arguments that are addresses.
        Raises ``EngineError``."""
        __tracebackhide__ = True
        observer = None if self._trying else _observer
        inputs = "" if observer is None else observer.before(tuple(arguments))
        self.device.first_inputs = None if observer is None else observer.inputs
        with self.during_launch(arguments) as moved:
            if moved:
                parameters = _moved(parameters, moved)
            if self.device.recorder is not None:
                self._name_arrays(named or {}, moved)
            profile = self.device.launch(
                kernel,
                grid,
                block,
                parameters,
                shared_bytes=shared_bytes,
                cluster=cluster,
                cooperative=cooperative,
                **self._demand,
            )
        if self.timing:
            self.elapsed_us += self._predictor.estimate(profile).time_us
        if observer is not None:
            events = self.device.events
            event = events[-1].number if self.device.recorder is not None and events else -1
            observer.after(Launch(kernel, profile, inputs, compiler, event, self.inputs_known))
        return profile

    def _name_arrays(self, named: Mapping[int, str], moved: Mapping[int, tuple[int, int]]) -> None:
        """Name unnamed arrays after their first argument."""
        for given, name in named.items():
            address = _address(given, moved)
            array = self.device.array_at(address)
            if array is not None and array.name.partition("#")[0] in UNNAMED:
                self.device.name_array(address, name)


def _moved(parameters: bytes, moved: Mapping[int, tuple[int, int]]) -> bytes:
    """Return a parameter buffer with the present addresses of its pointers."""
    words = (parameters[at : at + 8] for at in range(0, len(parameters), 8))
    return b"".join(
        _address(int.from_bytes(word, "little"), moved).to_bytes(8, "little") if len(word) == 8 else word
        for word in words
    )


def _address(address: int, moved: Mapping[int, tuple[int, int]]) -> int:
    """Map an address to its present one."""
    for start, (size, new) in moved.items():
        if start <= address < start + size:
            return new + address - start
    return address


def _mapped(options: DeviceOptions) -> Device:
    """Return the mapped device of this process."""
    global _shared
    if _shared is None:
        values = "values" in options.get("observe", ())
        chosen: DeviceOptions = {"mapped": True, "printer": _print}
        if not values:
            chosen["history"] = 0
        chosen.update(options)
        _shared = engine.Device(**chosen)
        from gpuperf_engine.device.events import call_path

        _shared.call_path = partial(call_path, BETWEEN)
        if values:
            _shared.begin_program(MOST_EVENTS)
    return _shared


def _print(text: str) -> None:
    # read ``sys.stdout`` at each launch: pytest replaces it for each phase
    sys.stdout.write(text)
    sys.stdout.flush()
