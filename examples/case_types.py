"""The dataclasses of the catalogue in ``cases.py`` and the comparisons that its programs use."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Dim: TypeAlias = int | tuple[int, ...]
Arg: TypeAlias = Array | np.generic | None
Verify: TypeAlias = Callable[[Array], None]


@dataclass(frozen=True, eq=False)
class Launch:
    """One kernel launch; see the module's docstring."""

    entry: str
    grid: Dim
    block: Dim
    args: tuple[Arg, ...]
    shared_bytes: int = 0


@dataclass(frozen=True, eq=False)
class Program:
    """Launches over shared buffers.

    ``expected`` pairs a buffer with its verification; all others must not change.
    """

    launches: tuple[Launch, ...]
    expected: tuple[tuple[Array, Verify], ...]

    @cached_property
    def buffers(self) -> tuple[Array, ...]:
        """The distinct arrays among all arguments, in order of first use."""
        arrays = (arg for launch in self.launches for arg in launch.args if isinstance(arg, np.ndarray))
        return tuple({id(array): array for array in arrays}.values())

    def check(self, outputs: Sequence[Array]) -> None:
        """Verify the contents of ``buffers`` after the run; raises AssertionError."""
        assert len(outputs) == len(self.buffers)
        verify = {id(buffer): function for buffer, function in self.expected}
        for before, after in zip(self.buffers, outputs, strict=True):
            assert after.shape == before.shape and after.dtype == before.dtype
            verify.get(id(before), exactly(before))(after)


@dataclass(frozen=True, eq=False)
class Case:
    """One kernel at one size; see the module's docstring."""

    name: str
    ptx: Path
    kind: Literal["small", "bench"]
    make: Callable[[np.random.Generator], Program]
    fixed_schedule: bool = True

    @cached_property
    def text(self) -> str:
        """Contents of the PTX file."""
        return self.ptx.read_text(encoding="utf-8")

    def program(self) -> Program:
        """A fresh program; equal in every process and on every call."""
        return self.make(np.random.default_rng(zlib.crc32(self.name.encode())))


def execute(program: Program, launch_one: Callable[[Launch, tuple[Arg, ...]], object]) -> list[Array]:
    """Run all launches on copies of the buffers and return the copies.

    ``launch_one(launch, args)`` must launch the kernel and leave what it wrote in the arrays among ``args``.
    """
    copies = {id(buffer): buffer.copy() for buffer in program.buffers}
    for launch in program.launches:
        launch_one(launch, tuple(copies.get(id(arg), arg) for arg in launch.args))
    return [copies[id(buffer)] for buffer in program.buffers]


def exactly(value: Array | Callable[[], Array]) -> Verify:
    """Equal bit for bit. A function is called when there is something to verify: launches can be timed without."""
    return lambda actual: np.testing.assert_array_equal(
        actual, value() if callable(value) else value, strict=True
    )


def close(value: Array, rtol: float, atol: float = 0.0) -> Verify:
    """Within a tolerance of a reference of higher precision."""
    return lambda actual: np.testing.assert_allclose(actual, value, rtol=rtol, atol=atol)
