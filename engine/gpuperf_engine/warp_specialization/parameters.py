"""Times of loads, MATH and the epilogue of a tile: published, fitted to measurements, or derived from a machine description."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ..errors import Unsupported
from ..machines.machine import Machine
from ..machines.rates import unit_of
from .problem import DTYPES, Problem, Tilings
from .recurrence import Floats

__all__ = [
    "PAPER",
    "Coefficients",
    "Derived",
    "Number",
    "Parameters",
    "StageTimes",
    "math_us_per_multiply_add",
]

_BACK_SOLVED = "Table 2, back-solved"


@dataclass(frozen=True, slots=True)
class Number:
    """One number of a model with its unit and source."""

    name: str
    value: float
    unit: str
    source: str


@dataclass(frozen=True, slots=True, eq=False)
class StageTimes:
    """µs of each configuration: of one load of A, of one of B, of MATH of one stage, and of the epilogue of a tile."""

    load_a: Floats
    load_b: Floats
    math: Floats
    epilogue: Floats


def _stage_times(*parts: npt.ArrayLike) -> StageTimes:
    return StageTimes(*(np.asarray(part, np.float64) for part in parts))


class Parameters(Protocol):
    """A source of stage times. ``sm_count``: CTAs that run at once; ``init_us``: the time before the first."""

    @property
    def name(self) -> str: ...
    @property
    def sm_count(self) -> int: ...
    @property
    def init_us(self) -> float: ...
    @property
    def numbers(self) -> tuple[Number, ...]: ...
    def stage_times(self, problem: Problem, tilings: Tilings) -> StageTimes: ...


def active_ctas(problem: Problem, tilings: Tilings, sm_count: int) -> Floats:
    """CTAs that run at once, the mean over the waves."""
    return np.asarray(tilings.tiles(problem) / tilings.waves(problem, sm_count), np.float64)


@dataclass(frozen=True, slots=True)
class Coefficients:
    """Stage times that are linear in the bytes of a load, the multiply-adds of a stage and the elements of a tile.

    A load takes ``load_us + bytes * (byte_us + contention_us * active CTAs)``, MATH ``multiply_add_us`` for each multiply-add, the
    epilogue ``epilogue_us + element_us`` for each element of the tile.
    """

    name: str
    source: str
    sm_count: int
    init_us: float
    load_us: float
    epilogue_us: float
    byte_us: float = 0.0
    contention_us: float = 0.0
    multiply_add_us: float = 0.0
    element_us: float = 0.0

    @property
    def numbers(self) -> tuple[Number, ...]:
        units = {
            "init_us": "us",
            "load_us": "us/load",
            "byte_us": "us/B",
            "contention_us": "us/B/CTA",
            "multiply_add_us": "us/multiply-add",
            "epilogue_us": "us/tile",
            "element_us": "us/element",
        }
        return tuple(Number(name, getattr(self, name), unit, self.source) for name, unit in units.items())

    def stage_times(self, problem: Problem, tilings: Tilings) -> StageTimes:
        of_byte = self.byte_us + self.contention_us * active_ctas(problem, tilings, self.sm_count)
        size = problem.elements.bytes * tilings.k
        area = tilings.m * tilings.n
        return _stage_times(
            self.load_us + size * tilings.m * of_byte,
            self.load_us + size * tilings.n * of_byte,
            self.multiply_add_us * area * tilings.k,
            self.epilogue_us + self.element_us * area,
        )


PAPER = Coefficients(
    name="Liu-Grover",
    source=_BACK_SOLVED,
    sm_count=84,
    init_us=1.680,
    load_us=1.130 / 2,
    epilogue_us=1.988,
)
"""The numbers of Table 2, for the paper's GPU of 84 SMs: 1.130 µs for each stage of any tile and 1.988 µs for the end of a wave,
besides the T_INIT of the text. Each load takes half of a stage, as with one DMA warp; MATH overlaps with loads, and its last stage
of a tile is part of the 1.988 µs. The other parameters in the paper's text do not reproduce its table."""


