"""Records of accessed values in the memory of compiled code, and their conversion after a launch."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..memory.arena import GLOBAL_BASE, Memory
from ..results import ValueRecord
from ..simt.dead_stores import traces_stores
from ..simt.program import Program
from ..simt.value_records import (
    LOADS,
    TALLIED,
    TOP,
    Carried,
    ValueKind,
    describe,
    object_namer,
    tallied,
    value_slots,
)
from .host_arrays import address_of, aligned
from .ir.abi import Context
from .ir.access_records import ValueLoad, ValueRow, Values

__all__ = ["LaunchValues"]

#: takes rows into the sums of a record: context, record
_Reduce = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)


class LaunchValues:
    """The records of one launch. They are initially zero, so that unused ones are not committed."""

    def __init__(self, program: Program, memory: Memory) -> None:
        self.program = program
        shapes = [(item.address, *item.axes) for item in memory.allocations if item.axes[0]]
        self._shapes = np.array([*shapes, (0, 0, 0)], dtype=np.uint64)
        slots = value_slots(program)
        self.kinds = [slot.kind for of_site in slots.values() for slot in of_site]
        self._rows = aligned(ValueRow.BYTES * max(1, len(self.kinds)))
        self._records = aligned(Values.ROOM)
        self._loads = aligned(ValueLoad.BYTES * LOADS)
        #: what the context is told
        self.traces = traces_stores(program)
        shadow = memory.store_shadow() if self.traces else None
        self.fields: dict[int, int] = {
            Context.VALUE_ROWS: address_of(self._rows),
            Context.VALUE_RECORDS: address_of(self._records),
            Context.VALUE_LOADS: address_of(self._loads),
            Context.VALUE_SHAPES: address_of(self._shapes),
            Context.VALUE_USED: 0,
            Context.VALUE_ROOM: Values.ROOM,
            Context.VALUE_LEFT_OUT: 0,
            Context.STORE_WORDS: 0,
        }
        if shadow is not None:
            self._shadow = shadow
            self.fields |= {
                Context.STORE_WORDS: address_of(shadow.words) - 2 * GLOBAL_BASE,
                Context.STORE_BYTES: address_of(shadow.bytes) - 8 * GLOBAL_BASE,
                Context.STORE_OBJECTS: address_of(shadow.objects) - GLOBAL_BASE // 32,
                Context.STORE_EPOCH: shadow.epoch << shadow.EPOCH,
                Context.STORE_FROM: GLOBAL_BASE,
                Context.STORE_SPAN: memory.heap.start - GLOBAL_BASE,
            }

    @property
    def note(self) -> tuple[str, ...]:
        """A note if there were too few records."""
        kernel = self.program.kernel
        return (
            f"{kernel.span}: {kernel.name!r} accesses more objects than {Values.ROOM >> 20} MiB of records suffice for, each "
            "instruction's counted by itself: what further ones carry is not recorded",
        )

    def records(
        self, context: int, used: int, memory: Memory, uninitialized: Collection[int], complete: bool
    ) -> tuple[ValueRecord, ...]:
        """The records in the first ``used`` bytes, of the worker with the context at that address; ``uninitialized`` are the sites
        that read uninitialised memory; ``complete``: whether all records fitted."""
        traced = self.traces and complete
        read = self._read(context, used)
        return describe(self.program, read, object_namer(memory), uninitialized, traced)

    def _read(self, context: int, used: int) -> Iterator[Carried]:
        start, base = 0, address_of(self._records)
        of_word: dict[int, list[int]] = {32: [], 64: []}
        while start < used:
            head = self._records[start : start + Values.MINIMUM].view(np.int64).tolist()
            if head[Values.ROWS // 8]:
                _reducing(head[Values.REDUCE // 8])(context, base + start)
            of_word[self.kinds[head[Values.SLOT // 8]].word].append(start)
            start += head[Values.SIZE // 8]
        for word, starts in of_word.items():
            if starts:
                raw = np.stack([self._records[start : start + Values.LANES] for start in starts])
                for start, item in zip(starts, _carried(self.kinds, word, raw)):
                    if self.kinds[item.slot].bits == 8:
                        self._tally(start, item)
                    yield item

    def _tally(self, start: int, item: Carried) -> None:
        """Add a record's counts of 8-bit values to its result."""
        counts = item.top
        if self._records[start + Values.MANY]:
            table = self._records[start + Values.TABLE :][: 8 * TALLIED].view(np.int64)
            found = np.flatnonzero(table).astype(np.uint8)
            words = found.astype(np.int8).astype(np.int32) if self.kinds[item.slot].kind == "s" else found
            counts = dict(zip(words.astype(np.uint32).tolist(), table[found].tolist()))
        tallied(item, counts)


