"""Runtime of generated code: accesses of global memory by warps are held against clocks.

For these see ``races_clocks``. Where no CTA can wait for another one, each has a window of cells of its own, for the lines
that it accessed last. Else a cell of a line is that of all CTAs, and has them apart by segments.
"""

from __future__ import annotations

from ..ir.abi import Context, Cta, Line, Race, Segment
from .compile_python import load8, load32, load64, store32, store64, unsigned_less
from .races_blocks import race_again, race_segment
from .races_clocks import race_happened_before
from .races_lines import (
    race_differs,
    race_entry_at,
    race_filled,
    race_fresh,
    race_kept,
    race_report_line,
    race_set,
    race_valued,
)


def race_within(
    context: int,
    cta: int,
    flags: int,
    info: int,
    shape: int,
    start: int,
    mask: int,
    values: int,
    width: int,
    size: int,
    how: int,
) -> int:
    """Hold an access against those of other warps of the CTA; whether nothing is new about it."""
    record = load64(cta + Cta.RACES)
    if record == 0 or load64(record + Race.NOW) == Race.LAST:
        return 0
    race_again(context, record)
    number = load64(context + Context.RACE_FIRST) + load64(cta + Cta.INDEX)
    cell = race_cell(record, start)
    tag = race_tag(record, start)
    if load64(tag) != race_tagged(number, start):
        race_fresh(cell, 0)
        store64(tag, race_tagged(number, start))
    room = race_room(record, start)
    epoch = race_now(context, record)
    known = race_entry(
        context, cta, record, cell, room, (epoch & 127) + 1, epoch, flags, info, shape, start, mask, values, width, size, how
    )  # fmt: skip
    if how & 4 and values and load64(context + Context.RACE_LINES):
        race_valued(room + Line.VALUES, info & 31, (shape >> Line.LENGTH) + 1, start, values, width, size)
    return known


def race_room(record: int, start: int) -> int:
    """The room of a line in the window of a CTA."""
    place = start >> Line.BITS & (Line.WINDOW - 1)
    return load64(record + Race.WINDOW) + Line.ROOMS + place * Line.ROOM


def race_cell(record: int, start: int) -> int:
    """The cell of a line in the window of a CTA."""
    return load64(record + Race.WINDOW) + (start >> Line.BITS & (Line.WINDOW - 1)) * Line.CELL


def race_tag(record: int, start: int) -> int:
    """Where the tag of that cell is."""
    return load64(record + Race.WINDOW) + Line.TAGS + (start >> Line.BITS & (Line.WINDOW - 1)) * 8


def race_tagged(number: int, start: int) -> int:
    """The tag of a line that a CTA has accessed."""
    return number << 32 | (start >> Line.BITS & 4294967295)


def race_now(context: int, record: int) -> int:
    """The epoch of what accesses memory."""
    if load64(context + Context.RACE_AGENT):
        return load64(context + Context.RACE_AGENT) & 4294967295
    return load64(load64(context + Context.RACE_WARP) + Race.EPOCH)


def race_ordered(
    context: int,
    cta: int,
    flags: int,
    info: int,
    shape: int,
    start: int,
    mask: int,
    values: int,
    width: int,
    size: int,
    how: int,
) -> int:
    """Hold an access against those of all warps of all CTAs."""
    record = load64(cta + Cta.RACES)
    place = start - load64(context + Context.RACE_FROM)
    if record == 0 or not unsigned_less(place, load64(context + Context.RACE_SPAN)):
        return 0
    epoch = race_now(context, record)
    segment = race_segment(context, cta, record, epoch)
    if segment == 0 or load64(record + Race.NOW) == Race.LAST:
        return 0
    cell = load64(context + Context.RACE_LINES) + (place >> Line.BITS) * Line.CELL
    room = load64(context + Context.RACE_ROOMS) + (place >> Line.BITS) * Line.ROOM
    launch = load64(context + Context.RACE_FIRST)
    if load32(cell + Line.LAUNCH) != launch:
        race_fresh(cell, launch)
    who = (load64(cta + Cta.INDEX) << 7 | (epoch & 127)) + 1
    return race_entry(
        context, cta, record, cell, room, who, segment, flags, info, shape, start, mask, values, width, size, how
    )  # fmt: skip


def race_entry(
    context: int,
    cta: int,
    record: int,
    cell: int,
    room: int,
    who: int,
    number: int,
    flags: int,
    info: int,
    shape: int,
    start: int,
    mask: int,
    values: int,
    width: int,
    size: int,
    how: int,
) -> int:
    """Hold an access of an agent (``who``) against those in the cell of its line, and note it there under a number; whether the same
    was there already."""
    strong = 0
    if flags & Race.IS_STRONG:
        strong = 1 + 2 * (flags & Race.NARROW == 0)
    owner = load32(cell + Line.OWNER)
    if owner == 0:
        owner = who
        store32(cell + Line.OWNER, who)
    if owner == who and load8(cell + Line.FULL) == 0:
        entry = race_entry_at(cell, room, how & 4 == 0)
        known = load64(entry + Line.MASK)
        if load32(entry + Line.WHO) == 0:
            return race_set(entry, number, strong, info, shape, mask)
        if load8(entry + Line.STRONG) == strong:
            if load32(entry + Line.WHO) == number:
                if how & 4 == 0 and known & mask == mask:
                    return 1
                return race_kept(entry, info, shape, mask)
            if known & ~mask == 0:
                return race_set(entry, number, strong, info, shape, mask)
    race_filled(cell, room)
    if owner != who:
        store32(cell + Line.OWNER, Line.SHARED)
    return race_entries(
        context, cta, record, cell, room, number, strong, info, shape, start, mask, values, width, size, how
    )


