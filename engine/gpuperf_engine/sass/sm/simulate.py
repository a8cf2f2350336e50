"""The simulation of one SM, run: from classes of CTAs and operations to clocks."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...jit.ir.sm_records import FRACTION, Line, Op, Slot, Sm, Warp
from ...jit.ir.sm_records import Program as ProgramRecord
from ...jit.llvm import runtime_addresses
from ..run.writer import NotRun
from .numbers import SmNumbers
from .operations import Operations
from .streams import Classes

__all__ = ["Memory", "Simulated", "simulate"]

_SECTOR = 32


@dataclass(frozen=True, slots=True)
class Memory:
    """Lines of 128 bytes that L1 holds; bytes per clock that an SM has of L2 and of DRAM; by number of the group the part (0 to 1)
    of its
    first touches that come from DRAM."""

    l1_lines: int
    l2_rate: float
    dram_rate: float
    shares: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Simulated:
    """``cycles`` of the SM until all is done, data that are still on their way included; ``ended``: when the last warp was,
    ``finished``:
    when each CTA was; ``issued`` and ``stalled`` by position of the
    instruction; sectors that moved. ``skipped``: CTAs left out because waves repeat, in none of these but in ``skipped_cycles``."""

    cycles: int
    ended: int
    finished: NDArray[np.uint64]
    instructions: int
    issued: NDArray[np.uint64]
    stalled: NDArray[np.uint64]
    l2_sectors: int
    dram_sectors: int
    lsu_clocks: int
    skipped: int
    skipped_cycles: int


def simulate(
    operations: Operations,
    classes: Classes,
    numbers: SmNumbers,
    memory: Memory,
    ctas: list[int],
    resident: int,
    warps: int,
) -> Simulated:
    """Runs CTAs of these classes one after the other on an SM that holds ``resident`` of them, each of ``warps`` warps.

    Raises ``NotRun`` if warps wait for one another for ever.
    """
    sm = np.zeros(Sm.BYTES // 8, np.uint64)
    resident = min(resident, len(ctas))
    each = -(-resident * warps // numbers.parts)
    most = max(1, *(len(item.lines) for item in classes.classes))
    room = np.zeros(resident * most * Line.BYTES, np.uint8)
    slots = np.zeros((resident, Slot.BYTES // 8), np.uint64)
    slots[:, Slot.LINES // 8] = int(room.ctypes.data) + np.arange(resident, dtype=np.uint64) * np.uint64(
        most * Line.BYTES
    )
    held = np.zeros(numbers.parts * each * Warp.BYTES, np.uint8)
    programs = np.array(
        [[item.starts.ctypes.data, len(item.lines), item.groups.ctypes.data] for item in classes.classes],
        np.uint64,
    )
    assert programs.shape[1] * 8 == ProgramRecord.BYTES
    order, finished = np.array(ctas, np.uint64), np.zeros(len(ctas), np.uint64)
    parts = np.zeros(256, np.uint64)
    parts[: len(memory.shares)] = [round(65536 * share) for share in memory.shares]
    sums = np.zeros(256, np.uint64)
    sums[:] = 32768
    operations.reset()

    def cost(bandwidth: float) -> int:
        return round(_SECTOR / bandwidth * (1 << FRACTION))

    values = {
        Sm.CTAS: len(ctas), Sm.RESIDENT: resident, Sm.WARPS: warps, Sm.EACH: each, Sm.PARTS: numbers.parts,
        Sm.WARP: held.ctypes.data, Sm.SLOT: slots.ctypes.data, Sm.BLOCK: operations.blocks.ctypes.data,
        Sm.CLASSES: order.ctypes.data, Sm.PROGRAMS: programs.ctypes.data, Sm.FINISHED: finished.ctypes.data,
        Sm.QUEUE: numbers.queue, Sm.ADDRESS_CLOCKS: numbers.address_clocks, Sm.LSU_CLOCKS: numbers.lsu_clocks,
        Sm.WAVE: numbers.wavefront_clocks, Sm.TAGS: numbers.tag_rate,
        Sm.LATENCY_L1: numbers.latencies["l1"], Sm.LATENCY_L2: numbers.latencies["l2"],
        Sm.LATENCY_DRAM: numbers.latencies["dram"], Sm.LATENCY_BARRIER: numbers.latencies.get("barrier", numbers.latencies["shared"]),
        Sm.PORT_COST: cost(numbers.port_rate), Sm.L2_COST: cost(memory.l2_rate), Sm.DRAM_COST: cost(memory.dram_rate),
        Sm.TURNAROUND: numbers.turnaround,
        Sm.GAP: round(numbers.sm_count / numbers.cta_rate), Sm.L1_LINES: max(1, memory.l1_lines),
        Sm.SHARES: parts.ctypes.data, Sm.SUMS: sums.ctypes.data,
    }  # fmt: skip
    for field, value in values.items():
        sm[field // 8] = int(value)
    sm[Sm.NEXT_AT // 8 : Sm.NEXT_AT // 8 + 4] = 1 << 60
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(runtime_addresses(("sm_run",))["sm_run"])
    if not function(int(sm.ctypes.data)):
        raise NotRun("its warps wait for one another for ever")

    def of(field: int) -> int:
        return int(sm[field // 8])

    # stores, and loads that nothing waits for, are still under way when the last warp ends
    cycles = max(of(Sm.ENDED), of(Sm.LSU), *(of(field) >> FRACTION for field in (Sm.PORT, Sm.L2, Sm.DRAM)))
    return Simulated(
        cycles, of(Sm.ENDED), finished, of(Sm.ISSUED), operations.counted(Op.ISSUED), operations.counted(Op.STALLED),
        of(Sm.L2_SECTORS), of(Sm.DRAM_SECTORS), of(Sm.LSU_BUSY), of(Sm.SKIPPED), of(Sm.SKIPPED_CLOCKS),
    )  # fmt: skip
