"""Records of accessed values in NumPy; ``simt.value_records`` defines them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..memory.arena import GLOBAL_BASE, LOCAL_WINDOW, SHARED_WINDOW, WINDOW_BYTES, Memory
from ..results import ValueRecord
from ..simt.dead_stores import traces_stores
from ..simt.program import Program
from ..simt.value_records import (
    ANCHORED,
    BATCHES,
    BROKEN,
    FAR,
    LINE_TRIAL,
    LINES,
    MOST_SAMPLED,
    SLOPED,
    TOLERANCE,
    TOP,
    Carried,
    ValueKind,
    ValueSlot,
    describe,
    hashed,
    heavy,
    key_of,
    load_place,
    merged,
    object_namer,
    tallied,
    value_slots,
)
from .values import Lanes

__all__ = ["ValueRecorder"]


@dataclass(slots=True)
class _Object:
    """The object that the lanes of a batch access: ``space`` as in ``Carried``, and its bytes."""

    space: int
    start: int
    size: int
    tracked: bool = False
    axes: tuple[int, int] = (0, 0)
    #: in global memory, neither from ``malloc`` nor host memory
    writable: bool = False


@dataclass(slots=True)
class _Load:
    """A load of a warp, by lane."""

    warp: int
    size: int
    lanes: Lanes
    addresses: Lanes
    values: Lanes


@dataclass(slots=True)
class _Record:
    carried: Carried
    kind: ValueKind
    #: batches that are not reduced yet: lanes, indices of elements, and words
    batches: list[tuple[Lanes, Lanes, Lanes]] = field(default_factory=list)
    #: how often each value of 8 bits occurred
    tally: Counter[int] = field(default_factory=Counter)
    #: hashes up to ``highest``
    sample: set[int] = field(default_factory=set)
    highest: int = 0
    #: along each axis, the minimum distance from the first access of the line at which the slope is fitted again; 1: not fitted yet
    farther: list[int] = field(default_factory=list)
    #: whether all floats are near the first value; if so, by lane the sums of differences from it and of their squares
    near: bool = True
    reference: float | None = None
    differences: Lanes = field(default_factory=lambda: np.zeros(32))
    squares: Lanes = field(default_factory=lambda: np.zeros(32))


class ValueRecorder:
    """The records of one launch."""

    def __init__(self, program: Program, memory: Memory) -> None:
        self.program = program
        self.memory = memory
        self.slots = value_slots(program)
        self._records: dict[tuple[int, int, int], _Record] = {}
        self._loads: dict[int, _Load] = {}
        self._traced = traces_stores(program)
        #: by start of an object, the last store to each of its bytes: slot + 1 + thread << 16, or 0
        self._last: dict[int, Lanes] = {}

    def records(self, uninitialized: Collection[int]) -> tuple[ValueRecord, ...]:
        """The records; ``uninitialized`` are the sites that read uninitialised memory."""
        for record in self._records.values():
            _reduce(record)
        records = (record.carried for record in self._records.values())
        return describe(self.program, records, object_namer(self.memory), uninitialized, self._traced)

    def add(
        self,
        slot: ValueSlot,
        space: str,
        lanes: Lanes,
        addresses: Lanes,
        values: Lanes,
        stores: bool,
        loader: int,
        warp: int = 0,
        strong: bool = False,
        part: int = 0,
    ) -> None:
        """Add one element of an access. ``addresses`` and ``values`` are those of the active ``lanes``, in order; ``stores``: it is
        about to be stored, by ``warp`` (its number in the launch + 1), ``strong`` or not; ``loader``: that number for a load that
        may be redundant, else 0; ``part``: its index in a word whose first slot stands for stores to the whole word."""
        kind = slot.kind
        size = kind.bits // 8
        if slot.element:
            addresses = addresses + np.uint64(slot.element * size)
        raw = values.view(f"u{size}")
        signed = values.view(f"i{size}") if kind.kind == "s" else raw
        words = signed.astype(f"{'i' if kind.kind == 's' else 'u'}{kind.word // 8}").view(
            f"u{kind.word // 8}"
        )
        while addresses.size:
            target = self._object(space, int(addresses[0]), size)
            if target is None:
                lanes, addresses, raw, words = lanes[1:], addresses[1:], raw[1:], words[1:]
                continue
            offsets = addresses - np.uint64(target.start)
            inside = offsets <= np.uint64(target.size - size)
            record = self._record(slot, target)
            if stores and not target.space:
                record.carried.silent += self._silent(addresses[inside], raw[inside], size, target.tracked)
            if self._traced and target.writable:
                stored = (warp, strong, slot.index + 1 - part) if stores else None
                self._trace(record, lanes[inside], offsets[inside], size, stored)
            record.batches.append(
                (lanes[inside], (offsets[inside] // np.uint64(size)).astype(np.int64), words[inside])
            )
            if len(record.batches) == BATCHES:
                _reduce(record)
            if loader and not target.space:
                record.carried.reloads += self._reloads(
                    loader, lanes[inside], addresses[inside], raw[inside], size
                )
            lanes, addresses = lanes[~inside], addresses[~inside]
            raw, words = raw[~inside], words[~inside]

    def add_range(
        self, site: int, address: int, size: int, operands: Lanes | None = None, chosen: int = 0xFFFF
    ) -> None:
        """Add bytes of device memory that a bulk copy moved or reduced, as elements: those that are complete, and all of whose
        bytes are in the byte mask ``chosen`` (16 bits)."""
        for slot in self.slots.get(site, ()):
            width = slot.kind.bits // 8
            begin = -address % width
            count = max(0, size - begin) // width
            first = address - self.memory.origin
            moved = self.memory.bytes[first : first + size] if operands is None else operands
            values = moved[begin : begin + count * width].view(f"u{width}")
            numbers = np.arange(count, dtype=np.uint64)
            addresses = np.uint64(address + begin) + np.uint64(width) * numbers
            every = (1 << width) - 1
            whole = (chosen >> (numbers.astype(np.int64) * width % 16)) & every == every
            for start in range(0, count, 32):
                lanes = np.flatnonzero(whole[start : start + 32])
                self.add(slot, "global", lanes, addresses[start + lanes], values[start + lanes], False, 0)

    def add_pieces(self, site: int, number: int, addresses: Lanes, pieces: Lanes) -> None:
        """Add pieces of 16 bytes of a matrix that a product reads from shared memory; A is its first operand, B the second."""
        slots = self.slots.get(site, ())
        for slot in slots[number : number + 1]:
            width = slot.kind.bits // 8
            lanes = np.arange(16 // width)
            # ``add`` adds the offset of the element
            offsets = np.uint64(width) * (lanes.astype(np.uint64) - np.uint64(slot.element))
            for address, piece in zip(addresses, pieces):
                values = np.ascontiguousarray(piece).view(f"u{width}")
                self.add(slot, "shared", lanes, address + offsets, values, False, 0)

    def _object(self, space: str, address: int, size: int) -> _Object | None:
        if space in ("shared", "local"):
            return _Object(1 if space == "shared" else 2, 0, 1 << 40)
        if space == "generic":
            for number, start in ((1, SHARED_WINDOW), (2, LOCAL_WINDOW)):
                if start <= address < start + WINDOW_BYTES:
                    return _Object(number, start, WINDOW_BYTES)
        allocation = self.memory.resolve(address, size)
        if allocation is None:
            return None
        writable = allocation.kind == "global" and GLOBAL_BASE <= address < self.memory.heap.start
        tracked = not allocation.initialized
        return _Object(0, allocation.address, allocation.size, tracked, allocation.axes, writable)

    def _record(self, slot: ValueSlot, target: _Object) -> _Record:
        key = slot.index, target.space, target.start
        record = self._records.get(key)
        if record is None:
            record = self._records[key] = _Record(Carried(*key), slot.kind, highest=(1 << slot.kind.word) - 1)
            size, (row, plane) = slot.kind.bits // 8, target.axes
            if row and row % size == 0:
                record.carried.row = row // size
                record.carried.plane = plane // size if plane else FAR - 1
        return record

    def _reloads(self, warp: int, lanes: Lanes, addresses: Lanes, raw: Lanes, size: int) -> int:
        """The number of lanes that repeat a previous load; stores the load."""
        own = _Load(warp, size, np.zeros(32, bool), np.zeros(32, np.uint64), np.zeros(32, raw.dtype))
        own.lanes[lanes], own.addresses[lanes], own.values[lanes] = True, addresses, raw
        slot = load_place(int(addresses[0]), int(addresses[-1]), warp)
        known = self._loads.get(slot)
        self._loads[slot] = own
        if known is None or (known.warp, known.size) != (warp, size):
            return 0
        same = (known.addresses == own.addresses) & (known.values == own.values)
        return int((known.lanes & own.lanes & same).sum())

    def _trace(
        self, record: _Record, lanes: Lanes, offsets: Lanes, size: int, stored: tuple[int, bool, int] | None
    ) -> None:
        """Update the last stores to these elements, which are read, or stored by a warp, strongly or not. Counts the previous store as
        dead if this one overwrites it."""
        start = record.carried.start
        last = self._last.get(start)
        if last is None:
            if stored is None:
                return
            allocation = self.memory.resolve(start)
            assert allocation is not None
            last = self._last[start] = np.zeros(allocation.size, np.int64)
        bytes = offsets.astype(np.int64)[:, None] + np.arange(size)
        if stored is None:
            last[bytes] = 0
            return
        warp, strong, overwriter = stored
        threads = (32 * warp + lanes.astype(np.int64))[:, None] << 16
        before, slot = last[bytes], record.carried.slot + 1
        slots, counts = np.unique(before[before >> 16 << 16 == threads] & 0xFFFF, return_counts=True)
        for number, count in zip(slots.tolist(), counts.tolist()):
            self._records[number - 1, 0, start].carried.overwritten(overwriter, count)
        last[bytes] = 0 if strong else threads + slot

    def _silent(self, addresses: Lanes, raw: Lanes, size: int, tracked: bool) -> int:
        """The number of values that equal the contents of memory."""
        offsets = (addresses - np.uint64(self.memory.origin)).astype(np.int64)[:, None] + np.arange(size)
        same = (self.memory.bytes[offsets] == raw.reshape(-1, 1).view(np.uint8)).all(axis=1)
        if tracked:
            same &= (self.memory.shadow[offsets] != 0).all(axis=1)
        return int(same.sum())


def _reduce(record: _Record) -> None:
    """Reduce the batches into the sums."""
    if not record.batches:
        return
    words = np.concatenate([batch for *_, batch in record.batches])
    _count(record.carried, record.kind, words)
    for lanes, indices, batch in record.batches:
        _fit_line(record, indices, batch)
        if _floats(record.kind):
            _differences(record, lanes, batch)
    item = record.carried
    if item.line == SLOPED and item.seen >= LINE_TRIAL and 2 * item.fits < item.seen:
        _refit(record)
    _top(record, words)
    record.batches.clear()


def _count(item: Carried, kind: ValueKind, words: Lanes) -> None:
    word = words.dtype.type
    item.count += len(words)
    numbers = words
    if kind.is_float:
        sign = 1 << (kind.bits - 1)
        magnitude = words & word(sign - 1)
        ordered = magnitude <= word(kind.infinity)
        numbers, magnitude = words[ordered], magnitude[ordered]
        item.nans += len(words) - len(numbers)
        item.zeros += int((magnitude == 0).sum())
        item.negative_zeros += int((numbers == word(sign)).sum())
        item.ors |= int(np.bitwise_or.reduce(numbers, initial=word(0)))
        item.tiny = max(item.tiny, int((~magnitude[magnitude != 0]).max(initial=0)))
    else:
        item.zeros += int((words == 0).sum())
    keys = key_of(kind, numbers)
    item.maximum = max(item.maximum, int(keys.max(initial=0)))
    item.minimum = max(item.minimum, int((~keys).max(initial=0)))


def _floats(kind: ValueKind) -> bool:
    """Whether lines are fitted in floating point."""
    return kind.is_float and kind.fits


def _fit_line(record: _Record, indices: Lanes, words: Lanes) -> None:
    """Test the fit to an affine function of the index; halves are treated as integers."""
    item = record.carried
    if item.line == BROKEN:
        return
    if not item.line:
        item.line, item.line_index, item.line_base = ANCHORED, int(indices[0]), int(words[0])
        item.slopes, item.run, record.farther = (0, 0, 0), 1, [1, 1, 1]
    origin = _coordinates(item, np.array([item.line_index]))
    distances = [
        coordinate - start for coordinate, start in zip(_coordinates(item, indices), origin, strict=True)
    ]
    before = item.line
    if not all(_fit_slope(record, axis, distances, words) for axis in range(3)):
        _refit(record)
        return
    known = np.ones(len(words), bool)
    for of_axis, farther in zip(distances, record.farther):
        known &= (of_axis == 0) | (farther > 1)
    near = _floats_near if _floats(record.kind) else _whole_equal
    fits = int((near(record, distances, words) & known).sum())
    if before != SLOPED == item.line and 2 * fits < int(known.sum()):
        _refit(record)
        return
    item.fits += fits
    item.seen += len(words)


def _differences(record: _Record, lanes: Lanes, words: Lanes) -> None:
    """Sum the differences from the first value, as long as none exceeds its magnitude."""
    values = _doubles(record.kind, words)
    if record.reference is None:
        record.reference = float(values[0])
    with np.errstate(all="ignore"):
        off = values - record.reference
        record.near &= bool((np.abs(off) <= abs(record.reference)).all())
    if record.near:
        record.differences[lanes] += off
        record.squares[lanes] += off * off
        sums = math.fsum(record.differences), math.fsum(record.squares)
    record.carried.spread = (record.reference, *sums) if record.near else None


def _refit(record: _Record) -> None:
    """Fit another line to the next batch, unless the limit of attempts is reached."""
    item = record.carried
    item.tries += 1
    item.line = BROKEN if item.tries >= LINES else 0
    item.fits = item.seen = 0


def _coordinates(item: Carried, index: Lanes) -> list[Lanes]:
    """The coordinates of an index along each axis, the last axis first."""
    if not item.row:
        return [index, np.zeros_like(index), np.zeros_like(index)]
    rest = index % item.plane
    return [rest % item.row, rest // item.row, index // item.plane]


def _fit_slope(record: _Record, axis: int, distances: list[Lanes], words: Lanes) -> bool:
    """Fit the slope along an axis, from the last access that is far enough. Returns whether a line is possible."""
    item, kind = record.carried, record.kind
    usable = np.abs(distances[axis]) >= record.farther[axis]
    others = [other for other in range(3) if other != axis]
    for other in others:
        if record.farther[other] == 1:
            usable &= distances[other] == 0
    lanes = np.flatnonzero(usable)
    if not lanes.size:
        return True
    run, word = int(distances[axis][lanes[-1]]), words[lanes[-1]]
    beside = [int(distances[other][lanes[-1]]) for other in others]
    slopes = [*item.slopes]
    if _floats(kind):
        value, origin = _doubles(kind, word), _doubles(kind, words.dtype.type(item.line_base))
        with np.errstate(all="ignore"):
            known = np.float64(slopes[others[0]]) * beside[0] + np.float64(slopes[others[1]]) * beside[1]
            slope = (value - origin - known) / np.float64(run)
            moved = np.abs(slope - np.float64(slopes[axis])) * np.float64(record.farther[axis] >> 1)
            agrees = moved <= (np.abs(value) + np.abs(origin)) * TOLERANCE[kind.word]
        if record.farther[axis] > 1 and not agrees:
            return True
        slopes[axis], record.farther[axis] = float(slope), 2 * abs(run)
    else:
        whole = 1 << kind.word
        rise = int(word) - item.line_base - sum(int(slopes[a]) * d for a, d in zip(others, beside))
        rise %= whole
        rise -= (rise >> (kind.word - 1)) << kind.word
        # the negative of the least integer does not exist
        rise = rise if run > 0 or rise == -(whole >> 1) else -rise
        quotient, rest = divmod(rise, abs(run))
        if rest and (item.row or axis):
            return False
        slopes[axis], record.farther[axis] = (rise if rest else quotient) % whole, FAR
        item.run = abs(run) if rest else item.run
    item.line, item.slopes = SLOPED, tuple(slopes)
    return True


def _whole_equal(record: _Record, distances: list[Lanes], words: Lanes) -> Lanes:
    item, word = record.carried, words.dtype.type
    rise = word(0)
    for slope, distance in zip(item.slopes, distances):
        rise = rise + word(slope) * distance.astype(f"i{words.itemsize}").view(words.dtype)
    return np.asarray((words - word(item.line_base)) * word(item.run) == rise)


def _floats_near(record: _Record, distances: list[Lanes], words: Lanes) -> Lanes:
    item, kind = record.carried, record.kind
    values, origin = _doubles(kind, words), _doubles(kind, words.dtype.type(item.line_base))
    with np.errstate(all="ignore"):
        x, y, z = (np.float64(slope) * distance for slope, distance in zip(item.slopes, distances))
        off = np.abs(origin + (x + y + z if item.row else x) - values)
        return np.asarray(off <= (np.abs(values) + np.abs(origin)) * TOLERANCE[kind.word])


def _doubles(kind: ValueKind, words: Any) -> Any:
    """Words of a float type as doubles."""
    return np.asarray(words).view(f"f{kind.word // 8}").astype(np.float64)


def _top(record: _Record, words: Lanes) -> None:
    item = record.carried
    different, counts = np.unique(words, return_counts=True)
    batch = dict(zip(different.tolist(), counts.tolist()))
    if record.kind.bits == 8:
        record.tally.update(batch)
        tallied(item, record.tally)
        return
    if len({*item.top, *batch}) > TOP:
        batch, lost = heavy(words)
        item.top_error += lost
    item.top, less = merged(item.top, list(batch.items()))
    item.top_error += less
    hashes = hashed(different)
    chosen = hashes[(hashes <= hashes.dtype.type(record.highest)) & (hashes != 0)]
    record.sample.update(chosen.tolist())
    while len(record.sample) > MOST_SAMPLED:
        record.highest >>= 1
        item.level += 1
        record.sample = {value for value in record.sample if value <= record.highest}
    item.sampled = len(record.sample)