@lru_cache(64)
def _reducing(address: int) -> Callable[[int, int], None]:
    return _Reduce(address)


def _carried(kinds: Sequence[ValueKind], word: int, raw: NDArray[np.uint8]) -> Iterator[Carried]:
    """Records of words of so many bits, from their bytes: [records, ``Values.LANES``]."""
    fields = raw.view(_FIELDS)[:, 0].tolist()
    mask = (1 << word) - 1
    rest = zip(raw, fields, _tops(raw, mask), _over_lanes(raw, word))
    for record, values, top, (minimum, maximum, highest, set_bits) in rest:
        (
            slot, space, start, count, zeros, negative_zeros, nans, silent, reloads, line, line_index, line_base, run, axis, plane,
            tries, fits, seen, near, reference, top_error, level, sampled, dead, overwriter, *slopes,
        ) = values  # fmt: skip
        yield Carried(
            slot=slot,
            space=space,
            start=start,
            count=count,
            zeros=zeros,
            negative_zeros=negative_zeros,
            nans=nans,
            silent=silent,
            reloads=reloads,
            minimum=minimum,
            maximum=maximum,
            ors=set_bits,
            # the least magnitude with the other sign
            tiny=highest - 1 if highest else 0,
            line=line,
            line_index=line_index,
            line_base=line_base & mask,
            slopes=tuple(slopes[3:])
            if kinds[slot].is_float
            else (slopes[0] & mask, slopes[1] & mask, slopes[2] & mask),
            run=run,
            row=axis,
            plane=plane,
            tries=tries,
            fits=fits,
            seen=seen,
            spread=(reference, *_spread(record)) if near == Values.NEAR else None,
            top_error=top_error,
            top=top,
            level=level,
            sampled=sampled,
            dead=dead,
            overwriter=overwriter,
        )


def _over_lanes(raw: NDArray[np.uint8], word: int) -> Iterator[tuple[int, int, int, int]]:
    """For each record, the maximum over lanes of ``Values.MINIMUM``, ``MAXIMUM`` and ``TINY``, and the union of their ``ORS``."""
    type = np.dtype(f"u{word // 8}")

    def lanes(offset: int) -> NDArray[Any]:
        return raw[:, offset : offset + 32 * type.itemsize].view(type)

    bounds = [lanes(offset).max(axis=1).tolist() for offset in (Values.MINIMUM, Values.MAXIMUM, Values.TINY)]
    return zip(*bounds, np.bitwise_or.reduce(lanes(Values.ORS), axis=1).tolist())


def _tops(raw: NDArray[np.uint8], mask: int) -> Iterator[dict[int, int]]:
    """For each record, the counts of its most frequent values, by their bits."""
    tops, counts = (
        raw[:, offset : offset + 8 * TOP].view(np.int64).tolist()
        for offset in (Values.TOP, Values.TOP_COUNTS)
    )
    for values, often in zip(tops, counts):
        yield {value & mask: times for value, times in zip(values, often) if times}


def _spread(record: NDArray[np.uint8]) -> tuple[float, float]:
    """The sums over all lanes of the differences from the reference, and of their squares."""
    differences, squares = (
        math.fsum(record[offset : offset + 256].view(np.float64).tolist())
        for offset in (Values.DIFFERENCES, Values.SQUARES)
    )
    return differences, squares


#: scalar fields of a record: 64-bit and 32-bit numbers and doubles
_WHOLE = (
    Values.SLOT, Values.SPACE, Values.START, Values.COUNT, Values.ZEROS, Values.NEGATIVE_ZEROS, Values.NANS, Values.SILENT,
    Values.RELOADS, Values.LINE, Values.LINE_INDEX, Values.LINE_BASE, Values.RUN, Values.ROW, Values.PLANE, Values.TRIES, Values.FITS,
    Values.SEEN, Values.SPREAD, Values.REFERENCE, Values.TOP_ERROR, Values.LEVEL, Values.SAMPLED, Values.DEAD, Values.OVERWRITER,
    *Values.SLOPES, *Values.SLOPES,
)  # fmt: skip
_FORMATS = dict.fromkeys((Values.RUN, Values.ROW, Values.PLANE), "u4") | {Values.REFERENCE: "f8"}
_FIELDS = np.dtype(
    {
        "names": [f"{place}" for place in range(len(_WHOLE))],
        "formats": [_FORMATS.get(at, "i8") for at in _WHOLE[:-3]] + ["f8"] * 3,
        "offsets": [*_WHOLE],
        "itemsize": Values.LANES,
    }
)
