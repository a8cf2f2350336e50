"""What the simulation of an SM needs to know of a machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["CODE_LINE", "CodeCaches", "SmNumbers"]

#: instructions of 16 bytes in a line of code
CODE_LINE = 8


@dataclass(frozen=True, slots=True)
class CodeCaches:
    """Caches of instructions: that of the SM, of ``icc_bytes`` in sets of ``ways`` lines of 128 bytes, and the next level, of
    ``gcc_bytes``, 0 for none. ``ahead``: lines that are fetched ahead; ``gcc_rate`` and ``l2_rate``: bytes per clock that come from
    the next level and from L2; ``gcc_latency``: clocks."""

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
    """Whole sets of them."""
    return size // (16 * CODE_LINE) // ways * ways


@dataclass(frozen=True, slots=True)
class SmNumbers:
    """Clocks are those of the SM. ``lanes``, ``pipes`` and ``latencies`` are as in ``machines.machine.Machine`` (``pipes``: its
    ``shared_pipes``). ``queue``: memory instructions that a sub-partition holds; ``address_clocks``: between two of them at its
    address unit, ``lsu_clocks``: at the unit that all share; ``wavefront_clocks``: of 128 bytes between the banks and the registers;
    ``tag_rate``: lines per clock; ``l1_bytes``: with shared memory.

    Rates of the chip are in bytes per clock: ``port_rate`` of one SM, ``l2_rate``, and of DRAM ``one_way`` or ``mixed``, fully from
    this part of its bytes on that go the other way; ``cta_rate``:
    CTAs started per clock. ``turnaround``: clocks of a CTA; ``l2_kept``: bytes of data up to which all are still in L2 when they
    are used again, ``l2_lost``: from which on none are. ``row_rate``: rows of DRAM that are opened per clock, 0 where that is not
    known; ``row_open``: clocks in which what else is wanted of a row finds it open.
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
