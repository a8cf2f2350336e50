"""Every example kernel as data: what to launch, with what, and what must come out.

Other tests (emulator against interpreter, backend against backend), the benchmark and the documentation read this
catalogue; it imports NumPy and nothing of the product. The dataclasses:

``Case``
    One kernel at one size. ``name`` is unique (``"saxpy-1000"``); ``ptx`` is the path of the PTX file and ``text`` its
    contents; ``kind`` is ``"small"`` (at most about 2 000 threads per launch) or ``"bench"`` (the benchmark's sizes);
    ``fixed_schedule`` is False where *warp-level* counts and the order inside some buffer depend on the order in
    which blocks and warps run (atomics whose result decides where to write). ``program()`` builds the launches with
    data from a generator seeded by the case's name, so it is the same in every process.

``Program``
    ``launches``, run in order on one set of buffers; ``buffers``, the distinct arrays among their arguments in order of
    first use; ``check(outputs)``, called with the contents of those buffers after the last launch, in the same
    order, shape and dtype: raises AssertionError where a result is wrong or where an input was changed.

``Launch``
    ``entry``, ``grid``, ``block`` (int or tuple of up to three), ``args`` and ``shared_bytes`` (dynamic shared
    memory). An argument is an array (a device buffer; the *same object* in two launches is the same buffer), a NumPy
    scalar of the parameter's width, a ``np.void`` (structure by value) or None (null pointer).

``SMALL`` and ``BENCH`` are the two halves of ``CASES``; ``execute`` runs a program through any function that launches
one kernel on arrays in place::

    for case in SMALL:
        program = case.program()
        program.check(execute(program, lambda launch, args: run(case.text, launch, args)))
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import numpy_reference as reference

Array: TypeAlias = npt.NDArray[Any]
Dim: TypeAlias = int | tuple[int, ...]
Arg: TypeAlias = Array | np.generic | None
Verify: TypeAlias = Callable[[Array], None]

HERE = Path(__file__).resolve().parent


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
    """Launches over shared buffers. ``expected`` pairs a buffer with its verification; all others must not change."""

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


def exactly(value: Array) -> Verify:
    """Equal bit for bit."""
    return lambda actual: np.testing.assert_array_equal(actual, value, strict=True)


def close(value: Array, rtol: float, atol: float = 0.0) -> Verify:
    """Within a tolerance of a reference of higher precision."""
    return lambda actual: np.testing.assert_allclose(actual, value, rtol=rtol, atol=atol)


def blocks(elements: int, per_block: int) -> int:
    """Blocks that cover the elements; at least one."""
    return max(1, -(-elements // per_block))


def floats(rng: np.random.Generator, *shape: int) -> Array:
    """Standard normal float32."""
    return rng.standard_normal(shape, np.float32)


def saxpy(n: int, rng: np.random.Generator) -> Program:
    a, x, y = np.float32(2.5), floats(rng, n), floats(rng, n)
    launch = Launch("saxpy", blocks(n, 256), 256, (np.int32(n), a, x, y))
    return Program((launch,), ((y, exactly(reference.fma(a, x, y))),))


def saxpy_grid_stride(n: int, grid: int, rng: np.random.Generator) -> Program:
    a, x, y = np.float32(-0.75), floats(rng, n), floats(rng, n)
    launch = Launch("saxpy_grid_stride", grid, 128, (np.int32(n), a, x, y))
    return Program((launch,), ((y, exactly(reference.fma(a, x, y))),))


def haxpy(n: int, rng: np.random.Generator) -> Program:
    a, x, y = np.float32(1.5), floats(rng, n).astype(np.float16), floats(rng, n).astype(np.float16)
    launch = Launch("haxpy", blocks(n, 512), 256, (np.int32(n), a, x, y))
    return Program((launch,), ((y, exactly(reference.fma(np.float16(a), x, y))),))


def reduce_shared(n: int, launches: int, rng: np.random.Generator) -> Program:
    buffers, steps, expected = [floats(rng, n)], [], []
    value = buffers[0]
    for _ in range(launches):
        value = reference.reduce_shared(value)
        buffers.append(np.zeros(value.size, np.float32))
        steps.append(Launch("reduce_shared", value.size, 256, (np.int32(buffers[-2].size), *buffers[-2:])))
        expected.append((buffers[-1], exactly(value)))
    return Program(tuple(steps), tuple(expected))


def reduce_shuffle(n: int, grid: int, rng: np.random.Generator) -> Program:
    x, partial_sums, total = floats(rng, n), np.zeros(grid, np.float32), np.zeros(1, np.float32)
    first = reference.reduce_shuffle(x, grid)
    launches = (
        Launch("reduce_shuffle", grid, 256, (np.int32(n), x, partial_sums)),
        Launch("reduce_shuffle", 1, 256, (np.int32(grid), partial_sums, total)),
    )
    return Program(launches, ((partial_sums, exactly(first)), (total, exactly(reference.reduce_shuffle(first, 1)))))


SGEMM: dict[str, Callable[[int, int], tuple[Dim, Dim]]] = {
    "sgemm_naive": lambda m, n: ((blocks(m, 16), blocks(n, 16)), (16, 16)),
    "sgemm_coalesced": lambda m, n: ((blocks(n, 16), blocks(m, 16)), (16, 16)),
    "sgemm_tiled": lambda m, n: ((blocks(n, 16), blocks(m, 16)), (16, 16)),
    "sgemm_register": lambda m, n: ((blocks(n, 64), blocks(m, 64)), 256),
}
"""Grid and block of each stage for an m x n result."""


def sgemm(entry: str, m: int, n: int, k: int, rng: np.random.Generator) -> Program:
    a, b, c = floats(rng, m, k), floats(rng, k, n), np.zeros((m, n), np.float32)
    grid, block = SGEMM[entry](m, n)
    launch = Launch(entry, grid, block, (np.int32(m), np.int32(n), np.int32(k), a, b, c))
    return Program((launch,), ((c, exactly(reference.sgemm(a, b))),))


def collatz(n: int, rng: np.random.Generator) -> Program:
    length = np.zeros(n, np.uint32)
    launch = Launch("collatz", blocks(n, 256), 256, (np.uint32(n), length))
    return Program((launch,), ((length, exactly(reference.collatz(n))),))


def _case(stem: str, name: str, make: Callable[[np.random.Generator], Program], **options: Any) -> Case:
    kind = options.pop("kind", "small")
    return Case(name, HERE / "kernels" / f"{stem}.ptx", kind, make, **options)


CASES: list[Case] = [
    *(_case("saxpy", f"saxpy-{n}", partial(saxpy, n)) for n in (1, 256, 1000)),
    *(_case("saxpy", f"saxpy_grid_stride-{n}", partial(saxpy_grid_stride, n, 2)) for n in (100, 1001)),
    *(_case("haxpy", f"haxpy-{n}", partial(haxpy, n)) for n in (1, 512, 1001)),
    *(_case("reduce", f"reduce_shared-{n}", partial(reduce_shared, n, 2)) for n in (1, 1000, 1024)),
    *(_case("reduce", f"reduce_shuffle-{n}", partial(reduce_shuffle, n, 3)) for n in (5, 1000, 2000)),
    *(
        _case("sgemm", f"{entry}-{m}x{n}x{k}", partial(sgemm, entry, m, n, k))
        for entry in SGEMM
        for m, n, k in ((16, 32, 16), (33, 17, 20))
    ),
    _case("sgemm", "sgemm_register-70x65x9", partial(sgemm, "sgemm_register", 70, 65, 9)),
    *(_case("collatz", f"collatz-{n}", partial(collatz, n)) for n in (1, 300)),
    _case("saxpy", "bench-saxpy", partial(saxpy, 1 << 20), kind="bench"),
    _case("sgemm", "bench-sgemm_tiled", partial(sgemm, "sgemm_tiled", 256, 256, 256), kind="bench"),
    _case("collatz", "bench-collatz", partial(collatz, 1 << 16), kind="bench"),
    _case("reduce", "bench-reduce_shared", partial(reduce_shared, 1 << 20, 1), kind="bench"),
]
SMALL = [case for case in CASES if case.kind == "small"]
BENCH = [case for case in CASES if case.kind == "bench"]
