"""Runtime of generated code: records of what accesses carry, where a warp needs more than vectors (see ``values_function``).

Written in the subset of ``compile_python`` and compiled, never run as Python.
"""

from __future__ import annotations

from ..ir.abi import Context
from ..ir.access_records import ValueRow, Values
from .compile_python import fill, load64, store64, trailing_zeros, unsigned_less
from .memory import find


def values_record(context: Context, slot: int, address: int, size: int, how: int) -> int:
    """Point the row of a slot to its record of the object at an address; 0 if there is none, or no room for a record."""
    space = how & 3
    start = 0
    span = 1 << 40
    compares = 0
    tracked = 0
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
        compares = how & 4
        tracked = 1 - (row.FLAGS & 1)
    own = context.VALUE_ROWS + slot * ValueRow.BYTES
    record = load64(own + ValueRow.FIRST)
    while record and (load64(record + Values.SPACE) != space or load64(record + Values.START) != start):
        record = load64(record + Values.NEXT)
    if record == 0:
        number = context.VALUE_COUNT
        if number == context.VALUE_MOST:
            context.VALUE_LEFT_OUT = 1
            return 0
        context.VALUE_COUNT = number + 1
        record = context.VALUE_RECORDS + number * Values.BYTES
        store64(record + Values.SLOT, slot)
        store64(record + Values.SPACE, space)
        store64(record + Values.START, start)
        store64(record + Values.HIGHEST, 4294967295 if size < 8 else -1)
        store64(record + Values.NEXT, load64(own + ValueRow.FIRST))
        store64(record + Values.COMPARES, compares)
        store64(own + ValueRow.FIRST, record)
    store64(record + Values.TRACKED, tracked)
    store64(own + ValueRow.START, start)
    store64(own + ValueRow.LIMIT, span - size + 1)
    store64(own + ValueRow.RECORD, record)
    return record


def values_sample(context: Context, record: int, lanes: int, hashes: int) -> int:
    """Add the hashes of lanes to the sample of different ones: a table with linear probing, in which 0 is a free place. When it is
    full, those above half of the highest leave it."""
    while lanes:
        lane = trailing_zeros(lanes)
        lanes = lanes & (lanes - 1)
        value = load64(hashes + lane * 8)
        if not unsigned_less(load64(record + Values.HIGHEST), value) and values_put(record, value):
            while load64(record + Values.SAMPLED) > Values.MOST_SAMPLED:
                values_halve(context, record)
    return 0


def values_put(record: int, value: int) -> int:
    """Put a hash into the table; whether it was not there."""
    place = value & (Values.TABLE_SLOTS - 1)
    held = load64(record + Values.TABLE + place * 8)
    while held:
        if held == value:
            return 0
        place = (place + 1) & (Values.TABLE_SLOTS - 1)
        held = load64(record + Values.TABLE + place * 8)
    store64(record + Values.TABLE + place * 8, value)
    store64(record + Values.SAMPLED, load64(record + Values.SAMPLED) + 1)
    return 1


def values_halve(context: Context, record: int) -> int:
    """Keep the hashes up to half of the highest one allowed: in a table made anew, as places follow from what was there before."""
    table = record + Values.TABLE
    spare = context.SCRATCH + 4096
    highest = load64(record + Values.HIGHEST) >> 1
    store64(record + Values.HIGHEST, highest)
    store64(record + Values.LEVEL, load64(record + Values.LEVEL) + 1)
    kept = 0
    place = 0
    while place < Values.TABLE_SLOTS:
        value = load64(table + place * 8)
        if value and not unsigned_less(highest, value):
            store64(spare + kept * 8, value)
            kept += 1
        place += 1
    fill(table, 0, Values.TABLE_SLOTS * 8)
    store64(record + Values.SAMPLED, 0)
    while kept:
        kept -= 1
        values_put(record, load64(spare + kept * 8))
    return 0
