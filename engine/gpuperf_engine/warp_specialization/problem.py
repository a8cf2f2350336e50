"""Matrix products, their tilings, and the resources of a tile on an SM."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from math import prod

import numpy as np
import numpy.typing as npt

from ..errors import EngineError, UnknownName, nearest
from ..machines.machine import Machine
from ..machines.occupancy import WARP_SIZE
from ..machines.rates import peak_rate

__all__ = ["DTYPES", "Dtype", "Integers", "Problem", "TileSpace", "Tiling", "Tilings", "feasible"]

Integers = npt.NDArray[np.int64]

BARRIER_BYTES = 8
"""Of an mbarrier object (PTX manual, "Size and alignment of mbarrier object")."""


@dataclass(frozen=True, slots=True)
class Dtype:
    """Elements of A and B: their ``bytes``, the ``kind`` of the operations on them (``machines.rates``), the 32-bit ``registers`` of
    an accumulator, the ``output_bytes`` of an element of C, and the first compute ``capability`` that has them."""

    bytes: int
    kind: str
    registers: int
    output_bytes: int
    capability: tuple[int, int]

    def multiply_adds(self, machine: Machine) -> float:
        """Multiply-adds per cycle of an SM; 0 if the machine has no unit for them."""
        return peak_rate(self.kind, machine) / 2 if machine.compute_capability >= self.capability else 0.0


DTYPES = {
    "f16": Dtype(2, "tensor_fp16", 1, 2, (7, 0)),
    "bf16": Dtype(2, "tensor_bf16", 1, 2, (8, 0)),
    "tf32": Dtype(4, "tensor_tf32", 1, 4, (8, 0)),
    "s8": Dtype(1, "tensor_int8", 1, 4, (7, 5)),
    "e4m3": Dtype(1, "tensor_fp8", 1, 2, (8, 9)),
    "f32": Dtype(4, "sp", 1, 4, (0, 0)),
    "f64": Dtype(8, "dp", 2, 8, (0, 0)),
}


@dataclass(frozen=True, slots=True)
class Problem:
    """C = A · B with A of ``m`` x ``k`` elements and B of ``k`` x ``n``, of a type of :data:`DTYPES`."""

    m: int
    n: int
    k: int
    dtype: str = "f16"

    def __post_init__(self) -> None:
        if min(self.m, self.n, self.k) < 1:
            raise EngineError(
                f"a product of {self.m} x {self.n} x {self.k}", hint="each extent is at least 1"
            )
        if self.dtype not in DTYPES:
            raise UnknownName(
                f"unknown element type {self.dtype!r}", hint=nearest(self.dtype, DTYPES, noun="type")
            )

    @property
    def elements(self) -> Dtype:
        return DTYPES[self.dtype]

    @property
    def input_bytes(self) -> int:
        """Bytes of A and B, each counted once."""
        return (self.m * self.k + self.k * self.n) * self.elements.bytes


@dataclass(frozen=True, slots=True, order=True)
class Tiling:
    """One configuration: a CTA computes ``m`` x ``n`` elements of C in stages of depth ``k``, through ``depth`` buffers, with
    ``dma_warps`` (1: loads of A and B one after the other, 2: side by side) and ``math_warps``."""

    m: int
    n: int
    k: int
    depth: int = 2
    dma_warps: int = 1
    math_warps: int = 4

    def __post_init__(self) -> None:
        if min(astuple(self)) < 1 or self.dma_warps > 2:
            raise EngineError(
                f"{self} is not a tiling", hint="all numbers are at least 1, and there are 1 or 2 DMA warps"
            )

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"


@dataclass(frozen=True, slots=True, eq=False)
class Tilings:
    """Configurations as columns: arrays of int64 of one shape, with the meaning of the fields of :class:`Tiling`."""

    m: Integers
    n: Integers
    k: Integers
    depth: Integers
    dma_warps: Integers
    math_warps: Integers

    @classmethod
    def of(cls, tilings: Iterable[Tiling]) -> Tilings:
        table = np.array([astuple(tiling) for tiling in tilings], dtype=np.int64).reshape(-1, 6)
        return cls(*table.T)

    def __len__(self) -> int:
        return len(self.m)

    def at(self, index: int) -> Tiling:
        return Tiling(*(int(getattr(self, field.name)[index]) for field in fields(self)))

    def where(self, chosen: npt.NDArray[np.bool_]) -> Tilings:
        return Tilings(*(getattr(self, field.name)[chosen] for field in fields(self)))

    def tiles(self, problem: Problem) -> Integers:
        """CTAs of the launch, one for each tile of C."""
        return -(-problem.m // self.m) * -(-problem.n // self.n)

    def stages(self, problem: Problem) -> Integers:
        return -(-problem.k // self.k)

    def waves(self, problem: Problem, sm_count: int) -> Integers:
        """How often the grid fills the machine, with one CTA on an SM."""
        return -(-self.tiles(problem) // sm_count)

    def shared_bytes(self, problem: Problem) -> Integers:
        """Buffers of A and B and two barriers, full and empty, for each stage in flight."""
        return self.depth * ((self.m + self.n) * self.k * problem.elements.bytes + 2 * BARRIER_BYTES)

    def warps(self) -> Integers:
        return self.math_warps + self.dma_warps

    def accumulator_registers(self, problem: Problem) -> Integers:
        """Of a thread of a MATH warp."""
        return -(-self.m * self.n * problem.elements.registers // (WARP_SIZE * self.math_warps))


@dataclass(frozen=True, slots=True)
class TileSpace:
    """The configurations that are searched: every combination of these values that fits the machine.

    ``spare_registers``: registers of a thread besides accumulators, for addresses and fragments; an assumption, the number that
    CUTLASS leaves its producers (``setmaxnreg.dec 40``).
    """

    m: tuple[int, ...] = (32, 64, 128, 256)
    n: tuple[int, ...] = (32, 64, 128, 256)
    k: tuple[int, ...] = (16, 32, 64, 128)
    depth: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8)
    dma_warps: tuple[int, ...] = (1, 2)
    math_warps: tuple[int, ...] = (4, 8)
    spare_registers: int = 40

    @property
    def axes(self) -> Sequence[tuple[int, ...]]:
        return self.m, self.n, self.k, self.depth, self.dma_warps, self.math_warps

    def __len__(self) -> int:
        return prod(map(len, self.axes))

    def all(self) -> Tilings:
        grid = np.meshgrid(
            *(np.array(sorted(set(axis)), dtype=np.int64) for axis in self.axes), indexing="ij"
        )
        return Tilings(*(column.ravel() for column in grid))


def feasible(problem: Problem, machine: Machine, tilings: Tilings, spare: int) -> npt.NDArray[np.bool_]:
    """Return which configurations a GPU can launch, by the rules of ``machines.occupancy``."""
    warps = tilings.warps()
    registers = tilings.accumulator_registers(problem) + spare
    unit = machine.register_allocation_unit
    of_warp = -(-registers * WARP_SIZE // unit) * unit
    # the hardware rounds the number of warps up to a multiple of the sub-partitions
    counted = -(-warps // machine.sub_partitions) * machine.sub_partitions
    shared, grain = tilings.shared_bytes(problem), machine.shared_allocation_unit
    allocated = -(-(shared + machine.shared_reserved_per_cta) // grain) * grain
    most = min(machine.max_threads_per_cta // WARP_SIZE, machine.max_warps_per_sm)
    return np.asarray(
        (warps <= most)
        & (registers <= machine.max_registers_per_thread)
        & (of_warp * counted <= min(machine.registers_per_cta, machine.registers_per_sm))
        & (shared <= machine.shared_per_cta)
        & (allocated <= machine.shared_per_sm)
    )
