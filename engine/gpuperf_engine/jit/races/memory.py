"""Memory of the race detector: sizes and addresses of its records."""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from ...memory.arena import GLOBAL_BASE, Memory
from ...memory.pages import reserve
from ...simt.launch import LaunchPlan
from ...simt.program import Program
from ..host_arrays import address_of, aligned
from ..ir.abi import Context
from ..ir.race_records import (
    Accessor,
    Accessors,
    Batch,
    Batches,
    Line,
    LineRoom,
    Race,
    RaceMbarrier,
    RaceWarp,
    Segment,
    Segments,
    Window,
    Word,
)
from .checks import race_flags

__all__ = ["RaceMemory"]

#: a number after those of all lines of global memory
_NO_LINE = (1 << 63) - 1
#: approximate limit of bytes of CTA records that are kept for later launches
_MOST_KEPT = 1 << 25
#: number of kept ``_Batches``, and bytes of batches with small pages
_FEW, _SMALL = 2, 1 << 20
#: the maximum number of adjacent words that one instruction accesses
_ROW = 512


class _Kept:
    """Records of CTAs that have ended, by their shape, for later launches. ``bytes``: of all of them, approximately if host threads
    launch at the same time."""

    def __init__(self) -> None:
        self._alike: dict[tuple[int, ...], list[NDArray[np.uint8]]] = {}
        self.bytes = 0

    def take(self, shape: tuple[int, ...]) -> NDArray[np.uint8] | None:
        """A record of this shape, which is kept no longer; ``None`` if there is none."""
        try:
            record = self._alike.get(shape, []).pop()
        except IndexError:
            return None
        self.bytes -= record.nbytes
        return record

    def put(self, shape: tuple[int, ...], records: list[NDArray[np.uint8]]) -> list[NDArray[np.uint8]]:
        """Keep records, without all earlier ones if these are many. Returns all of this shape."""
        if self.bytes > _MOST_KEPT:
            self._alike.clear()
            self.bytes = 0
        alike = self._alike.setdefault(shape, [])
        alike += records
        self.bytes += sum(record.nbytes for record in records)
        return alike


_kept = _Kept()


