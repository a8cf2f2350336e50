"""Runtime of generated code: accesses of global memory are held against one another, line by line.

Where no CTA can wait for another one, nothing orders accesses of several CTAs, and these may run at the same time, in any order. What
a cell keeps of a line does not depend on that: the CTAs with the lowest numbers, and which bytes held several values. When all have
ended, ``race_settle`` looks at the lines that several accessed. Accesses of one CTA are held against one another as it runs, and so
are those of CTAs that may wait for one another, see ``races_warps``.
"""

from __future__ import annotations

from ..ir.abi import Context, Cta, Line, Race, State
from .compile_python import (
    compare_swap,
    copy,
    load8,
    load16,
    load32,
    load64,
    store8,
    store32,
    store64,
    trailing_zeros,
    unsigned_less,
)
from .races_blocks import race_again
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
from .races_warps import race_cell, race_now, race_ordered, race_room, race_tag, race_tagged, race_within


def race_row(
    context: int, site: int, mask: int, first: int, values: int, width: int, size: int, how: int
) -> int:
    """Accesses of global memory by lanes side by side; ``first`` is the address of lane 0. ``values`` as in ``race_lanes``."""
    power = trailing_zeros(size)
    while mask:
        lane = trailing_zeros(mask)
        lanes = trailing_zeros(~(mask >> lane))
        mask = mask & ~(((1 << lanes) - 1) << lane)
        start = first + lane * size
        end = start + lanes * size
        while start < end:
            part = Line.BYTES - (start & (Line.BYTES - 1))
            if part > end - start:
                part = end - start
            race_line(context, site, lane, start, part, values, width, size, how)
            start += part
            lane += part >> power
    return 0


def race_anywhere(
    context: int, site: int, mask: int, addresses: int, values: int, width: int, size: int, how: int
) -> int:
    """As ``race_row``, of lanes at any addresses."""
    while mask:
        lane = trailing_zeros(mask)
        mask = mask & (mask - 1)
        start = load64(addresses + lane * 8)
        if how & 4 and mask and race_again_stored(lane, trailing_zeros(mask), addresses, values, width, size):
            continue
        end = start + size
        after = lane + 1
        while mask >> after & 1 and end & (Line.BYTES - 1) and load64(addresses + after * 8) == end:
            mask = mask & (mask - 1)
            end += size
            after += 1
        # a place that all lanes load from
        while how & 4 == 0 and mask and load64(addresses + trailing_zeros(mask) * 8) == start:
            mask = mask & (mask - 1)
        race_line(context, site, lane, start, end - start, values, width, size, how)
    return 0


def race_again_stored(lane: int, next: int, addresses: int, values: int, width: int, size: int) -> int:
    """Whether the next lane stores the same value to the same place, as where all threads set a flag: then it stands for this one."""
    if (
        values == 0
        or width != size
        or size > 8
        or load64(addresses + lane * 8) != load64(addresses + next * 8)
    ):
        return 0
    one = values + lane * width
    other = values + next * width
    if size == 4:
        return load32(one) == load32(other)
    if size == 8:
        return load64(one) == load64(other)
    if size == 2:
        return load16(one) == load16(other)
    return load8(one) == load8(other)


def race_alone(context: int, site: int, lane: int, address: int, size: int, how: int) -> int:
    """As ``race_row``, of one lane."""
    width = load64(context + Context.RACE_WIDTH)
    values = load64(context + Context.RACE_VALUE)
    if values:
        values -= lane * width
    return race_line(context, site, lane, address, size, values, width, size, how)


def race_line(
    context: int, site: int, lane: int, start: int, part: int, values: int, width: int, size: int, how: int
) -> int:
    """Lanes from ``lane`` on access ``part`` bytes within a line."""
    offset = start & (Line.BYTES - 1)
    if part > Line.BYTES - offset:
        return 0
    cta = load64(context + Context.CTA)
    mask = -1
    if part < Line.BYTES:
        mask = ((1 << part) - 1) << offset
    info = site << 14 | load32(load64(context + Context.STATE) + State.INDEX) << 9 | lane
    shape = offset | trailing_zeros(size) << Line.POWER | (part - 1) << Line.LENGTH
    flags = load8(load64(context + Context.RACE_SITES) + site)
    if load64(context + Context.RACE_SEGMENTS):
        return race_ordered(context, cta, flags, info, shape, start, mask, values, width, size, how)
    place = start - load64(context + Context.RACE_FROM)
    lines = load64(context + Context.RACE_LINES)
    if lines == 0:
        if flags & Race.WITHIN:
            race_within(context, cta, flags, info, shape, start, mask, values, width, size, how)
        return 0
    if not unsigned_less(place, load64(context + Context.RACE_SPAN)):
        return 0
    line = place >> Line.BITS
    cell = lines + line * Line.CELL
    locked = load64(context + Context.RACE_LOCKED)
    if locked:
        while compare_swap(cell + Line.LOCK, 0, 1):
            continue
    room = load64(context + Context.RACE_ROOMS) + line * Line.ROOM
    race_first(
        context, cta, cell, room, flags, info, shape, start, mask, values, width, size, how
    )  # fmt: skip
    if locked:
        compare_swap(cell + Line.LOCK, 1, 0)
    return 0


