"""Runs the simulation of one SM: from classes of CTAs and operations to clocks."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...jit.ir.sm_records import (
    AT_BIT,
    CAUSE_BIT,
    END,
    FRACTION,
    GROUPS,
    MOST_QUEUED,
    NEVER,
    RANK_BIT,
    SUB_CORES,
    TOGETHER,
    Code,
    Event,
    Line,
    Mbarrier,
    Op,
    Slot,
    Sm,
    Stall,
    Warp,
)
from ...jit.ir.sm_records import Program as ProgramRecord
from ...jit.runtime_libraries import runtime_addresses
from ...results import SECTOR_BYTES as _SECTOR
from ..run.writer import NotRun
from .asynchronous import Copies
from .classes import Classes
from .limits import check_records
from .numbers import CODE_LINE, CodeCaches, SmNumbers
from .operations import Operations, aligned
from .settings import ALIKE_PART, ALIKE_WAVES, MOST_EVENTS

__all__ = ["Memory", "Ran", "Simulated", "Stalls", "run_sms", "simulate"]

#: Capacity of the table of stalls: records per instruction, and additional ones.
_STALLS, _MORE_STALLS = 16, 4096
#: Products of a warp (m16n8k8 in half precision), in lanes, that compute a column of D in 128 lanes from 32 bytes of each row of A.
_COLUMN = 64
#: Lanes that a texture unit takes together.
_QUAD = 4
#: The first of the random numbers.
_SEED = 1
#: More sectors than a launch moves.
_ENDLESS = 1 << 40


@dataclass(frozen=True, slots=True)
class Memory:
    """``l1_lines``: lines of 128 bytes that L1 holds; ``l2_rate`` and ``dram_rate``: bytes per clock available to the SM; ``shares``:
    by group, the share (0 to 1) of first touches that comes from DRAM; ``copied``: by kind of copies, the share of their bytes that
    does; ``behind``: by group, the share of the other first touches that waits for a DRAM access of another SM. ``mixed``: from 0,
    where DRAM is only read or only written, to 1. ``row_rate``: rows per clock that DRAM opens for the SM (0: no known limit);
    ``rows``: by group, the share of its rows that the SM opens itself. ``partial_rate``: lines per clock of which stores of the SM can
    write sectors in part, ``single_rate``: single words of these (0: no known limit); ``filled``: by class and line, the sectors
    (bits) that DRAM reads before it writes them.
    ``drawn``: whether L1 evicts a random line instead of the least recently used one; ``together``: whether the lines of all classes
    have the same numbers, so that CTAs share what is in L1, and stores are kept there. Textures and surfaces: ``texel``: bytes;
    ``fetched`` and ``stored``: sectors that a lane fetches from L2 and stores there; ``image_share``: the share of both that DRAM
    moves. ``l2_kept`` and ``l2_lost``: how many bytes DRAM moves for the SM until L2 begins to lose what it holds, and until it
    has lost all of it."""

    l1_lines: int
    l2_rate: float
    dram_rate: float
    shares: tuple[float, ...]
    copied: tuple[float, ...] = ()
    mixed: float = 1.0
    behind: tuple[float, ...] = ()
    row_rate: float = 0.0
    rows: tuple[float, ...] = ()
    partial_rate: float = 0.0
    single_rate: float = 0.0
    filled: tuple[NDArray[np.uint8], ...] = ()
    drawn: bool = False
    together: bool = False
    l2_kept: float = math.inf
    l2_lost: float = math.inf
    texel: int = 0
    fetched: float = 0.0
    stored: float = 0.0
    image_share: float = 1.0

    @property
    def partial_clocks(self) -> float:
        """Clocks for which a line of which a store writes sectors in part occupies L2 longer than a sector."""
        return max(0.0, 1.0 / self.partial_rate - _SECTOR / self.l2_rate) if self.partial_rate else 0.0

    @property
    def single_clocks(self) -> float:
        """The same if it writes single words."""
        return max(0.0, 1.0 / self.single_rate - _SECTOR / self.l2_rate) if self.single_rate else 0.0


@dataclass(frozen=True, slots=True)
class Stalls:
    """Stalls as parallel arrays. ``at``: the position of the instruction that was delayed; ``cause``: ``sm_records.Cause``; ``on``:
    the position of the instruction that warps waited for; ``clocks`` and ``times``: summed over all warps."""

    at: NDArray[np.int64]
    cause: NDArray[np.int64]
    on: NDArray[np.int64]
    clocks: NDArray[np.float64]
    times: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Simulated:
    """``events``: a row of ``sm_records.Event`` for each event of a window. ``cycles``: until the SM has finished, including data in
    flight; ``ended``: the end of the last warp; ``finished``: the end of each CTA, and ``progress`` the instructions issued until
    then; ``issued``: by position of the instruction; ``resident_clocks``: clocks that warps were resident, summed; ``moved``: clocks
    of the LSU that all sub-partitions share, by position; ``tensor_clocks``: clocks in which the tensor core executed ``tcgen05``
    products; ``image_clocks``: clocks of the texture units; ``row_clocks``: clocks in which DRAM opened rows;
    ``singles``: lines of which stores wrote single words; ``fetch_clocks``: clocks
    in which code was fetched. ``skipped``: CTAs skipped because waves repeat; only ``skipped_cycles`` includes them. ``reads``: the
    sectors that the loads of each CTA read from L2; whole waves are then not skipped."""

    cycles: int
    ended: int
    finished: NDArray[np.uint64]
    progress: NDArray[np.uint64]
    instructions: int
    issued: NDArray[np.uint64]
    moved: NDArray[np.uint64]
    lines: NDArray[np.uint64]
    lanes: NDArray[np.uint64]
    again: NDArray[np.uint64]
    turns: NDArray[np.uint64]
    stalls: Stalls
    l2_sectors: int
    dram_sectors: int
    row_clocks: float
    singles: int
    lsu_clocks: int
    tensor_clocks: float
    image_clocks: float
    fetch_clocks: int
    skipped: int
    skipped_cycles: int
    resident_clocks: int
    events: NDArray[np.uint64]
    reads: NDArray[np.uint64]


class Ran(NamedTuple):
    """The records of the SMs after a simulation."""

    sms: NDArray[np.uint64]
    loads: list[_Load]
    stalls: NDArray[np.uint64]
    events: NDArray[np.uint64]

    @property
    def reads(self) -> NDArray[np.uint64]:
        """As in ``Simulated``."""
        reads: NDArray[np.uint64] = np.sum([load.reads for load in self.loads], axis=0).astype(np.uint64)
        return reads


def simulate(
    operations: Operations,
    classes: Classes,
    copies: Copies,
    numbers: SmNumbers,
    memory: Memory,
    ctas: Sequence[int] | NDArray[np.int64],
    resident: int,
    warps: int,
    window: tuple[int, int] | None = None,
) -> Simulated:
    """Runs CTAs of the classes ``ctas`` in order on an SM that holds ``resident`` CTAs of ``warps`` warps. ``window``: the clocks,
    start to end, exclusive, whose events are kept (of the first SM of a cluster).

    Raises ``NotRun`` if warps deadlock, or the machine exceeds the limits of the simulation.
    """
    return _simulated(
        run_sms(operations, classes, copies, numbers, memory, ctas, resident, warps, window), operations
    )


def run_sms(
    operations: Operations,
    classes: Classes,
    copies: Copies,
    numbers: SmNumbers,
    memory: Memory,
    ctas: Sequence[int] | NDArray[np.int64],
    resident: int,
    warps: int,
    window: tuple[int, int] | None = None,
) -> Ran:
    """As ``simulate``, without evaluating the records."""
    _check(numbers)
    resident = min(resident, len(ctas))
    each = -(-resident * warps // numbers.parts)
    if each > 1 << RANK_BIT:
        raise NotRun(f"{each} warps of a sub-partition; {1 << RANK_BIT} are simulated at most")
    kinds = copies.records(memory.copied)
    check_records(operations, classes, kinds, copies.mbarriers, np.asarray(ctas, np.int64), warps)
    filled = memory.filled or [np.zeros(max(1, len(item.lines)), np.uint8) for item in classes.classes]
    sets = [item.sets() for item in classes.classes]
    programs, most = _programs(classes, filled, sets), max(1, *(len(item.lines) for item in classes.classes))
    shares = _shares(memory)
    stalls = np.zeros((_STALLS * len(operations.items) + _MORE_STALLS, Stall.BYTES // 8), np.uint64)
    events = np.zeros((MOST_EVENTS if window else 0, Event.BYTES // 8), np.uint64)
    operations.reset()
    loads = [
        _Load(
            np.asarray(ctas, np.uint64) + np.uint64(rank),
            resident,
            numbers.parts,
            each,
            most,
            copies.mbarriers,
            memory.together,
        )
        for rank in range(classes.cluster)
    ]
    codes = [_Code(numbers.code, len(operations.items)) for _ in loads]
    sms = np.zeros((len(loads), Sm.BYTES // 8), np.uint64)
    # Waves may be alike until a CTA with other work runs.
    rare = classes.layout is not None
    common = {
        Sm.CTAS: len(ctas), Sm.RESIDENT: resident, Sm.WARPS: warps, Sm.EACH: each,
        Sm.BLOCK: operations.blocks.ctypes.data, Sm.PROGRAMS: programs.ctypes.data,
        Sm.SHARES: shares.ctypes.data, Sm.PEERS: sms.ctypes.data, Sm.GROUP: len(sms), Sm.COPIES: kinds.ctypes.data,
        Sm.ALIKE: 0 if memory.together or rare else ALIKE_WAVES, Sm.ALIKE_PART: ALIKE_PART, Sm.MBARRIERS: copies.mbarriers,
        Sm.OPS: operations.table.ctypes.data, Sm.STALL: stalls.ctypes.data, Sm.FIRST_STALL: stalls.ctypes.data,
        Sm.LAST_STALL: stalls[-1].ctypes.data, Sm.TRAILS: int(operations.has_barrier and warps > 1),
        Sm.WINDOW_FROM: NEVER, Sm.ONE: operations.pair[0], Sm.TWO: operations.pair[1],
        **_clocks(numbers), **_bandwidths(numbers, memory),
    }  # fmt: skip
    places = np.zeros((len(loads), memory.l1_lines + 1 if memory.drawn else 0), np.uint64)
    if memory.drawn:
        common[Sm.DRAWN] = _SEED
    for sm, load, code, place in zip(sms, loads, codes, places):
        own = {Sm.KEPT_AT: place.ctypes.data} if memory.drawn else {}
        _set(sm, common | load.fields() | code.fields() | own)
        sm[Sm.NEXT_AT // 8 : Sm.NEXT_AT // 8 + SUB_CORES] = NEVER
    if window:
        kept = {Sm.EVENT: events.ctypes.data, Sm.EVENTS_LEFT: len(events)}
        _set(sms[0], kept | {Sm.WINDOW_FROM: window[0], Sm.WINDOW_TO: window[1]})
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(runtime_addresses(("sm_run",))["sm_run"])
    if not function(int(sms.ctypes.data)):
        raise NotRun("its warps wait for one another forever")
    return Ran(sms, loads, stalls, events)


def _check(numbers: SmNumbers) -> None:
    if numbers.parts > SUB_CORES or numbers.queue > MOST_QUEUED:
        raise NotRun(
            f"{numbers.parts} sub-partitions with memory queues of {numbers.queue} instructions; {SUB_CORES} with {MOST_QUEUED} "
            "are simulated at most"
        )
    # the answers of one more are looked up
    if numbers.pool >= MOST_QUEUED:
        raise NotRun(
            f"an SM that holds {numbers.pool} memory instructions; {MOST_QUEUED - 1} are simulated at most"
        )
    if numbers.code is not None and not numbers.code.icc_lines:
        raise NotRun("an instruction cache that is smaller than one of its sets")


def _set(sm: NDArray[np.uint64], fields: Mapping[int, int]) -> None:
    for field, value in fields.items():
        sm[field // 8] = int(value)


def _programs(
    classes: Classes, filled: Sequence[NDArray[np.uint8]], sets: Sequence[NDArray[np.uint8]]
) -> NDArray[np.uint64]:
    """``sm_records.Program`` of each class; ``filled``: by class, the sectors of each line that DRAM reads before it writes them,
    ``sets``: the set of the tags of each line."""
    for item in classes.classes:
        firsts = (item.starts - int(item.stream.ctypes.data)) // item.stream.itemsize
        if (item.stream[firsts] == END).any():
            raise NotRun("some of its warps execute nothing")
    if [len(part) < len(item.lines) for item, part in zip(classes.classes, filled, strict=True)].count(True):
        raise NotRun("its records are not those of a CTA of this launch")
    programs = np.array(
        [
            [
                item.starts.ctypes.data,
                len(item.lines),
                item.groups.ctypes.data,
                item.rows.ctypes.data,
                part.ctypes.data,
                own.ctypes.data,
            ]
            for item, part, own in zip(classes.classes, filled, sets)
        ],
        np.uint64,
    )
    assert programs.shape[1] * 8 == ProgramRecord.BYTES
    return programs


def _shares(memory: Memory) -> NDArray[np.uint64]:
    """By group, in 65,536ths: the share that comes from DRAM, the share that waits for a DRAM access of another SM, and the share of
    its DRAM rows that the SM opens."""
    parts = np.zeros((3, GROUPS), np.uint64)
    for row, known in zip(parts, (memory.shares, memory.behind, memory.rows)):
        row[: len(known)] = np.rint(65536 * np.array(known)).astype(np.uint64)
    return parts


def _clocks(numbers: SmNumbers) -> dict[int, int]:
    """Sizes of the units of the SM, and their latencies in clocks."""
    latencies = numbers.latencies
    shared = latencies["shared"]
    # A latency of bulk copies includes the mbarrier and the load from shared memory, which are simulated separately.
    behind = shared // 2 + shared
    return {
        Sm.PARTS: numbers.parts, Sm.QUEUE: numbers.queue, Sm.LSU_CLOCKS: numbers.lsu_clocks,
        Sm.POOL: numbers.pool, Sm.WAVE: numbers.wavefront_clocks, Sm.TAGS: numbers.tag_rate,
        Sm.LATENCY_L1: latencies["l1"], Sm.LATENCY_L2: latencies["l2"],
        Sm.LATENCY_DRAM: latencies["dram"], Sm.LATENCY_BARRIER: latencies.get("barrier", shared),
        Sm.LATENCY_SHARED: shared, Sm.LATENCY_CLUSTER: latencies.get("cluster", latencies["l2"]),
        Sm.LATENCY_TMA_L2: max(1, latencies.get("tma_l2", latencies["l2"] + behind) - behind),
        Sm.LATENCY_TMA_DRAM: max(1, latencies.get("tma_dram", latencies["dram"] + behind) - behind),
        Sm.REQUEST_CLOCKS: numbers.tma_clocks, Sm.TURNAROUND: numbers.turnaround,
        Sm.GAP: round(numbers.sm_count / numbers.cta_rate), Sm.SPREAD: numbers.spread, Sm.SLICES: numbers.slices,
        Sm.LATENCY_TENSOR: latencies.get("tcgen05", 0), Sm.LATENCY_TEX: latencies.get("tex", 0),
        Sm.QUAD_COST: round(_QUAD / (numbers.parts * numbers.lanes.get("tex", 1.0)) * (1 << FRACTION)),
        Sm.LATENCY_PAIR: latencies.get("tcgen05_pair", latencies.get("tcgen05", 0)),
        Sm.COLUMN_COST: round(_COLUMN / (numbers.parts * numbers.lanes.get("tensor", 1.0)) * (1 << FRACTION)),
    }  # fmt: skip


def _ahead(numbers: SmNumbers, memory: Memory) -> int:
    """The most clocks by which SMs are ahead of one another: if their CTAs reach the same lines, a wait for DRAM, as the first one
    waits for each line, and those that find it in L2 catch up."""
    return numbers.latencies["dram"] if any(memory.behind) else _ENDLESS


def _bandwidths(numbers: SmNumbers, memory: Memory) -> dict[int, int]:
    """The cost of a sector at each level of memory, and the lines of L1."""

    def cost(bandwidth: float) -> int:
        return round(_SECTOR / bandwidth * (1 << FRACTION))

    return {
        Sm.PORT_COST: cost(numbers.port_rate),
        Sm.L2_COST: cost(memory.l2_rate),
        Sm.DRAM_COST: cost(memory.dram_rate),
        Sm.ROW_COST: round((1 << FRACTION) / memory.row_rate) if memory.row_rate else 0,
        Sm.ROW_OPEN: numbers.row_open,
        Sm.PARTIAL_COST: round(memory.partial_clocks * (1 << FRACTION)),
        Sm.SINGLE_COST: round(memory.single_clocks * (1 << FRACTION)),
        Sm.MIXED: round(256 * memory.mixed),
        Sm.L2_KEPT: round(min(memory.l2_kept / _SECTOR, _ENDLESS)),
        Sm.L2_LOST: round(min(memory.l2_lost / _SECTOR, _ENDLESS)),
        Sm.DRAM_WAIT: round(
            65536 * ((1.0 - memory.mixed) * numbers.wait_one_way + memory.mixed * numbers.wait_mixed)
        ),
        Sm.L2_AHEAD: _ahead(numbers, memory) << FRACTION,
        Sm.L1_LINES: max(1, memory.l1_lines),
        Sm.TOGETHER: int(memory.together),
        Sm.TEXEL: memory.texel,
        Sm.FETCH_SHARE: round(65536 * memory.fetched),
        Sm.STORE_SHARE: round(65536 * memory.stored),
        Sm.IMAGE_SHARE: round(65536 * memory.image_share),
    }


class _Load:
    """The CTAs that an SM runs, with space for ``resident`` of them, for ``lines`` lines (of each, or of all ``together``) and
    ``mbarriers`` mbarriers of each, and for ``each`` warps of each of ``parts`` sub-partitions; for each CTA its end, the instructions
    issued until then, and the sectors that its loads read from L2."""

    def __init__(
        self,
        ctas: NDArray[np.uint64],
        resident: int,
        parts: int,
        each: int,
        lines: int,
        mbarriers: int,
        together: bool,
    ) -> None:
        self.ctas = ctas
        self.reads = np.zeros(len(ctas) if together else 0, np.uint64)
        self.finished, self.progress = np.zeros((2, len(ctas)), np.uint64)
        self.sums = np.full((2, GROUPS), 32768, np.uint64)
        self.warps = aligned(parts * each * Warp.BYTES)
        row = -(-each // TOGETHER) * TOGETHER
        self.keys = aligned(8 * parts * row).view(np.uint64).reshape(parts, row)
        # of two warps that have not started, either may count as the younger one
        self.keys[:] = np.uint64(NEVER << AT_BIT) + np.arange(row, dtype=np.uint64) * np.uint64(
            1 << RANK_BIT | 1
        )
        self.needs = np.zeros((parts, row), np.uint8)
        self.lines = np.zeros((1 if together else resident, lines * Line.BYTES), np.uint8)
        self.mbarriers = np.zeros((resident, max(1, mbarriers) * Mbarrier.BYTES // 8), np.uint64)
        self.slots = np.zeros((resident, Slot.BYTES // 8), np.uint64)
        places = np.arange(resident, dtype=np.uint64)
        for field, room in ((Slot.LINES, self.lines), (Slot.MBARRIERS, self.mbarriers)):
            step = room.strides[0] if len(room) > 1 else 0
            self.slots[:, field // 8] = int(room.ctypes.data) + places * np.uint64(step)

    def fields(self) -> dict[int, int]:
        return {
            Sm.WARP: self.warps.ctypes.data,
            Sm.KEYS: self.keys.ctypes.data,
            Sm.NEEDS: self.needs.ctypes.data,
            Sm.ROW: self.keys.shape[1],
            Sm.SLOT: self.slots.ctypes.data,
            Sm.CLASSES: self.ctas.ctypes.data,
            Sm.FINISHED: self.finished.ctypes.data,
            Sm.PROGRESS: self.progress.ctypes.data,
            Sm.SUMS: self.sums.ctypes.data,
            Sm.READS: self.reads.ctypes.data if len(self.reads) else 0,
        }


def _lsu_clocks(sm: NDArray[np.uint64]) -> int:
    """Clocks in which the units that all sub-partitions share are busy: with wavefronts, or with turns of instructions if these take
    longer, and with copies."""
    turns = int(sm[Sm.POOLED // 8]) * int(sm[Sm.LSU_CLOCKS // 8])
    return max(int(sm[Sm.LSU_BUSY // 8]), turns) + (int(sm[Sm.COPIED // 8]) >> FRACTION)


def _simulated(ran: Ran, operations: Operations) -> Simulated:
    """The results of the SMs of a cluster: the mean of one SM, and the end of all."""
    sms, loads, stalls, events = ran

    def most_of(*fields: int) -> int:
        return int(max(sms[:, field // 8].max() for field in fields))

    def mean_of(field: int) -> int:
        return round(int(sms[:, field // 8].sum()) / len(sms))

    def counted(field: int) -> NDArray[np.uint64]:
        return operations.counted(field) // np.uint64(len(sms))

    # Stores, and loads without a use, are still in flight when the last warp ends.
    queued = most_of(Sm.PORT, Sm.L2, Sm.DRAM, Sm.ROWS, Sm.TENSOR) >> FRACTION
    return Simulated(
        cycles=max(most_of(Sm.ENDED, Sm.LSU, Sm.TMA), queued),
        ended=most_of(Sm.ENDED),
        finished=np.max([load.finished for load in loads], axis=0),
        progress=np.mean([load.progress for load in loads], axis=0).astype(np.uint64),
        instructions=mean_of(Sm.ISSUED),
        issued=counted(Op.ISSUED),
        moved=counted(Op.MOVED),
        lines=counted(Op.LINES),
        lanes=counted(Op.LANES),
        again=counted(Op.AGAIN),
        turns=counted(Op.TURNS),
        stalls=_stalls(stalls, len(sms)),
        l2_sectors=mean_of(Sm.L2_SECTORS),
        dram_sectors=mean_of(Sm.DRAM_SECTORS),
        row_clocks=mean_of(Sm.ROW_BUSY) / (1 << FRACTION),
        singles=mean_of(Sm.SINGLES),
        lsu_clocks=max(_lsu_clocks(sm) for sm in sms),
        tensor_clocks=mean_of(Sm.TENSOR_BUSY) / (1 << FRACTION),
        image_clocks=mean_of(Sm.IMAGE_BUSY) / (1 << FRACTION),
        # Lines prefetched beyond the end of the last warp do not count.
        fetch_clocks=min(most_of(Sm.FETCHING) >> FRACTION, most_of(Sm.ENDED)),
        skipped=int(sms[0, Sm.SKIPPED // 8]),
        skipped_cycles=int(sms[0, Sm.SKIPPED_CLOCKS // 8]),
        resident_clocks=mean_of(Sm.RESIDED),
        events=events[: len(events) - int(sms[0, Sm.EVENTS_LEFT // 8])],
        reads=ran.reads,
    )


class _Code:
    """The code lines of a launch, and the instruction caches of an SM as the previous launch leaves them after executing all code."""

    def __init__(self, caches: CodeCaches | None, instructions: int) -> None:
        self.caches = caches
        count = 0 if caches is None else -(-instructions // CODE_LINE)
        self.lines: NDArray[np.uint8] = np.zeros((count + 1, Code.BYTES), np.uint8)
        if caches is None:
            return
        for last in (Code.USED, Code.L15_USED):
            self.lines[:, last : last + 8] = np.arange(count + 1, dtype=np.uint64)[:, None].view(np.uint8)
        self.cells = self._filled(caches.icc_lines, caches.ways, Code.HOLDS)
        self.behind = self._filled(caches.gcc_lines, caches.ways, Code.L15_HOLDS)

    def _filled(self, room: int, ways: int, holds: int) -> NDArray[np.uint64]:
        """Fills a cache with the last lines that fit. Returns the line numbers by set."""
        sets = room // ways
        cells = np.zeros((sets, ways), np.uint64)
        if sets:
            numbers = np.arange(max(1, len(self.lines) - room), len(self.lines))
            cells[numbers % sets, numbers // sets % ways] = numbers
            self.lines[numbers, holds] = 1
        return cells

    def fields(self) -> dict[int, int]:
        caches = self.caches
        if caches is None:
            return {}

        def cost(rate: float) -> int:
            return round(16 * CODE_LINE / rate * (1 << FRACTION))

        return {
            Sm.CODE: self.lines.ctypes.data, Sm.CODE_LINES: len(self.lines) - 1, Sm.USES: len(self.lines),
            Sm.SETS: len(self.cells), Sm.WAYS: caches.ways, Sm.CELLS: self.cells.ctypes.data,
            Sm.L15_SETS: len(self.behind), Sm.L15_WAYS: caches.ways, Sm.L15_CELLS: self.behind.ctypes.data,
            Sm.L15_COST: cost(caches.gcc_rate), Sm.CODE_COST: cost(caches.l2_rate),
            Sm.LATENCY_L15: caches.gcc_latency, Sm.AHEAD: caches.ahead,
        }  # fmt: skip


def _stalls(records: NDArray[np.uint64], group: int) -> Stalls:
    """The mean stalls of one SM of a cluster."""
    found = records[records[:, Stall.CLOCKS // 8] + records[:, Stall.TIMES // 8] > 0].astype(np.int64)
    why = found[:, Stall.WHY // 8]
    clocks, times = (found[:, field // 8] / group for field in (Stall.CLOCKS, Stall.TIMES))
    at, on = found[:, Stall.AT // 8], why & ((1 << CAUSE_BIT) - 1)
    return Stalls(at, why >> CAUSE_BIT, on, clocks, times)