class _Batches:
    """Memory for batches of words, see ``Context.RACE_BITS``. ``words``: the number of words of global memory."""

    def __init__(self, words: int) -> None:
        self.words = words
        # whole blocks, up to the 64-bit word after that of the last word
        self.bits = reserve((words // 8 + 32 >> Batches.BLOCK) + 1 << Batches.BLOCK)
        self.numbers = reserve(4 * words + 64)
        # the first batches have small pages, as most launches need only a few
        self.rows = reserve(Batches.BYTES, _SMALL)
        self._known = self.rows[: Batches.LAST].view(np.int64)
        self._launch = 0
        self._begin()

    @classmethod
    def of(cls, words: int) -> _Batches:
        """Reused batches of an earlier launch, whose pages are committed, or new ones."""
        try:
            return _kept_batches.get(words, []).pop()
        except IndexError:
            return cls(words)

    @property
    def count(self) -> int:
        return int(self._known[Batches.NEXT // 8]) - 1

    @property
    def accesses(self) -> int:
        """The number of checked accesses of warps."""
        return int(self._known[Batches.ACCESSES // 8])

    def keep(self) -> None:
        """Keep the batches for another launch, unless they use much memory or enough others are kept."""
        lowest, highest = self._known[Batches.LOWEST // 8 : Batches.HIGHEST // 8 + 1].tolist()
        numbered = 4 * (highest - lowest) * (self._known[Batches.NUMBERED // 8] > 1)
        kept = _kept_batches.setdefault(self.words, [])
        if self.count * (Batches.PLACES_BYTES + Batch.BYTES) + numbered > _MOST_KEPT or len(kept) >= _FEW:
            return
        first, last = (place // 8 >> Batches.BLOCK for place in (lowest, highest))
        self.bits[first << Batches.BLOCK : last + 1 << Batches.BLOCK] = 0
        self._begin()
        kept.append(self)

    def _begin(self) -> None:
        """Reset: no word has been accessed."""
        self._launch = (self._launch + 1) % Batches.APART
        self._known[Batches.LEFT // 8] = Batches.APART | self._launch
        self._known[Batches.NEXT // 8] = self._known[Batches.NUMBERED // 8] = 1
        self._known[Batches.ACCESSES // 8] = 0
        self._known[Batches.LOWEST // 8], self._known[Batches.HIGHEST // 8] = self.words, 0


#: kept batches, by the number of words of global memory
_kept_batches: dict[int, list[_Batches]] = {}


def _known(program: Program, flags: NDArray[np.uint16]) -> tuple[int, int]:
    """The bits that any site has, and the host address of all of them. Launches often have the flags of the previous one."""
    last = program.kernel.memo.get("race kinds")
    if not (isinstance(last, tuple) and last[0] is flags):
        last = program.kernel.memo["race kinds"] = flags, int(np.bitwise_or.reduce(flags)), address_of(flags)
    return last[1], last[2]


class RaceMemory:
    """The memory of one launch for race detection; ``checked`` is false if nothing is checked."""

    #: whether CTAs may order accesses of one another
    orders = False
    checked = False
    _windows = _by_words = _proxies = False
    #: the logarithm of the bytes of a word
    _unit = 2
    _counts: NDArray[np.int64] | None = None
    _batches: _Batches | None = None
    _segments: NDArray[np.uint8] | None = None

    def __init__(self, program: Program, plan: LaunchPlan, memory: Memory) -> None:
        self._plan, self._memory = plan, memory
        #: bits of ``Race`` for each site
        self.flags = race_flags(program, plan, memory)
        kinds, self.sites = _known(program, self.flags)
        #: whether anything is checked or ordered
        self.any = kinds != 0
        #: fields of ``Context`` that are not 0, other than ``RACE_SITES``
        self.fields: dict[int, int] = {}
        if kinds:
            self._prepare(kinds, program.order_free)

    def _prepare(self, kinds: int, order_free: bool) -> None:
        # races between CTAs, and whether one may wait for another; races between warps of a CTA
        among = bool(kinds & Race.AMONG)
        self.orders = among and not order_free
        self._windows = bool(kinds & Race.WITHIN) and not self.orders
        self._by_words = bool(kinds & Race.WORDS)
        self._unit = 0 if kinds & Race.OF_BYTES else 1 if kinds & Race.OF_HALVES else 2
        self._proxies = bool(kinds & Race.ASYNC_PROXY)
        self.checked = self._windows or self.orders or bool(kinds & Race.CHECKED)
        if self.orders:
            self._segments = self._memory.race_segments(Segment.MOST * Segment.BYTES)
        if among or self._windows:
            self.fields = self._lines(among)
        if self.checked:
            self._sizes = self._record_sizes()
            self._shape = *self._sizes, self._plane, self._plan.warps_per_cta, self._windows, self.orders

    def _lines(self, among: bool) -> dict[int, int]:
        """Fields of ``Context`` for the lines and words of global memory."""
        fields: dict[int, int] = {
            Context.RACE_FIRST: self._memory.race_numbers(self._plan.ctas),
            Context.RACE_FROM: GLOBAL_BASE,
            Context.RACE_SPAN: self._memory.global_span,
            Context.RACE_LOWEST: _NO_LINE,
            Context.RACE_RELEASES: 1,
        }
        if among:
            lines = self._memory.race_lines(Line.BYTES, Line.CELL + LineRoom.BYTES)
            rooms = len(lines) // (Line.CELL + LineRoom.BYTES) * Line.CELL
            start = address_of(lines)
            fields[Context.RACE_LINES], fields[Context.RACE_ROOMS] = start, start + rooms
        if self._segments is not None:
            fields[Context.RACE_SEGMENTS] = address_of(self._segments)
        if self._by_words:
            fields |= self._words()
        return fields

    def _words(self) -> dict[int, int]:
        """The same for words."""
        span, unit = self._memory.global_span, self._unit
        self._batches = batches = _Batches.of(span >> unit)
        fields: dict[int, int] = {
            Context.RACE_BITS: address_of(batches.bits),
            Context.RACE_NUMBERS: address_of(batches.numbers),
            Context.RACE_BATCHES: address_of(batches.rows),
            Context.RACE_UNIT: unit,
            # word numbers in batches have four bytes, including those of a row after the last word
            Context.RACE_BATCHED: min(span, ((1 << 32) - _ROW) << unit),
        }
        if self.orders:
            return fields
        words, accessors, cells = self._memory.race_words(
            (span >> unit) * Word.BYTES,
            Accessors.ROWS + (Word.NUMBERS + 1) * Accessor.BYTES,
            Word.MOST_SHARED * (Line.CELL + LineRoom.BYTES),
            most=Word.NUMBERS // 2,
        )
        counts = accessors[: Accessors.ROWS].view(np.int64)
        counts[Accessors.NEXT // 8] = max(1, counts[Accessors.NEXT // 8])
        counts[Accessors.CELLS // 8] = 0
        self._counts = counts
        return fields | {
            Context.RACE_ACCESSORS_FROM: int(counts[Accessors.NEXT // 8]),
            Context.RACE_WORDS: address_of(words),
            Context.RACE_ACCESSORS: address_of(accessors),
            Context.RACE_CELLS: address_of(cells),
        }

    @property
    def batches(self) -> int:
        """The number of batches of words, if words are in batches."""
        return self._batches.count if self._batches is not None and self.fields.get(Context.RACE_BITS) else 0

    @property
    def batched(self) -> int:
        """The number of accesses of warps checked by batches of words, which take several times as long if words are locked."""
        return (
            self._batches.accesses if self._batches is not None and self.fields.get(Context.RACE_BITS) else 0
        )

    def lock_lines(self) -> bool:
        """Prepare for several threads: each locks the lines and words of global memory that it checks. Returns whether there are
        any."""
        lines = Context.RACE_LINES in self.fields
        if lines:
            self.fields[Context.RACE_LOCKED] = 1
            self.fields[Context.RACE_BITS] = 0
        return lines

    @property
    def pairs_unsettled(self) -> bool:
        """Whether lines have accesses that must be compared after the launch."""
        return Context.RACE_LINES in self.fields and not self.orders

    @property
    def shared_words(self) -> int:
        """The number of words with separate cells that several CTAs accessed."""
        return 0 if self._counts is None else min(int(self._counts[Accessors.CELLS // 8]), Word.MOST_SHARED)

    # ------------------------------------------------------------------------------------------------ records of a CTA

    def _record_sizes(self) -> tuple[int, int, int]:
        """Distance between the times of a clock, bytes of a clock, and bytes of all clocks and records of a CTA."""
        if self._plan.cluster_ctas == 1:
            step, clock = 1, 512
        else:
            step = 1 << (self._plan.cluster_ctas - 1).bit_length()
            clock = step * Race.PEER
        clock *= 1 + self._proxies
        warps = self._plan.warps_per_cta * (RaceWarp.CLOCK + 2 * clock)
        records = Race.MOST_MBARRIERS * (RaceMbarrier.ARRIVING + 2 * clock) + warps
        return step, clock, Race.CLOCKS_COUNT * clock + records

    @property
    def _plane(self) -> int:
        return -(-self._plan.shared_bytes // 64) * 64 + 320

    @property
    def shape(self) -> tuple[int, ...]:
        """The key of interchangeable records of CTAs; empty if nothing is checked."""
        return (*self._shape, int(self._proxies)) if self.checked else ()

    @property
    def _room(self) -> int:
        """Bytes of the clocks of a CTA and of the shadow of its shared memory."""
        return Race.CLOCKS + self._sizes[2] + Race.PLANES_COUNT * self._plane

    @property
    def _extra(self) -> int:
        """Bytes for a CTA's accesses to global memory."""
        return self.orders * Segments.BYTES + self._windows * Window.BYTES

    def records(self) -> NDArray[np.uint8]:
        """Records of a CTA: zeros, or those of an earlier CTA, which compiled code resets; empty if nothing is checked."""
        if not self.checked:
            return aligned(0)
        kept = _kept.take(self._shape)
        if kept is None:
            return aligned(self._room + self._extra)
        if self._plan.cluster_ctas > 1:
            kept[Race.CLOCKS + self._sizes[2] : self._room] = 0
        if self._windows:
            # tags contain CTA numbers, which are only unique per device
            kept[self._room + Window.TAGS :][: Window.LINES * 8].fill(0)
        return kept

    def end(self) -> None:
        """The launch has ended."""
        if self._batches is not None:
            self._batches.keep()

    def keep(self, records: list[NDArray[np.uint8]]) -> None:
        """Keep records of CTAs that have ended for later launches."""
        alike = _kept.put(self._shape, records)
        if self._plan.cluster_ctas == 1:
            return
        # any of these records may be combined in a cluster, so all begin after every time in their clocks
        now = max((struct.unpack_from("<q", record, Race.NOW)[0] for record in alike), default=0)
        for record in alike:
            struct.pack_into("<q", record, Race.NOW, now)

    def lay_out(self, records: NDArray[np.uint8], cta: int) -> None:
        """Set the fields of ``Race`` in the records of a CTA, whose own record is at the address ``cta``."""
        if struct.unpack_from("<q", records, Race.NOW)[0]:  # the others are those of an earlier CTA
            struct.pack_into("<q", records, Race.CTA, cta)
            return
        step, clock, room = self._sizes
        start, mbarrier, warp = (
            address_of(records),
            RaceMbarrier.ARRIVING + 2 * clock,
            RaceWarp.CLOCK + 2 * clock,
        )
        mbarriers = start + Race.CLOCKS + Race.CLOCKS_COUNT * clock
        fields = {
            Race.PLANES: start + Race.CLOCKS + room,
            Race.PLANE: self._plane,
            Race.AGENTS: self._plan.warps_per_cta,
            Race.STEP: step,
            Race.CLOCK_BYTES: clock,
            Race.WARPS: mbarriers + Race.MOST_MBARRIERS * mbarrier,
            Race.WARP: warp,
            Race.MBARRIERS: mbarriers,
            Race.MBARRIER: mbarrier,
            Race.ROOM: room,
            Race.CTA: cta,
            Race.TWIN: clock // 2 * self._proxies,
            Race.WINDOW: (start + self._room) * self._windows,
            Race.SEGMENTS: (start + self._room) * self.orders,
        }
        for offset, value in fields.items():
            struct.pack_into("<q", records, offset, value)

    # --------------------------------------------------------------------------------------------------------- results

    @staticmethod
    def spans_lines(lowest: int) -> bool:
        """Whether any line was accessed by CTAs that may have run concurrently; ``lowest``: the minimum of ``RACE_LOWEST``."""
        return lowest < _NO_LINE