def race_first(
    context: int,
    cta: int,
    cell: int,
    room: int,
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
    """Note an access where one warp alone has accessed the line; else hold it against others of its CTA, and note it for when all CTAs
    have ended."""
    launch = load64(context + Context.RACE_FIRST)
    number = launch + load64(cta + Cta.INDEX)
    record = load64(cta + Cta.RACES)
    windowed = record and load64(record + Race.WINDOW)
    epoch = number
    tag = 0
    if windowed:
        race_again(context, record)
        epoch = race_now(context, record)
        tag = race_tag(record, start)
    strong = 0
    if flags & Race.IS_STRONG:
        strong = 1 + 2 * (flags & Race.NARROW == 0)
    if load32(cell + Line.LAUNCH) != launch:
        race_fresh(cell, launch)
        store32(cell + Line.OWNER, number)
    first = cell + Line.PAIR
    entry = first
    beside = first + Line.ENTRY
    if how & 4 == 0:
        entry = beside
        beside = first
    if load8(cell + Line.FULL) == 0:
        known = load32(entry + Line.WHO)
        other = load32(beside + Line.WHO)
        before = load64(entry + Line.MASK)
        fresh = known == 0 and other == 0
        alone = load32(cell + Line.OWNER) == number and (known == 0 or (known ^ epoch) & 127 == 0)
        kept = windowed
        if windowed and fresh == 0 and load64(tag) != race_tagged(number, start):
            # what the window knew has given way to another line
            kept = 0
        elif alone and (other == 0 or (other ^ epoch) & 127 == 0):
            same = known == epoch and load8(entry + Line.STRONG) == strong
            over = before & ~mask == 0 and load8(entry + Line.STRONG) == strong
            if known == 0 or same or over:
                if how & 4:
                    stored = mask & before * (known != 0)
                    race_stored(context, cell, flags, info, stored, shape, start, mask, values, width, size)
                elif same and before & mask == mask:
                    return 0
                if windowed and fresh:
                    store64(tag, race_tagged(number, start))
                if same:
                    return race_kept(entry, info, shape, mask)
                return race_set(entry, epoch, strong, info, shape, mask)
        race_split(context, cell, room, kept, start)
    if how & 4:
        stored = load64(room + Line.STORED)
        store64(room + Line.STORED, stored | mask)
        race_stored(context, cell, flags, info, stored & mask, shape, start, mask, values, width, size)
    if windowed:
        if load32(room + Line.KEPT_OF) == number:
            race_moved(context, cta, record, room, start)
        known = race_within(context, cta, flags, info, shape, start, mask, values, width, size, how)
        if known and how & 4 == 0:
            return 0
    return race_among(context, number, cell, room, strong & 2, info, shape, start, mask, how)


def race_split(context: int, cell: int, room: int, kept: int, start: int) -> int:
    """A line is no longer that of one warp: the entries of its cell are of a CTA from now on."""
    race_filled(cell, room)
    owner = load32(cell + Line.OWNER)
    stored = cell + Line.PAIR
    loaded = stored + Line.ENTRY
    if kept:
        store32(room + Line.KEPT_OF, owner)
        copy(room + Line.KEPT, stored, 2 * Line.ENTRY)
        host = (start & (0 - Line.BYTES)) + load64(context + Context.ARENA)
        copy(room + Line.VALUES, host, Line.BYTES)
    store64(room + Line.STORED, 0)
    if load32(stored + Line.WHO):
        store64(room + Line.STORED, load64(stored + Line.MASK))
        store32(stored + Line.WHO, owner)
        store8(stored + Line.STRONG, load8(stored + Line.STRONG) & 2)
    if load32(loaded + Line.WHO):
        store32(loaded + Line.WHO, owner)
        store8(loaded + Line.STRONG, load8(loaded + Line.STRONG) & 2)
    return 0


def race_moved(context: int, cta: int, record: int, room: int, start: int) -> int:
    """What one warp did to a line goes to the window of its CTA, unless another line has come there since."""
    store32(room + Line.KEPT_OF, 0)
    number = load64(context + Context.RACE_FIRST) + load64(cta + Cta.INDEX)
    tag = race_tag(record, start)
    if load64(tag) != race_tagged(number, start) or load64(record + Race.AGAIN):
        return 0
    cell = race_cell(record, start)
    race_fresh(cell, 0)
    copy(race_room(record, start) + Line.VALUES, room + Line.VALUES, Line.BYTES)
    copy(cell + Line.PAIR, room + Line.KEPT, 2 * Line.ENTRY)
    who = load32(room + Line.KEPT + Line.WHO)
    if who == 0:
        who = load32(room + Line.KEPT + Line.ENTRY + Line.WHO)
    store32(cell + Line.OWNER, (who & 127) + 1)
    return 0


def race_stored(
    context: int,
    cell: int,
    flags: int,
    info: int,
    stored: int,
    shape: int,
    start: int,
    mask: int,
    values: int,
    width: int,
    size: int,
) -> int:
    """Note which bytes a store changes, of those that were stored before."""
    if flags & Race.IS_STRONG:
        store64(cell + Line.DIFFERS, load64(cell + Line.DIFFERS) | mask)
    elif values:
        host = (start & (0 - Line.BYTES)) + load64(context + Context.ARENA)
        left = stored & ~load64(cell + Line.DIFFERS)
        if left:
            left = race_differs(host, info & 31, left, start, values, width, size)
            store64(cell + Line.DIFFERS, load64(cell + Line.DIFFERS) | left)
        if load64(context + Context.RACE_LOCKED):
            # others run at the same time: the values are stored here, so that they are there when the next one compares
            race_valued(host, info & 31, (shape >> Line.LENGTH) + 1, start, values, width, size)
    return 0


def race_among(
    context: int,
    number: int,
    cell: int,
    room: int,
    strong: int,
    info: int,
    shape: int,
    start: int,
    mask: int,
    how: int,
) -> int:
    """Note an access of a CTA for when all have ended."""
    own = 0
    most = 0
    last = 0
    index = 0
    mine = number << 1 | (strong != 0)
    while index < 2 * Line.PAIRS:
        entry = race_entry_at(cell, room, index)
        who = load32(entry + Line.WHO)
        key = who << 1 | (load8(entry + Line.STRONG) != 0)
        conflicts = (how & 4 or index & 1 == 0) and strong & load8(entry + Line.STRONG) == 0
        if who and who != number and conflicts and mask & load64(entry + Line.MASK):
            race_suspect(context, cell, start)
        if index & 1 == (how & 4 == 0):
            if who == 0 and own == 0:
                own = entry
            elif who and key == mine:
                return race_kept(entry, info, shape, mask)
            elif who and key > most:
                most = key
                last = entry
        index += 1
    # those with the lowest numbers stay, whichever came first
    if own == 0 and most > mine:
        own = last
    if own:
        race_set(own, number, strong, info, shape, mask)
    return 0


def race_suspect(context: int, cell: int, start: int) -> int:
    """CTAs have perhaps accessed the same bytes of a line."""
    line = (start - load64(context + Context.RACE_FROM)) >> Line.BITS
    store8(cell + Line.SUSPECT, 1)
    if line < load64(context + Context.RACE_LOWEST):
        store64(context + Context.RACE_LOWEST, line)
    if line > load64(context + Context.RACE_HIGHEST):
        store64(context + Context.RACE_HIGHEST, line)
    return 0


def race_settle(context: int, line: int, last: int) -> int:
    """All CTAs have ended: note the races in these lines."""
    first = load64(context + Context.RACE_FIRST)
    while line <= last:
        cell = load64(context + Context.RACE_LINES) + line * Line.CELL
        if load32(cell + Line.LAUNCH) == first and load8(cell + Line.SUSPECT):
            room = load64(context + Context.RACE_ROOMS) + line * Line.ROOM
            race_pairs(context, cell, room, load64(context + Context.RACE_FROM) + line * Line.BYTES)
        line += 1
    return 0


def race_pairs(context: int, cell: int, room: int, start: int) -> int:
    """Of each two entries of a line, the first one of stores, whether they are a race. The CTA with the lower number comes first,
    whichever ran first."""
    first = load64(context + Context.RACE_FIRST)
    differs = load64(cell + Line.DIFFERS)
    number = 0
    while number < 2 * Line.PAIRS * Line.PAIRS:
        one = race_entry_at(cell, room, number // (2 * Line.PAIRS) * 2)
        other = race_entry_at(cell, room, number % (2 * Line.PAIRS))
        stores = number & 1 == 0
        overlap = load64(one + Line.MASK) & load64(other + Line.MASK)
        strong = load8(one + Line.STRONG) | load8(other + Line.STRONG)
        if stores and strong == 0:
            overlap = overlap & differs
        if load8(one + Line.STRONG) & load8(other + Line.STRONG):
            overlap = 0
        before = load32(one + Line.WHO)
        after = load32(other + Line.WHO)
        if overlap and before and after and before != after and (before < after or stores == 0):
            kind = Race.RAW
            if stores:
                kind = Race.WAW
            if after < before:
                race_report_entries(
                    context, Race.WAR, after - first, before - first, other, one, overlap, start
                )
            else:
                race_report_entries(context, kind, before - first, after - first, one, other, overlap, start)
        number += 1
    return 0


def race_report_entries(
    context: int, kind: int, number: int, after: int, one: int, other: int, overlap: int, start: int
) -> int:
    """Report the accesses of two entries, which overlap in some bytes of a line."""
    return race_report_line(
        context, kind, number, after, load32(one + Line.BY), load16(one + Line.AT), load32(other + Line.BY),
        load16(other + Line.AT), overlap, start,
    )  # fmt: skip
