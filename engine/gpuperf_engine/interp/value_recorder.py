"""Records of what accesses carry, kept in NumPy: see ``simt.value_records``, which defines them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..memory.arena import ARENA_BASE, LOCAL_WINDOW, SHARED_WINDOW, WINDOW_BYTES, Memory
from ..results import ValueRecord
from ..simt.program import Program
from ..simt.value_records import (
    ANCHORED,
    BATCHES,
    BROKEN,
    LINE_TRIAL,
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
    value_slots,
)

__all__ = ["ValueRecorder"]

Lanes = NDArray[Any]


@dataclass(slots=True)
class _Object:
    """What the lanes of a batch access: ``space`` as in ``Carried``, and the bytes that count."""

    space: int
    start: int
    size: int
    tracked: bool = False


@dataclass(slots=True)
class _Load:
    """What a warp loaded, by lane."""

    warp: int
    size: int
    lanes: Lanes
    addresses: Lanes
    values: Lanes


@dataclass(slots=True)
class _Record:
    carried: Carried
    kind: ValueKind
    #: batches that are not in the sums yet: indices of elements, and words
    batches: list[tuple[Lanes, Lanes]] = field(default_factory=list)
    #: hashes up to ``highest``
    sample: set[int] = field(default_factory=set)
    highest: int = 0


class ValueRecorder:
    """The records of one launch."""

    def __init__(self, program: Program, memory: Memory) -> None:
        self.program = program
        self.memory = memory
        self.slots = value_slots(program)
        self._records: dict[tuple[int, int, int], _Record] = {}
        self._loads: dict[int, _Load] = {}

    def records(self, uninitialized: Collection[int]) -> tuple[ValueRecord, ...]:
        """What was recorded; ``uninitialized`` are the sites that read what nobody had written."""
        for record in self._records.values():
            _reduce(record)
        records = (record.carried for record in self._records.values())
        return describe(self.program, records, object_namer(self.memory), uninitialized)

    def add(
        self,
        slot: ValueSlot,
        space: str,
        lanes: Lanes,
        addresses: Lanes,
        values: Lanes,
        stores: bool,
        loader: int,
    ) -> None:
        """One element of an access. ``addresses`` and ``values`` are those of the active ``lanes``, in order; ``stores``: it is about
        to be stored; ``loader``: the number of the warp in the launch + 1, if it is a load that could be left out, else 0."""
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
            record.batches.append(((offsets[inside] // np.uint64(size)).astype(np.int32), words[inside]))
            if len(record.batches) == BATCHES:
                _reduce(record)
            if loader and not target.space:
                record.carried.reloads += self._reloads(
                    loader, lanes[inside], addresses[inside], raw[inside], size
                )
            lanes, addresses = lanes[~inside], addresses[~inside]
            raw, words = raw[~inside], words[~inside]

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
        return _Object(0, allocation.address, allocation.size, not allocation.initialized)

    def _record(self, slot: ValueSlot, target: _Object) -> _Record:
        key = slot.index, target.space, target.start
        record = self._records.get(key)
        if record is None:
            record = self._records[key] = _Record(Carried(*key), slot.kind, highest=(1 << slot.kind.word) - 1)
        return record

    def _reloads(self, warp: int, lanes: Lanes, addresses: Lanes, raw: Lanes, size: int) -> int:
        """How many lanes load what they have loaded before; the load is remembered."""
        own = _Load(warp, size, np.zeros(32, bool), np.zeros(32, np.uint64), np.zeros(32, raw.dtype))
        own.lanes[lanes], own.addresses[lanes], own.values[lanes] = True, addresses, raw
        place = load_place(int(addresses[0]), int(addresses[-1]), warp)
        known = self._loads.get(place)
        self._loads[place] = own
        if known is None or (known.warp, known.size) != (warp, size):
            return 0
        same = (known.addresses == own.addresses) & (known.values == own.values)
        return int((known.lanes & own.lanes & same).sum())

    def _silent(self, addresses: Lanes, raw: Lanes, size: int, tracked: bool) -> int:
        """How many of the values are there already."""
        offsets = (addresses - np.uint64(ARENA_BASE)).astype(np.int64)[:, None] + np.arange(size)
        same = (self.memory.bytes[offsets] == raw.reshape(-1, 1).view(np.uint8)).all(axis=1)
        if tracked:
            same &= (self.memory.shadow[offsets] != 0).all(axis=1)
        return int(same.sum())


def _reduce(record: _Record) -> None:
    """Take the batches into the sums."""
    if not record.batches:
        return
    words = np.concatenate([batch for _, batch in record.batches])
    _count(record.carried, record.kind, words)
    for indices, batch in record.batches:
        _line(record.carried, record.kind, indices, batch)
    _give_up(record.carried)
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
    """Whether lines are those of floats."""
    return kind.is_float and kind.fits


def _line(item: Carried, kind: ValueKind, indices: Lanes, words: Lanes) -> None:
    """Fits to the line through the first access and the first one at another index; of halves it is one through their bits."""
    if not item.line:
        item.line, item.line_index, item.line_base = ANCHORED, int(indices[0]), int(words[0])
    distance = indices - np.int32(item.line_index)
    elsewhere = np.flatnonzero(distance)
    if item.line == ANCHORED and elsewhere.size:
        last = elsewhere[-1]
        _slope(item, kind, int(distance[last]), words[last])
    if item.line == BROKEN:
        return
    base = words.dtype.type(item.line_base)
    if not _floats(kind):
        slope = words.dtype.type(int(item.line_slope) % (1 << kind.word))
        item.fits += int(
            (base + slope * distance.astype(f"i{words.itemsize}").view(words.dtype) == words).sum()
        )
        return
    values = words.view(f"f{kind.word // 8}").astype(np.float64)
    origin = np.array(base).view(f"f{kind.word // 8}").astype(np.float64)[()]
    off = np.abs(origin + np.float64(item.line_slope) * distance.astype(np.float64) - values)
    item.fits += int((off <= (np.abs(values) + np.abs(origin)) * TOLERANCE[kind.word]).sum())


def _give_up(item: Carried) -> None:
    if item.count >= LINE_TRIAL and 2 * item.fits < item.count:
        item.line = BROKEN


def _slope(item: Carried, kind: ValueKind, run: int, word: Any) -> None:
    if _floats(kind):
        value, base = (
            np.array(bits, word.dtype).view(f"f{kind.word // 8}").astype(np.float64)[()]
            for bits in (word, item.line_base)
        )
        item.line, item.line_slope = SLOPED, float((value - base) / run)
        return
    rise = (int(word) - item.line_base) % (1 << kind.word)
    rise -= (rise >> (kind.word - 1)) << kind.word
    quotient, rest = divmod(rise, run)
    item.line, item.line_slope = (BROKEN, 0) if rest else (SLOPED, quotient % (1 << kind.word))


def _top(record: _Record, words: Lanes) -> None:
    item = record.carried
    different, counts = np.unique(words, return_counts=True)
    batch = dict(zip(different.tolist(), counts.tolist()))
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
