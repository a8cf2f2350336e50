"""Records of what accesses carry, as compiled code keeps them, and read off when a launch has ended."""

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
from ..simt.value_records import LOADS, TOP, Carried, ValueKind, describe, object_namer, value_slots
from .host_arrays import address_of, aligned
from .ir.abi import Context
from .ir.access_records import ValueLoad, ValueRow, Values

__all__ = ["LaunchValues"]

#: takes rows into the sums of a record: context, record
_Reduce = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)


class LaunchValues:
    """The records of one launch. They are zero until they are used, so that no more of them take memory."""

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
        """What is said where records did not suffice."""
        kernel = self.program.kernel
        return (
            f"{kernel.span}: {kernel.name!r} accesses more objects than {Values.ROOM >> 20} MiB of records suffice for, each "
            "instruction's counted by itself: what further ones carry is not recorded",
        )

    def records(
        self, context: int, used: int, memory: Memory, uninitialized: Collection[int], complete: bool
    ) -> tuple[ValueRecord, ...]:
        """The records in the first ``used`` bytes, of the worker whose context is at that address; ``uninitialized`` are the sites
        that read what nobody had written; ``complete``: there was room for all records."""
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
                yield from _carried(self.kinds, word, raw)


@lru_cache(64)
def _reducing(address: int) -> Callable[[int, int], None]:
    return _Reduce(address)


def _carried(kinds: Sequence[ValueKind], word: int, raw: NDArray[np.uint8]) -> Iterator[Carried]:
    """Records of words of so many bits, from their bytes: [records, ``Values.LANES``]."""
    type = np.dtype(f"u{word // 8}")

    def lanes(offset: int) -> NDArray[Any]:
        return raw[:, offset : offset + 32 * type.itemsize].view(type)

    def longs(offset: int, count: int) -> list[list[int]]:
        numbers: list[list[int]] = raw[:, offset : offset + 8 * count].view(np.int64).tolist()
        return numbers

    highest = [lanes(offset).max(axis=1).tolist() for offset in (Values.MINIMUM, Values.MAXIMUM, Values.TINY)]
    ors = np.bitwise_or.reduce(lanes(Values.ORS), axis=1).tolist()
    heads, counts = longs(0, Values.MINIMUM // 8), longs(Values.TOP_COUNTS, TOP)
    slopes = [raw[:, at : at + 8].view(np.float64)[:, 0].tolist() for at in Values.SLOPES]
    near = raw[:, Values.SPREAD : Values.SPREAD + 8].view(np.int64)[:, 0] == Values.NEAR
    references = raw[:, Values.REFERENCE : Values.REFERENCE + 8].view(np.float64)[:, 0].tolist()
    sums = [raw[:, at : at + 256].view(np.float64).tolist() for at in (Values.DIFFERENCES, Values.SQUARES)]
    dead = raw[:, Values.DEAD : Values.LEAD].view(np.int64)
    mask = (1 << word) - 1
    for row, (head, values, own) in enumerate(zip(heads, longs(Values.TOP, TOP), counts)):
        kind = kinds[head[Values.SLOT // 8]]
        yield Carried(
            slot=head[Values.SLOT // 8],
            space=head[Values.SPACE // 8],
            start=head[Values.START // 8],
            count=head[Values.COUNT // 8],
            zeros=head[Values.ZEROS // 8],
            negative_zeros=head[Values.NEGATIVE_ZEROS // 8],
            nans=head[Values.NANS // 8],
            silent=head[Values.SILENT // 8],
            reloads=head[Values.RELOADS // 8],
            minimum=highest[0][row],
            maximum=highest[1][row],
            ors=ors[row],
            # the least magnitude with the other sign
            tiny=max(0, highest[2][row] - 1),
            line=head[Values.LINE // 8],
            line_index=head[Values.LINE_INDEX // 8],
            line_base=head[Values.LINE_BASE // 8] & mask,
            slopes=tuple(
                of_axis[row] if kind.is_float else head[at // 8] & mask
                for at, of_axis in zip(Values.SLOPES, slopes)
            ),
            row=int(raw[row, Values.ROW : Values.ROW + 4].view(np.uint32)[0]),
            plane=int(raw[row, Values.PLANE : Values.PLANE + 4].view(np.uint32)[0]),
            run=int(raw[row, Values.RUN : Values.RUN + 4].view(np.uint32)[0]),
            tries=head[Values.TRIES // 8],
            fits=head[Values.FITS // 8],
            seen=head[Values.SEEN // 8],
            spread=(references[row], *(math.fsum(of_lanes[row]) for of_lanes in sums)) if near[row] else None,
            top_error=head[Values.TOP_ERROR // 8],
            top={value & mask: count for value, count in zip(values, own) if count},
            level=head[Values.LEVEL // 8],
            sampled=head[Values.SAMPLED // 8],
            dead=int(dead[row][0]),
            overwriter=int(dead[row][1]),
        )
