"""Runtime of generated code: records of accessed values, where a warp needs more than vectors (see ``values.function``).

Written in the subset of ``compile_python`` and compiled, never run as Python.
"""

from __future__ import annotations

from ...ir.abi import Context
from ...ir.access_records import ValueRow, Values, ValueShape
from ..intrinsics import load64, store32, store64, unsigned_less
from ..memory import find


def values_new(context: Context, slot: int, space: int, start: int, size: int, compares: int) -> int:
    """Create a record of an object, as the first of a slot; returns 0 if the memory of records is full."""
    word = 8 if size == 8 else 4
    bytes = Values.TABLE + Values.WORDS * word
    if context.VALUE_USED + bytes > context.VALUE_ROOM:
        context.VALUE_LEFT_OUT = 1
        return 0
    own = context.VALUE_ROWS + slot * ValueRow.BYTES
    record = context.VALUE_RECORDS + context.VALUE_USED
    context.VALUE_USED = context.VALUE_USED + bytes
    store64(record + Values.SIZE, bytes)
    store64(record + Values.SLOT, slot)
    store64(record + Values.SPACE, space)
    store64(record + Values.START, start)
    store64(record + Values.HIGHEST, 4294967295 if size < 8 else -1)
    store64(record + Values.NEXT, load64(own + ValueRow.FIRST))
    store64(record + Values.COMPARES, compares)
    store64(own + ValueRow.FIRST, record)
    if space == 0:
        values_shape(context, record, start, size)
    return record


def values_traces(how: int) -> int:
    """Return the role of an access in dead stores (``Values.TRACES``)."""
    return (
        (Values.OVERWRITES if how & Values.STRONG else Values.STORES) if how & Values.HELD else Values.READS
    )


def values_record(context: Context, slot: int, address: int, size: int, how: int) -> int:
    """Point a slot to its record of the object at an address; returns 0 if there is no object, or the memory of records is full."""
    space = how & 3
    start = 0
    span = 1 << 40
    compares = 0
    tracked = 0
    writable = 0
    window = context.WINDOW_BYTES
    if space == 3:
        space = 0
        if unsigned_less(address - context.SHARED_WINDOW, window):
            space = 1
            start = context.SHARED_WINDOW
            span = window
        elif unsigned_less(address - context.LOCAL_WINDOW, window):
            space = 2
            start = context.LOCAL_WINDOW
            span = window
    if space == 0:
        row = find(context, address)
        if row == 0:
            return 0
        start = row.START
        span = row.END - start
        if span < size or unsigned_less(span - size, address - start):
            return 0
        compares = how & (Values.HELD | Values.LOADED)
        tracked = 1 - (row.FLAGS & 1)
        writable = row.KIND & 255 == 0
    own = context.VALUE_ROWS + slot * ValueRow.BYTES
    record = load64(own + ValueRow.FIRST)
    while record and (load64(record + Values.SPACE) != space or load64(record + Values.START) != start):
        record = load64(record + Values.NEXT)
    if record == 0:
        record = values_new(context, slot, space, start, size, compares)
        if record == 0:
            return 0
    if how & Values.FURTHER:
        writable = 0
    if how & Values.FIRST:
        store64(record + Values.PARTS, 1 if size == 2 else 2)
    if writable and context.STORE_WORDS and unsigned_less(start - context.STORE_FROM, context.STORE_SPAN):
        store64(record + Values.TRACES, values_traces(how))
        store64(record + Values.TOUCHED, context.STORE_OBJECTS + (start >> 5))
    store64(record + Values.TRACKED, tracked)
    store64(own + ValueRow.START, start)
    store64(own + ValueRow.LIMIT, span - size + 1)
    store64(own + ValueRow.RECORD, record)
    return record


def values_shape(context: Context, record: int, start: int, size: int) -> int:
    """Store the axes of an object in a record of its elements of that size, if rows have complete elements only."""
    place = context.VALUE_SHAPES
    while ValueShape(place).START and ValueShape(place).START != start:
        place += ValueShape.BYTES
    shape = ValueShape(place)
    shift = 0
    while (1 << shift) < size:
        shift += 1
    if shape.START and shape.ROW & (size - 1) == 0:
        store32(record + Values.ROW, shape.ROW >> shift)
        store32(record + Values.PLANE, shape.PLANE >> shift if shape.PLANE else 2147483647)
    return 0


def values_merge(record: int, values: int, counts: int, number: int) -> int:
    """Merge values with their counts into the most frequent ones, which stay at the front."""
    tops = record + Values.TOP
    known = record + Values.TOP_COUNTS
    used = 0
    while used < Values.TOP_SLOTS and load64(known + used * 8):
        used += 1
    others = 0
    item = 0
    while item < number:
        value = load64(values + item * 8)
        count = load64(counts + item * 8)
        place = 0
        while place < used and load64(tops + place * 8) != value:
            place += 1
        if place < used:
            store64(known + place * 8, load64(known + place * 8) + count)
        else:
            store64(values + others * 8, value)
            store64(counts + others * 8, count)
            others += 1
        item += 1
    less = 0
    while values_above(known, used, less) + values_above(counts, others, less) > Values.TOP_SLOTS:
        least = values_least(known, used, less)
        other = values_least(counts, others, less)
        less = other if unsigned_less(other, least) else least
    store64(record + Values.TOP_ERROR, load64(record + Values.TOP_ERROR) + less)
    place = values_kept(tops, known, used, less, tops, known)
    end = place + values_kept(values, counts, others, less, tops + place * 8, known + place * 8)
    while end < used:
        store64(known + end * 8, 0)
        end += 1
    return 0


def values_above(counts: int, number: int, less: int) -> int:
    """How many counts are above one."""
    above = 0
    while number:
        number -= 1
        if load64(counts + number * 8) > less:
            above += 1
    return above


def values_least(counts: int, number: int, less: int) -> int:
    """The least count above one; the highest number if there is none."""
    least = -1
    while number:
        number -= 1
        count = load64(counts + number * 8)
        if count > less and unsigned_less(count, least):
            least = count
    return least


def values_kept(values: int, counts: int, number: int, less: int, to_values: int, to_counts: int) -> int:
    """Move values whose counts are above one, less that; how many they are."""
    kept = 0
    item = 0
    while item < number:
        count = load64(counts + item * 8)
        if count > less:
            store64(to_values + kept * 8, load64(values + item * 8))
            store64(to_counts + kept * 8, count - less)
            kept += 1
        item += 1
    return kept
