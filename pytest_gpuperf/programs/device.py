"""The device that programs see: one of the engine, with the properties of a machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from .._engine import engine
from ..core.time_model import ALWAYS

if TYPE_CHECKING:
    from gpuperf_engine import Device, Kernel, Profile

__all__ = ["DEFAULT_MACHINE", "Launch", "Observer", "ProgramDevice", "observe"]

DEFAULT_MACHINE = "h100-sxm"
"""Where none is declared."""


@dataclass(frozen=True)
class Launch:
    """A launch that has ended. ``inputs`` is what the observer said of its arguments; ``compiler`` what made the kernel."""

    kernel: Kernel
    profile: Profile
    inputs: str
    compiler: str


@dataclass(frozen=True)
class Observer:
    """``before`` is called with the arguments of each launch and says what they are, ``after`` with the launch."""

    before: Callable[[tuple[Any, ...]], str]
    after: Callable[[Launch], object]


_observer: Observer | None = None
#: memory is mapped at its addresses once in a process: all that programs use is one device
_shared: Device | None = None


def observe(observer: Observer | None) -> None:
    """Have the launches of all programs of this process observed, or no longer."""
    global _observer
    _observer = observer


class ProgramDevice:
    """``machine``: the id of a description; ``search``: folders with more of them; ``options``: of the engine's device.

    ``elapsed_us`` is the predicted time of all launches while ``timing``.
    """

    def __init__(self, machine: str = DEFAULT_MACHINE, search: Sequence[str] = (), **options: Any) -> None:
        from gpuperf_engine.timing.machine import load_machine

        self.machine = load_machine(machine, search)
        self.search = tuple(search)
        self.device = _mapped(options)
        self.timing = False
        self.elapsed_us = 0.0

    @cached_property
    def _predictor(self) -> Any:
        return engine.predictor(
            self.machine, self.search, model=ALWAYS
        )  # programs see it: the same on all hosts

    def during_launch(self, arguments: Iterable[Any]) -> AbstractContextManager[None]:
        """What holds while a kernel runs with these arguments."""
        return nullcontext()

    def run(
        self,
        kernel: Kernel,
        grid: tuple[int, int, int],
        block: int | tuple[int, ...],
        parameters: bytes,
        arguments: Sequence[Any],
        *,
        shared_bytes: int = 0,
        cluster: tuple[int, int, int] | None = None,
        cooperative: bool = False,
        compiler: str = "",
    ) -> None:
        """Run a kernel with the bytes of its parameter buffer, made of ``arguments``. Raises ``EngineError``."""
        inputs = "" if _observer is None else _observer.before(tuple(arguments))
        with self.during_launch(arguments):
            profile = self.device.launch(
                kernel,
                grid,
                block,
                parameters,
                shared_bytes=shared_bytes,
                cluster=cluster,
                cooperative=cooperative,
            )
        if self.timing:
            self.elapsed_us += self._predictor.estimate(profile).time_us
        if _observer is not None:
            _observer.after(Launch(kernel, profile, inputs, compiler))


def _mapped(options: dict[str, Any]) -> Device:
    """The mapped device of this process."""
    global _shared
    if _shared is None:
        _shared = engine.Device(mapped=True, **{"history": 0, "printer": _print, **options})
    return _shared


def _print(text: str) -> None:
    # looked up at each launch: pytest puts another stream there for each phase
    sys.stdout.write(text)
    sys.stdout.flush()
