"""The numbers of a machine that the simulation of an SM needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["CODE_LINE", "CodeCaches", "SmNumbers"]

#: Instructions of 16 bytes in a line of code.
CODE_LINE = 8


@dataclass(frozen=True, slots=True)
class CodeCaches:
    """Instruction caches. ``icc_bytes``: the cache of the SM, in sets of ``ways`` lines of 128 bytes; ``gcc_bytes``: the next level, 0
    if there is none; ``ahead``: lines that are prefetched; ``gcc_rate`` and ``l2_rate``: bytes per clock from the next level and from
    L2; ``gcc_latency``: clocks."""

    icc_bytes: int
    ways: int
    ahead: int
    gcc_bytes: int
    gcc_rate: float
    gcc_latency: int
    l2_rate: float

    @property
    def icc_lines(self) -> int:
        """Lines that the instruction cache of the SM holds."""
        return _lines(self.icc_bytes, self.ways)

    @property
    def gcc_lines(self) -> int:
        return _lines(self.gcc_bytes, self.ways)


def _lines(size: int, ways: int) -> int:
    """Lines of a cache of ``size`` bytes, in whole sets."""
    return size // (16 * CODE_LINE) // ways * ways


@dataclass(frozen=True, slots=True)
class SmNumbers:
    """Clocks are SM clocks. ``lanes``, ``pipes`` and ``latencies`` are as in ``machines.machine.Machine`` (``pipes``: its
    ``shared_pipes``). ``queue``: memory instructions that a sub-partition queues; ``address_clocks``: clocks between two of them at
    the address unit of the sub-partition, or, unless it is 0 (unknown), ``operand_clocks``: clocks in which the queue reads a
    register; ``lsu_clocks``: clocks between two of them at the LSU that all sub-partitions share; ``pool``: memory instructions that
    it holds until they are answered, 0 if unknown;
    ``wavefront_clocks``: clocks in which 128 bytes pass between the banks and the registers; ``tag_rate``: lines per clock;
    ``l1_bytes``: L1 and shared memory together; ``shared_unit``: what an SM gives to shared memory is a multiple of it, 0 if
    anything is. ``other_reads``: sectors that are read from L2 in a clock beside the accesses of a launch.

    Bandwidths of the chip are in bytes per clock: ``port_rate`` of one SM, ``l2_rate``, and of DRAM ``one_way`` (only loads or only
    stores) or ``mixed``, which applies in full if the smaller direction has at least the share ``fully_mixed`` of the bytes;
    ``cta_rate``: CTAs started per clock. ``turnaround``: clocks between the end of a CTA and the start of the next; ``l2_kept``: the
    largest footprint in bytes that L2 holds completely until it is used again; ``l2_lost``: the footprint from which on nothing is
    left. ``row_rate``: DRAM rows opened per clock, 0 if unknown; ``row_open``: clocks that a row stays open;
    ``wait_one_way`` and ``wait_mixed``: by which part of its mean latency the slowest load takes longer if DRAM is always busy, 0 if
    unknown;
    ``partial_rate``: lines per clock of which stores can write sectors in part, ``single_rate``: single words of these, and
    ``atomic_turns``: turns of atomics per clock in an aligned KiB of memory (``jit.runtime.sm.trace``), 0 if unknown;
    ``float_turns``: turns of one with floating-point numbers;
    ``tensor_read`` and ``tensor_write``: bytes per clock that a lane of tensor memory exchanges with registers, 0 without tensor
    memory; ``tensor_fp16_accumulate``: lanes of the tensor unit in products with FP16 or integer accumulators or of packed 4-bit
    numbers, 0 if as in others; ``logic_lanes``: of bitwise instructions, shifts, minima and maxima, 0 if as of the integer unit;
    ``slices``: slices of L2, whose latencies are evenly spaced up to ``spread`` clocks around the mean; ``read_clocks``: in
    which an instruction of fixed latency reads its registers, ``wide_read_clocks`` if it reads more from a bank than that;
    ``wide_rate``: of an integer multiply-add with a result of 64 bits, as a part of that of others.
    """

    architecture: int
    sm_count: int
    parts: int
    issue_rate: float
    lanes: Mapping[str, float]
    pipes: Mapping[str, str]
    latencies: Mapping[str, int]
    queue: int
    address_clocks: int
    lsu_clocks: int
    wavefront_clocks: int
    tag_rate: int
    l1_bytes: int
    l2_kept: float
    l2_lost: float
    port_rate: float
    l2_rate: float
    one_way: float
    mixed: float
    fully_mixed: float
    turnaround: int
    cta_rate: float
    tma_clocks: int = 1
    code: CodeCaches | None = None
    row_rate: float = 0.0
    row_open: int = 0
    wait_one_way: float = 0.0
    wait_mixed: float = 0.0
    partial_rate: float = 0.0
    single_rate: float = 0.0
    atomic_turns: float = 0.0
    float_turns: float = 1.0
    tensor_read: float = 0.0
    tensor_write: float = 0.0
    tensor_fp16_accumulate: float = 0.0
    logic_lanes: float = 0.0
    shared_unit: int = 0
    other_reads: float = 0.0
    slices: int = 1
    spread: int = 0
    read_clocks: int = 3
    wide_read_clocks: int = 6
    wide_rate: float = 1.0
    operand_clocks: int = 0
    pool: int = 0