def math_us_per_multiply_add(machine: Machine, dtype: str) -> Number:
    """Of an SM at the rate of the unit that has this type. Raises :class:`Unsupported` where the machine has none."""
    rate = DTYPES[dtype].multiply_adds(machine)
    if not rate:
        raise Unsupported(
            f"machine {machine.id!r} has no unit for products of {dtype}",
            hint=f"types: {', '.join(name for name, of in DTYPES.items() if of.multiply_adds(machine))}",
        )
    path = f"lanes.{unit_of(DTYPES[dtype].kind, machine.compute_capability)}"
    source = f"{path}: {_source(machine, path)}"
    return Number("multiply_add_us", machine.microseconds(1.0) / rate, "us/multiply-add", source)


def _source(machine: Machine, path: str) -> str:
    quantity = machine.quantities[path]
    return f"{quantity.source} ({quantity.note})" if quantity.note else quantity.source


@dataclass(frozen=True, slots=True)
class Derived:
    """Stage times from the numbers of a machine description, for machines without measurements.

    A load takes the latency of L2, or of DRAM for the share of the tiles' bytes that comes from there (each byte of A and B once),
    and its bytes at the slowest of the port of an SM, an even share of L2, and an even share of DRAM. Two concurrent loads share that
    rate. MATH runs at the full rate of its unit. The epilogue includes the start of a CTA and stores the tile at the same rates.
    The model ignores bank conflicts, MATH's reads of shared memory, and instruction issue.
    """

    machine: Machine
    dtype: str

    @property
    def name(self) -> str:
        return f"derived from {self.machine.id}"

    @property
    def sm_count(self) -> int:
        return self.machine.sm_count

    @property
    def init_us(self) -> float:
        return self.machine.launch_overhead_us

    @property
    def numbers(self) -> tuple[Number, ...]:
        machine = self.machine
        values = {
            "launch.overhead": machine.launch_overhead_us,
            "latency.l2": machine.l2_latency(1.0 - 1.0 / machine.l2_partitions),
            "latency.dram": float(machine.latencies["dram"]),
            "cache.l2_sm_bandwidth": machine.l2_sm_bandwidth,
            "cache.l2_bandwidth": machine.l2_bandwidth,
            "dram.sustained_one_way": machine.dram_sustained_one_way,
            "launch.cta_turnaround": float(machine.cta_turnaround),
            "chip.clock": machine.clock_mhz,
        }
        read = [
            Number(path, value, machine.quantities[path].unit, _source(machine, path))
            for path, value in values.items()
        ]
        return (*read, math_us_per_multiply_add(machine, self.dtype))

    def stage_times(self, problem: Problem, tilings: Tilings) -> StageTimes:
        machine = self.machine
        size = problem.elements.bytes
        bytes_a, bytes_b = size * tilings.m * tilings.k, size * tilings.n * tilings.k
        active = active_ctas(problem, tilings, machine.sm_count)
        loaded = tilings.tiles(problem) * tilings.stages(problem) * (bytes_a + bytes_b)
        from_dram = np.minimum(1.0, problem.input_bytes / loaded)
        near = machine.l2_latency(1.0 - 1.0 / machine.l2_partitions)
        latency = near + from_dram * (machine.latencies["dram"] - near)
        dram = machine.dram_bytes_per_cycle(machine.dram_sustained_one_way)
        port = np.maximum(1.0 / machine.l2_sm_bandwidth, active / machine.l2_bandwidth)
        of_byte = np.maximum(port, from_dram * active / dram)
        shorter = np.minimum(bytes_a, bytes_b)
        both = (bytes_a + bytes_b) * of_byte
        two = tilings.dma_warps == 2
        side_a = np.where(bytes_a > bytes_b, both, 2 * shorter * of_byte)
        side_b = np.where(bytes_b >= bytes_a, both, 2 * shorter * of_byte)
        multiply_add = math_us_per_multiply_add(machine, self.dtype).value
        area = tilings.m * tilings.n
        stored = area * problem.elements.output_bytes * np.maximum(port, active / dram)
        clock = machine.clock_mhz
        return _stage_times(
            (latency + np.where(two, side_a, bytes_a * of_byte)) / clock,
            (latency + np.where(two, side_b, bytes_b * of_byte)) / clock,
            multiply_add * area * tilings.k,
            (machine.cta_turnaround + stored) / clock,
        )
