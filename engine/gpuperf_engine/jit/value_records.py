"""Records of what accesses carry, as compiled code keeps them, and read off when a launch has ended."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..memory.arena import Memory
from ..results import ValueRecord
from ..simt.program import Program
from ..simt.value_records import Carried, ValueKind, describe, object_namer, value_slots
from .host_arrays import address_of, aligned
from .ir.abi import Context
from .ir.access_records import ValueRow, Values

__all__ = ["LaunchValues"]


class LaunchValues:
    """The records of one launch. They are zero until they are used, so that no more of them take memory."""

    def __init__(self, program: Program) -> None:
        self.program = program
        slots = value_slots(program)
        self.kinds = [slot.kind for of_site in slots.values() for slot in of_site]
        self._rows = aligned(ValueRow.BYTES * max(1, len(self.kinds)))
        self._records = aligned(Values.BYTES * Values.MOST)
        #: what the context is told
        self.fields: dict[int, int] = {
            Context.VALUE_ROWS: address_of(self._rows),
            Context.VALUE_RECORDS: address_of(self._records),
            Context.VALUE_COUNT: 0,
            Context.VALUE_MOST: Values.MOST,
            Context.VALUE_LEFT_OUT: 0,
        }

    @property
    def note(self) -> tuple[str, ...]:
        """What is said where records did not suffice."""
        kernel = self.program.kernel
        return (
            f"{kernel.span}: {kernel.name!r} accesses more than {Values.MOST:,} objects, each instruction's counted by itself: "
            "what further ones carry is not recorded",
        )

    def records(self, count: int, memory: Memory, uninitialized: Collection[int]) -> tuple[ValueRecord, ...]:
        """The first ``count`` records; ``uninitialized`` are the sites that read what nobody had written."""
        return describe(self.program, self._read(count), object_namer(memory), uninitialized)

    def _read(self, count: int) -> Iterator[Carried]:
        for raw in self._records[: count * Values.BYTES].reshape(count, Values.BYTES):
            head = raw[: Values.MINIMUM].view(np.int64).tolist()
            yield _carried(self.kinds[head[Values.SLOT // 8]], raw, head)


def _carried(kind: ValueKind, raw: NDArray[np.uint8], head: list[int]) -> Carried:
    word = np.dtype(f"u{kind.word // 8}")

    def lanes(offset: int) -> NDArray[Any]:
        return raw[offset : offset + 32 * word.itemsize].view(word)

    def words(offset: int) -> NDArray[Any]:
        return raw[offset : offset + 128].view(np.uint64).astype(word)

    def field(offset: int) -> int:
        return head[offset // 8]

    counts = raw[Values.TOP_COUNTS : Values.TOP_COUNTS + 128].view(np.int64).tolist()
    slope: int | float = int(lanes(Values.LINE_SLOPE)[0])
    if kind.is_float:
        slope = float(raw[Values.LINE_SLOPE : Values.LINE_SLOPE + 8].view(np.float64)[0])
    return Carried(
        slot=field(Values.SLOT),
        space=field(Values.SPACE),
        start=field(Values.START),
        count=field(Values.COUNT),
        zeros=field(Values.ZEROS),
        negative_zeros=field(Values.NEGATIVE_ZEROS),
        nans=field(Values.NANS),
        silent=field(Values.SILENT),
        minimum=int(lanes(Values.MINIMUM).max()),
        maximum=int(lanes(Values.MAXIMUM).max()),
        ors=int(np.bitwise_or.reduce(lanes(Values.ORS))),
        tiny=int(lanes(Values.TINY).max()),
        line=field(Values.LINE),
        line_index=field(Values.LINE_INDEX),
        line_base=int(raw[Values.LINE_BASE : Values.LINE_BASE + word.itemsize].view(word)[0]),
        line_slope=slope,
        fits=field(Values.FITS),
        top_error=field(Values.TOP_ERROR),
        top={value: own for value, own in zip(words(Values.TOP).tolist(), counts) if own},
        level=field(Values.LEVEL),
        sampled=field(Values.SAMPLED),
    )
