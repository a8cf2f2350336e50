"""Results of sources of PTX."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpuperf_engine.machines.targets import most_specific, stand_in
from gpuperf_engine.ptx.retarget import retargeted

if TYPE_CHECKING:
    from gpuperf_engine.machines.machine import Machine
    from gpuperf_engine.memory.arrays import DeviceArray, HostArray

__all__ = [
    "Alternatives",
    "Bound",
    "Compilation",
    "FunctionLaunch",
    "JitFunction",
    "LaunchedFunction",
    "PtxSource",
    "display",
]


@dataclass(frozen=True, slots=True)
class PtxSource:
    """PTX text and its name in messages: its path below the rootdir if it has one. ``entry`` is the intended kernel, for a source
    that knows it: if the test names none, or names it by an expression (``axpy<float>``). ``compiler`` is the compiler that
    generated the text just now, with its version: numbers of another compiler are not comparable. It is empty for existing text."""

    text: str
    path: str
    entry: str = ""
    compiler: str = ""


class Alternatives(dict[str, PtxSource]):
    """PTX of one kernel by ``.target``, as a program has it: of these, each machine takes the most specific that it can run, and what
    none takes is left out. ``code``: the architectures of machine code of that kernel."""

    code: frozenset[str] = frozenset()

    def for_machine(self, machine: Machine) -> PtxSource | None:
        """The PTX that a machine takes; where it runs none, but machine code, the PTX that stands for that."""
        best = most_specific(self, machine)
        if best is not None:
            return self[best]
        standing = stand_in(self, self.code, machine)
        if standing is None:
            return None
        code, compiled_for = standing
        target = "sm_{}{}".format(*machine.compute_capability)
        given = self[compiled_for]
        return replace(given, text=retargeted(given.text, target, compiled_for, code))


@dataclass(frozen=True, slots=True)
class Compilation:
    """PTX that is made for an architecture (``sm_80``) once it is known which the machines of a case take."""

    compile: Callable[[str], PtxSource]


@dataclass(frozen=True, slots=True)
class Bound:
    """Arguments of a launch as the kernel takes them: arrays of the device and the bytes of numbers; ``written``: what gives the host
    the results afterwards."""

    arguments: Sequence[object]
    written: Sequence[Callable[[], None]]


class JitFunction(ABC):
    """A function that its compiler compiles for the arguments of each launch. ``name`` is that of the function."""

    name: str

    @abstractmethod
    def compile(self, arguments: Sequence[object], arch: str, shared: bool) -> tuple[PtxSource, bool]:
        """The PTX for arguments of these types, and whether its launches are cooperative. ``shared``: it runs on architectures above
        ``arch`` too. Raises ``EngineError``."""

    @abstractmethod
    def bind(self, arguments: Sequence[object], move: Callable[[HostArray, str, bool], DeviceArray]) -> Bound:
        """The arguments of a launch. ``move`` makes a device array of a host array, with a name, and with its contents or without."""


@dataclass(frozen=True, slots=True)
class FunctionLaunch:
    """A launch as the launcher of a function makes it: shapes in CTAs and threads, and arguments, at the end perhaps more than the
    kernel has. ``part``: the end of the case's name, which tells several kernels of one call apart."""

    source: PtxSource
    grid: tuple[int, int, int]
    block: int | tuple[int, int, int]
    shared_bytes: int
    cluster: tuple[int, int, int] | None
    cooperative: bool
    arguments: Sequence[object]
    part: str = ""


class LaunchedFunction(ABC):
    """A function whose own launcher chooses block, shared memory and what the kernel takes: ``kernel[grid](x, n, BLOCK=64)``. It has a
    kernel for each compute capability. ``name`` is that of the function. ``takes_grid``: if not, the launcher chooses the grid
    too, and the function is called: ``kernel(x, n)``."""

    name: str
    takes_grid = True

    def without_grid(
        self, arguments: Sequence[object], keywords: Mapping[str, object]
    ) -> tuple[object, Sequence[object], Mapping[str, object]] | None:
        """The grid, the arguments and the keywords of a call that gives the grid among its arguments; ``None`` if none does."""
        return None

    @abstractmethod
    def launches(
        self,
        grid: object,
        arguments: Sequence[object],
        keywords: Mapping[str, object],
        machines: Sequence[Machine],
        move: Callable[[HostArray, str, bool], DeviceArray],
    ) -> tuple[list[list[FunctionLaunch]], Callable[[], None]]:
        """The kernels of a call in order, each as it is to be launched on each of the machines, one of each compute capability in
        rising order; and what gives the host the results afterwards. No kernel for an empty grid. ``move`` makes a device array of
        a host array, with a name, and with its contents or without. Raises ``EngineError``."""


def display(path: Path, rootdir: Path) -> str:
    """A path as messages show it: below the rootdir, else its last part."""
    absolute = Path(os.path.normpath(path.absolute()))
    try:
        return absolute.relative_to(rootdir).as_posix()
    except ValueError:
        return absolute.name