def race_entries(
    context: int,
    cta: int,
    record: int,
    cell: int,
    room: int,
    number: int,
    strong: int,
    info: int,
    shape: int,
    start: int,
    mask: int,
    values: int,
    width: int,
    size: int,
    how: int,
) -> int:
    """As ``race_entry``, of a line that others have accessed too. What comes before, in the same bytes, is forgotten: whoever has a
    race with it has one with this access."""
    me = load64(context + Context.RACE_WARP)
    own = 0
    free = 0
    early = 0
    index = 0
    while index < 2 * Line.PAIRS:
        entry = race_entry_at(cell, room, index)
        known = load32(entry + Line.WHO)
        same = index & 1 == (how & 4 == 0)
        overlap = mask & load64(entry + Line.MASK)
        other = load8(entry + Line.STRONG)
        if known == 0:
            if same:
                free = entry
        elif known == number and other == strong and same:
            own = entry
        elif overlap or same:
            before = known == number or race_precedes(context, cta, me, known)
            if before and same:
                early = entry
            if before and overlap and (how & 4 or index & 1) and strong & ~other == 0:
                overlap = load64(entry + Line.MASK) & ~mask
                store64(entry + Line.MASK, overlap)
                if overlap == 0:
                    store32(entry + Line.WHO, 0)
                    if same:
                        free = entry
            elif before == 0 and overlap and (how & 4 or index & 1 == 0):
                race_of_warps(
                    context, cta, known, room, entry, index, strong & other, info, shape, start, overlap, values, width, size, how
                )  # fmt: skip
        index += 1
    if own:
        return race_kept(own, info, shape, mask)
    if free == 0:
        free = early
    if free == 0:
        free = race_entry_at(cell, room, number % Line.PAIRS * 2 + (how & 4 == 0))
    return race_set(free, number, strong, info, shape, mask)


def race_precedes(context: int, cta: int, me: int, known: int) -> int:
    """Whether what was noted under a number comes before what the warp does now."""
    table = load64(context + Context.RACE_SEGMENTS)
    if table == 0:
        return race_happened_before(me, known)
    segment = table + known * Segment.BYTES
    released = load32(segment + Segment.RELEASED)
    if released and released <= load32(me + Race.CLOCK + Race.OF_OTHERS * 4):
        return 1
    if load32(segment + Segment.CTA) != load64(cta + Cta.INDEX):
        return 0
    return race_happened_before(me, load32(segment + Segment.EPOCH))


def race_of_warps(
    context: int,
    cta: int,
    known: int,
    room: int,
    entry: int,
    index: int,
    strong: int,
    info: int,
    shape: int,
    start: int,
    overlap: int,
    values: int,
    width: int,
    size: int,
    how: int,
) -> int:
    """Note an access and that of an entry, which nothing orders; ``strong``: how strong both are."""
    number = load64(cta + Cta.INDEX)
    other = number
    table = load64(context + Context.RACE_SEGMENTS)
    if table:
        other = load32(table + known * Segment.BYTES + Segment.CTA)
    kind = Race.RAW
    if how & 4:
        kind = Race.WAW
        if index & 1:
            kind = Race.WAR
    if strong & 2 or (strong and other == number):
        return 0
    if other == number:
        kind = kind | Race.OF_ONE
    return race_differing(
        context, kind, other, number, room, entry, info, shape, start, overlap, values, width, size
    )


def race_differing(
    context: int,
    kind: int,
    other: int,
    number: int,
    room: int,
    entry: int,
    info: int,
    shape: int,
    start: int,
    overlap: int,
    values: int,
    width: int,
    size: int,
) -> int:
    """As ``race_of_warps``, of a race if it is not one of two stores that store the same."""
    flags = load8(load64(context + Context.RACE_SITES) + (info >> 14)) & Race.IS_STRONG
    if kind & 3 == Race.WAW and (flags | load8(entry + Line.STRONG)) == 0:
        host = (start & (0 - Line.BYTES)) + load64(context + Context.ARENA)
        if load64(context + Context.RACE_LINES) and load64(context + Context.RACE_SEGMENTS) == 0:
            # other CTAs may store there at any time
            host = room + Line.VALUES
        overlap = race_differs(host, info & 31, overlap, start, values, width, size)
        if overlap == 0:
            return 0
    return race_report_warps(context, kind, other, number, entry, info, shape, start, overlap)


def race_report_warps(
    context: int,
    kind: int,
    other: int,
    number: int,
    entry: int,
    info: int,
    shape: int,
    start: int,
    overlap: int,
) -> int:
    """Note the access of an entry and one that follows."""
    return race_report_line(
        context, kind, other, number, load32(entry + Line.BY), load32(entry + Line.AT) & 65535, info, shape, overlap, start
    )  # fmt: skip
