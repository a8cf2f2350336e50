"""The instructions and accesses of the warps of a CTA, as streams for the simulation."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...jit.ir.sm_records import GROUPS, MOST_OF_ACCESS, TAG_SETS, Stream
from ...jit.runtime_libraries import runtime_addresses
from ..registers import WIDTHS
from ..run.needed import STORES
from ..run.trace_kernel import TraceKernel
from ..run.writer import NotRun
from .asynchronous import Named, way_of
from .sharing import ROW

__all__ = ["ATOMICS", "LOCAL_GROUP", "Class", "class_of", "classes_together", "named_of"]

_SPACES = {
    "shared": 0,
    "global": 1,
    "local": 2,
    "mbarrier": 3,
    "value": 4,
    "window": 4,
    "copy": 5,
    "generic": 6,
    "word": 7,
    "image": 8,
}
_LINE = 128
#: The most lines of an access.
_MOST_LINES = 128
#: The initial and the largest size of a table of lines: 1 MiB and 512 MiB.
_FIRST_CELLS, _MOST_CELLS = 1 << 16, 1 << 25
#: Where CTAs share lines, the group of local memory is that of the CTA, from here on; global memory is one group, 0.
LOCAL_GROUP = 128
#: Flag of a site: its data bypass L1 (PTX, ``cp.async.cg``).
_PAST_L1 = 128
#: Flag of a site: it stores.
_STORE = 32
ATOMICS = ("ATOM", "RED")
#: Flag of a site: an atomic in shared memory that adds the number of lanes at a word to it, in one turn.
_COUNTS_LANES = 16
#: From 8.0 on, flags of a site: registers are packed only if all lanes access the same; loads have them packed if neighbours load the
#: same and no lanes conflict, as counted on 8.0, 8.6 and 12.0 (docs/simulation.md). NVIDIA states for 7.0 to 7.5 that they are if
#: neighbours do (docs/metrics.md).
_AMPERE, _ALONE, _WITHOUT_CONFLICT = 80, 64, 16
#: From 10.0 on, code of the system uses mbarriers in the first KiB of shared memory.
_RESERVES = 100


@dataclass(frozen=True, slots=True)
class Class:
    """CTAs that execute the same. ``stream``: of their warps, which begin at the addresses ``starts``; for each line that a CTA
    touches ``groups``: the number of its group; ``lines``: the line; ``sectors``: a bit for each touched sector; ``written``: a bit
    for each word that stores, but not atomics, write; ``rows``: the index of the first line in the same DRAM row; ``issued``: warp
    instructions, of sampled CTAs."""

    stream: NDArray[np.uint32]
    starts: NDArray[np.int64]
    groups: NDArray[np.uint8]
    lines: NDArray[np.int64]
    sectors: NDArray[np.uint8]
    written: NDArray[np.uint32]
    rows: NDArray[np.uint32] = dataclasses.field(default_factory=lambda: np.zeros(0, np.uint32))
    issued: int = 0

    def __post_init__(self) -> None:
        if len(self.rows) == len(self.lines):
            return
        # addresses have less than 56 bits
        keys = self.groups.astype(np.uint64) << np.uint64(56) | (self.lines // (ROW // _LINE)).astype(
            np.uint64
        )
        _, firsts, of_line = np.unique(keys, return_index=True, return_inverse=True)
        object.__setattr__(self, "rows", firsts.astype(np.uint32)[of_line])

    def filled(self, groups: Sequence[bool], loaded: Sequence[bool]) -> NDArray[np.uint8]:
        """For each line the sectors (bits) that accesses of the chosen ``groups`` write only in part, and that no access of the groups
        ``loaded`` has brought to L2."""
        full = (self.written[:, None] >> 8 * np.arange(4, dtype=np.uint32) & 255) == 255
        partly = self.sectors & ~np.packbits(full, axis=1, bitorder="little")[:, 0]
        chosen, brought = (np.array([*flags, False])[self.groups] for flags in (groups, loaded))
        partly[~chosen] = 0
        if partly.any() and brought.any():
            order = np.argsort(self.lines[brought], kind="stable")
            lines, sectors = self.lines[brought][order], self.sectors[brought][order]
            firsts = np.flatnonzero(np.r_[True, lines[1:] != lines[:-1]])
            known, sectors = lines[firsts], np.bitwise_or.reduceat(sectors, firsts)
            at = np.minimum(np.searchsorted(known, self.lines), len(known) - 1)
            partly &= ~np.where(known[at] == self.lines, sectors[at], 0).astype(np.uint8)
        return partly

    def sets(self) -> NDArray[np.uint8]:
        """For each line the set of the tags of L1 that it is in.

        Measured on an RTX 5090 with lines 0 to 511 (cicuvc/nvidia-sass-document 020c888, notes/sm90/arch/shared_bank_conflicts.md);
        it gives the counters of A100, A40 and H200 in tests/timing/data/l1_strides.csv too.
        """
        folded = self.lines ^ self.lines >> 2 ^ self.lines >> 4 ^ self.lines >> 6 ^ self.lines >> 8
        return (folded % TAG_SETS).astype(np.uint8)

    def touched(self, group: int) -> NDArray[np.int64]:
        """The sectors (four to a line) that a CTA touches in a group of accesses."""
        own = self.groups == group
        line, sector = np.nonzero(self.sectors[own][:, None] >> np.arange(4, dtype=np.uint8) & 1)
        touched: NDArray[np.int64] = self.lines[own][line] * 4 + sector
        return touched


def named_of(tracer: TraceKernel, of_site: list[int]) -> Named:
    """The sites of a trace in the form in which streams encode them."""
    listing, packs = tracer.graph.listing.instructions, tracer.number < _AMPERE
    sites = np.zeros((len(tracer.sites) + 1, 4), np.uint8)
    for index, site in enumerate(tracer.sites):
        item = listing[site.position]
        words = item.opcode.split(".")
        width = next((WIDTHS[word] for word in words if word in WIDTHS), 1)
        group, flags = of_site[index], int(item.base.startswith(ATOMICS))
        if not flags and item.base in STORES and item.base != "LDGSTS":
            flags = _STORE
        if item.base == "LDGSTS" and site.space == "global" and "BYPASS" in words:
            flags = _PAST_L1
        if item.base == "ATOMS" and "POPC" in words:
            flags |= _COUNTS_LANES
        if item.base == "LDSM":
            width = 4
            flags = {"4": 0, "2": 2}.get(words[-1], 4)
        if site.space == "copy":
            width, group, flags = min(255, index), way_of(item), int(item.base.startswith("UBLK"))
        elif site.space == "mbarrier":
            flags = int(tracer.number >= _RESERVES)
        elif not packs:
            flags |= _WITHOUT_CONFLICT if item.base in ("LDS", "LD") else _ALONE
        sites[index] = _SPACES[site.space], width, group, flags
    firsts = np.zeros(len(tracer.of_block) + 1, np.uint32)
    firsts[1:] = np.cumsum([len(tracer.of_block[block]) for block in sorted(tracer.of_block)])
    return Named(sites, firsts)


def class_of(named: Named, warps: list[NDArray[np.uint32]]) -> Class:
    """The streams of one traced CTA."""
    # Each local word of a lane is in a line of its own.
    own = named.sites[named.sites[:, 0] == _SPACES["local"], 1]
    most = min(_MOST_LINES, 32 * int(own.max(initial=1)))
    accesses = sum(map(len, warps)) // 32 + 1
    largest = 1 << max(10, (2 * min(accesses * most, 1 << 22)).bit_length())
    # A table for all lines that are possible must be cleared, which costs more than to try a small table first.
    cells = min(largest, _FIRST_CELLS)
    while True:
        made = _class_within(named, warps, cells, accesses * max(64, most + 1))
        if made is not None:
            return made
        if cells == largest:
            raise NotRun("a CTA touches more lines of memory than are told apart")
        cells = min(largest, 8 * cells)


def _class_within(named: Named, warps: list[NDArray[np.uint32]], cells: int, words: int) -> Class | None:
    """As ``class_of``, with a table of ``cells`` cells and room for ``words`` words of accesses; ``None`` if the CTA touches more
    lines."""
    table = _Lines(named, cells)
    stream, starts = table.streams(warps, words)
    if table.unique is None:
        return None
    named.keep(table.given)
    return Class(stream, starts, *table.found())


def classes_together(named: Named, ctas: list[list[NDArray[np.uint32]]]) -> tuple[Class, ...]:
    """Traced CTAs with one numbering of the lines of all, so that the same line of global memory has the same number in each.
    Raises ``NotRun`` if they touch more lines than are told apart."""
    sites = named.sites
    own = sites[:, 0] == _SPACES["local"]
    sites[:, 2] = 0
    accesses = [sum(map(len, warps)) // 32 + 1 for warps in ctas]
    room = 1 + min(_MOST_LINES, 32 * int(sites[own, 1].max(initial=1)))
    cells = _FIRST_CELLS
    while True:
        table, streams = _Lines(named, cells), []
        for number, (warps, count) in enumerate(zip(ctas, accesses)):
            # Local memory of a CTA is its own.
            sites[own, 2] = LOCAL_GROUP + number % (GROUPS - LOCAL_GROUP)
            streams.append(table.streams(warps, count * max(64, room)))
        if table.unique is not None:
            break
        if cells >= _MOST_CELLS:
            raise NotRun("its CTAs touch more lines of memory than are told apart")
        cells *= 8
    named.keep(table.given)
    stream, starts = streams[0]
    first = Class(stream, starts, *table.found())
    return first, *(
        dataclasses.replace(first, stream=stream, starts=starts) for stream, starts in streams[1:]
    )


class _Lines:
    """A table of ``cells`` cells for the lines that CTAs touch."""

    def __init__(self, named: Named, cells: int) -> None:
        self.table = np.zeros((cells, 2), np.uint64)
        self.groups, self.sectors = np.zeros((2, cells), np.uint8)
        self.lines, self.written = np.zeros(cells, np.int64), np.zeros(cells, np.uint32)
        self.scratch = np.zeros(64 + 32 * 32 * 8, np.uint64)
        self.given = named.given()
        for field, array in (
            (Stream.TABLE, self.table), (Stream.GROUPS, self.groups), (Stream.LINES, self.lines),
            (Stream.SECTORS, self.sectors), (Stream.SCRATCH, self.scratch), (Stream.WRITTEN, self.written),
        ):  # fmt: skip
            self.given[field // 8] = array.ctypes.data
        self.given[Stream.MASK // 8] = cells - 1
        #: the most accesses of a block
        self.longest = int(np.diff(named.firsts.astype(np.int64)).max(initial=0))

    @property
    def unique(self) -> int | None:
        """The number of lines; ``None`` if there are more than the table holds."""
        count, cells = int(self.given[Stream.UNIQUE // 8]), len(self.table)
        return None if count >= cells - 1 - (cells - 1 >> 2) else count

    def found(self) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.uint8], NDArray[np.uint32]]:
        """The groups, the lines, the touched sectors and the written words."""
        count = self.unique
        groups, lines = self.groups[:count].copy(), self.lines[:count].copy()
        return groups, lines, self.sectors[:count].copy(), self.written[:count].copy()

    def streams(
        self, warps: list[NDArray[np.uint32]], words: int
    ) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """The streams of the warps of a CTA, with room for ``words`` words of accesses, and where each begins."""
        room = words + sum(map(len, warps)) + 64 * len(warps) + 64
        # the room that is asked for before a block is that of its longest accesses
        stream = np.zeros(room + self.longest * MOST_OF_ACCESS // 4, np.uint32)
        self.given[Stream.OUT_ENDS // 8] = int(stream.ctypes.data) + stream.nbytes - 4
        function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(
            runtime_addresses(("sm_stream",))["sm_stream"]
        )
        starts, out = [], int(stream.ctypes.data)
        for warp, recorded in enumerate(warps):
            for field, value in (
                (Stream.WORDS, recorded.ctypes.data), (Stream.COUNT, len(recorded)), (Stream.OUT, out), (Stream.WARP, warp),
            ):  # fmt: skip
                self.given[field // 8] = value
            starts.append(out)
            out = function(int(self.given.ctypes.data))
            if not out:
                raise NotRun("its records are not whole blocks of its code, or longer than expected")
        kept = stream[: (out - int(stream.ctypes.data)) // 4].copy()
        return kept, np.array(starts, np.int64) + (int(kept.ctypes.data) - int(stream.ctypes.data))
