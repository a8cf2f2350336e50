"""Runtime of generated code: accesses of global memory are held against one another, line by line.

Where no CTA can wait for another one, nothing orders accesses of several CTAs, and these may run at the same time, in any order. What
a cell keeps of a line does not depend on that: the CTAs with the lowest numbers, and which bytes held several values. When all have
ended, ``race_settle`` looks at the lines that several accessed. Accesses of one CTA are held against one another as it runs, and so
are those of CTAs that may wait for one another, see ``races_warps``.
"""

from __future__ import annotations

from ..ir.abi import Context
from ..ir.race_records import Line, LineAccess, LineEntry, LineRoom, Race, Window
from .compile_python import (
    acquire64,
    alike,
    compare_swap,
    copy,
    leading_zeros,
    load16,
    load32,
    load64,
    release64,
    trailing_zeros,
    unsigned_less,
)
from .races_blocks import race_again
from .races_clocks import race_epoch, race_shared
from .races_lines import (
    race_differs,
    race_entry_at,
    race_filled,
    race_fresh,
    race_host,
    race_kept,
    race_set,
    race_valued,
)
from .races_warps import race_cell, race_ordered, race_place, race_room, race_tagged, race_within


def race_row(
    context: Context, site: int, mask: int, first: int, values: int, width: int, size: int, how: int
) -> int:
    """Accesses of global memory by lanes side by side; ``first`` is the address of lane 0. ``values`` as in ``race_lanes``."""
    access = race_access(context, site, values, width, size, how)
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
            race_line(context, access, lane, start, part)
            start += part
            lane += part >> power
    return 0


def race_anywhere(
    context: Context, site: int, mask: int, addresses: int, values: int, width: int, size: int, how: int
) -> int:
    """As ``race_row``, of lanes at any addresses."""
    access = race_access(context, site, values, width, size, how)
    while mask:
        lane = trailing_zeros(mask)
        mask = mask & (mask - 1)
        start = load64(addresses + lane * 8)
        if how & 4 and mask and load64(addresses + trailing_zeros(mask) * 8) == start:
            # where all threads set a flag, the last one that stores the same value stands for those before; of several values in
            # one place the last one stays, and those between the first and the last are of no consequence to others
            there = race_first_of(alike(addresses, lane, 8), mask)
            same = race_first_of(race_alike(access, lane) & there, mask)
            if same:
                lane = 63 - leading_zeros(same)
                mask = mask & ~same
            else:
                mask = mask & ~there | 1 << (63 - leading_zeros(there))
        end = start + size
        after = lane + 1
        while mask >> after & 1 and end & (Line.BYTES - 1) and load64(addresses + after * 8) == end:
            mask = mask & (mask - 1)
            end += size
            after += 1
        if how & 4 == 0 and mask and load64(addresses + trailing_zeros(mask) * 8) == start:
            # a place that all lanes load from
            mask = mask & ~race_first_of(alike(addresses, lane, 8), mask)
        race_line(context, access, lane, start, end - start)
    return 0


def race_texels(context: Context, site: int, mask: int, addresses: int, sizes: int) -> int:
    """As ``race_row``, of loads through a texture or surface; ``sizes``: bytes of each lane, four bytes each."""
    while mask:
        lane = trailing_zeros(mask)
        size = load32(sizes + lane * 4)
        start = load64(addresses + lane * 8)
        some = mask & alike(sizes, lane, 4)
        if start & (size - 1):
            # rows of narrow texels begin anywhere
            some = 1 << lane
            race_row(context, site, some, start - lane * size, 0, size, size, 8)
        else:
            race_anywhere(context, site, some, addresses, 0, size, size, 8)
        mask = mask & ~some
    return 0


def race_alike(access: LineAccess, lane: int) -> int:
    """The lanes that store the value that a lane stores."""
    size = access.SIZE
    if access.VALUES == 0 or access.WIDTH != size or size > 8:
        return 0
    return alike(access.VALUES, lane, size)


def race_first_of(lanes: int, mask: int) -> int:
    """Those lanes that come before all others of a mask."""
    others = mask & ~lanes
    return mask & lanes & ((others & (0 - others)) - 1)


def race_alone(context: Context, site: int, lane: int, address: int, size: int, how: int) -> int:
    """As ``race_row``, of one lane."""
    width = context.RACE_WIDTH
    values = context.RACE_VALUE
    if values:
        values -= lane * width
    access = race_access(context, site, values, width, size, how)
    return race_line(context, access, lane, address, size)


def race_access(context: Context, site: int, values: int, width: int, size: int, how: int) -> LineAccess:
    """What an instruction of the running warp does."""
    access = LineAccess(context.SCRATCH + LineAccess.PLACE)
    cta = context.CTA
    record = cta.RACES
    flags = load16(context.RACE_SITES + 2 * site)
    access.CTA = cta
    access.RECORD = record
    access.FLAGS = flags
    access.STRONG = 0
    if flags & Race.IS_STRONG:
        access.STRONG = 1
        if flags & Race.NARROW == 0:
            access.STRONG = 5 + 2 * (flags & Race.IN_CLUSTER == 0)
    access.STORES = how & 4
    access.VALUES = values
    access.WIDTH = width
    access.SIZE = size
    access.INFO = site << 14 | context.STATE.INDEX << 9
    access.NUMBER = context.RACE_FIRST + cta.INDEX
    access.EPOCH = 0
    access.RANK = 0
    if record:
        race_again(context, record)
        access.EPOCH = race_epoch(context, record.RANK)
    if context.CLUSTER_CTAS > 1:
        race_in_cluster(context, access)
    return access


def race_in_cluster(context: Context, access: LineAccess) -> int:
    """The CTAs of a cluster are held against one another as the warps of a CTA are."""
    cta = access.CTA
    rank = cta.RANK
    access.RANK = rank
    access.NUMBER = context.RACE_FIRST + cta.CLUSTER.NUMBER
    access.INFO = access.INFO | rank << Race.RANK_PLACE
    if access.RECORD == 0 or context.RACE_SEGMENTS:
        return 0
    access.RECORD = race_shared(cta)
    access.EPOCH = race_epoch(context, 0)
    return 0


def race_line(context: Context, access: LineAccess, lane: int, start: int, part: int) -> int:
    """Lanes from ``lane`` on access ``part`` bytes within a line."""
    offset = start & (Line.BYTES - 1)
    if part > Line.BYTES - offset:
        return 0
    access.START = start
    access.MASK = -1
    if part < Line.BYTES:
        access.MASK = ((1 << part) - 1) << offset
    access.INFO = (access.INFO & -32) | lane
    access.SHAPE = offset | trailing_zeros(access.SIZE) << LineEntry.POWER | (part - 1) << LineEntry.LENGTH
    if context.RACE_SEGMENTS:
        return race_ordered(context, access)
    place = start - context.RACE_FROM
    lines = context.RACE_LINES
    if lines == 0:
        if access.FLAGS & Race.WITHIN:
            race_within(context, access)
        return 0
    if not unsigned_less(place, context.RACE_SPAN):
        return 0
    line = place >> Line.BITS
    cell = Line(lines + line * Line.CELL)
    room = LineRoom(context.RACE_ROOMS + line * LineRoom.BYTES)
    if race_changes_nothing(context, access, cell, room):
        record = Race(access.RECORD)
        if record and record.WINDOW:
            race_within(context, access)
        return 0
    locked = context.RACE_LOCKED
    if locked:
        while compare_swap(cell + Line.LOCK, 0, 1):
            continue
    race_first(context, access, cell, room)
    if locked:
        compare_swap(cell + Line.LOCK, 1, 0)
    return 0


def race_changes_nothing(context: Context, access: LineAccess, cell: Line, room: LineRoom) -> int:
    """Whether CTAs with lower numbers are all that the cell of a line will keep, and the value of what is stored is not the first
    other one. The line is not locked: where all CTAs store to one flag, they need not wait for one another."""
    last = room + LineRoom.LOADERS
    if access.STORES:
        last = room + LineRoom.STORERS
    known = acquire64(last)
    if known >> 32 != context.RACE_FIRST or known & 4294967295 >= access.NUMBER:
        return 0
    if room.KEPT_OF == access.NUMBER:
        return 0
    if access.STORES == 0:
        return 1
    if access.MASK & ~room.STORED:
        return 0
    left = access.MASK & ~cell.DIFFERS
    if left == 0:
        return 1
    if access.FLAGS & Race.IS_STRONG:
        return 0
    return race_differs(access, race_host(context, access.START), left) == 0


def race_first(context: Context, access: LineAccess, cell: Line, room: LineRoom) -> int:
    """Note an access where one warp alone has accessed the line; else hold it against others of its CTA, and note it for when all CTAs
    have ended."""
    launch = context.RACE_FIRST
    number = access.NUMBER
    mask = access.MASK
    start = access.START
    strong = access.STRONG
    window = Window(0)
    epoch = number
    if access.RECORD:
        window = Race(access.RECORD).WINDOW
    if window:
        epoch = access.EPOCH
    if cell.LAUNCH != launch:
        race_fresh(cell, launch)
        cell.OWNER = number
    if cell.FULL == 0:
        entry = race_entry_at(cell, room, access.STORES == 0)
        beside = race_entry_at(cell, room, access.STORES != 0)
        known = entry.WHO
        other = beside.WHO
        fresh = known == 0 and other == 0
        agent = 127
        if window:
            agent = context.RACE_WARP.MASK
        alone = cell.OWNER == number and (known == 0 or (known ^ epoch) & agent == 0)
        # unless what the window knew has given way to another line
        kept = window != 0 and (fresh or race_tag(window, start) == race_tagged(access, start))
        if alone and (kept or window == 0) and (other == 0 or (other ^ epoch) & agent == 0):
            same = known == epoch and entry.STRONG == strong
            over = entry.MASK & ~mask == 0 and entry.STRONG == strong
            if known == 0 or same or over:
                if access.STORES:
                    race_stored(context, access, cell, mask & entry.MASK * (known != 0))
                elif same and entry.MASK & mask == mask:
                    return 0
                if window and fresh:
                    window.TAGS[race_place(start)] = race_tagged(access, start)
                if same:
                    return race_kept(access, entry)
                return race_set(access, entry, epoch, strong)
        race_split(context, cell, room, kept, start)
    if access.STORES:
        stored = room.STORED
        race_stored(context, access, cell, stored & mask)
        room.STORED = stored | mask
    if window:
        if room.KEPT_OF == number:
            race_moved(context, access, window, room)
        known = race_within(context, access)
        if known and access.STORES == 0:
            return 0
    return race_among(context, access, cell, room)


def race_tag(window: Window, start: int) -> int:
    """The tag of the cell of a line in a window."""
    return window.TAGS[race_place(start)]


def race_split(context: Context, cell: Line, room: LineRoom, kept: int, start: int) -> int:
    """A line is no longer that of one warp: the entries of its cell are of a CTA from now on."""
    race_filled(cell, room)
    owner = cell.OWNER
    stored = race_entry_at(cell, room, 0)
    loaded = race_entry_at(cell, room, 1)
    if kept:
        room.KEPT_OF = owner
        copy(room + LineRoom.KEPT, stored, 2 * LineEntry.BYTES)
        copy(room + LineRoom.VALUES, race_host(context, start), Line.BYTES)
    room.STORED = 0
    if stored.WHO:
        room.STORED = stored.MASK
        stored.WHO = owner
        stored.STRONG = stored.STRONG & 2
    if loaded.WHO:
        loaded.WHO = owner
        loaded.STRONG = loaded.STRONG & 2
    return 0


def race_moved(context: Context, access: LineAccess, window: Window, room: LineRoom) -> int:
    """What one warp did to a line goes to the window of its CTA, unless another line has come there since."""
    start = access.START
    room.KEPT_OF = 0
    if race_tag(window, start) != race_tagged(access, start) or Race(access.RECORD).AGAIN:
        return 0
    cell = race_cell(window, start)
    race_fresh(cell, 0)
    copy(race_room(window, start) + LineRoom.VALUES, room + LineRoom.VALUES, Line.BYTES)
    copy(cell + Line.PAIR, room + LineRoom.KEPT, 2 * LineEntry.BYTES)
    who = race_entry_at(cell, room, 0).WHO
    if who == 0:
        who = race_entry_at(cell, room, 1).WHO
    cell.OWNER = (who & context.RACE_WARP.MASK) + 1
    return 0


def race_stored(context: Context, access: LineAccess, cell: Line, stored: int) -> int:
    """Note which bytes a store changes, of those that were stored before."""
    if access.FLAGS & Race.IS_STRONG:
        cell.DIFFERS = cell.DIFFERS | access.MASK
    elif access.VALUES:
        host = race_host(context, access.START)
        left = stored & ~cell.DIFFERS
        if left:
            left = race_differs(access, host, left)
            cell.DIFFERS = cell.DIFFERS | left
        if context.RACE_LOCKED:
            # others run at the same time: the values are stored here, so that they are there when the next one compares
            race_valued(access, host)
    return 0


def race_among(context: Context, access: LineAccess, cell: Line, room: LineRoom) -> int:
    """Note an access of a CTA for when all have ended."""
    number = access.NUMBER
    mask = access.MASK
    strong = access.STRONG & 2
    mine = number << 1 | (strong != 0)
    own = 0
    free = 0
    highest = 0
    last = 0
    index = 0
    while index < 2 * LineRoom.PAIRS:
        entry = race_entry_at(cell, room, index)
        who = entry.WHO
        key = who << 1 | (entry.STRONG != 0)
        conflicts = (access.STORES or index & 1 == 0) and strong & entry.STRONG == 0
        if who and who != number and conflicts and mask & entry.MASK:
            race_suspect(context, cell, access.START)
        if index & 1 == (access.STORES == 0):
            if who == 0:
                free += 1
                if own == 0:
                    own = entry
            elif key == mine:
                if access.STORES == 0 and entry.MASK & mask == mask:
                    # as where the line is that of one CTA, whoever came first
                    return 0
                return race_kept(access, entry)
            elif key > highest:
                highest = key
                last = entry
        index += 1
    # those with the lowest numbers stay, whichever came first
    if own == 0 and highest > mine:
        own = last
    if own:
        race_set(access, LineEntry(own), number, strong)
        if free < 2:
            race_publish(context, access, cell, room)
    return 0


def race_publish(context: Context, access: LineAccess, cell: Line, room: LineRoom) -> int:
    """All entries of stores, or of loads, are in use: say which is the highest number."""
    highest = 0
    index = 0
    if access.STORES == 0:
        index = 1
    while index < 2 * LineRoom.PAIRS:
        who = race_entry_at(cell, room, index).WHO
        if who > highest:
            highest = who
        index += 2
    last = room + LineRoom.LOADERS
    if access.STORES:
        last = room + LineRoom.STORERS
    return release64(last, context.RACE_FIRST << 32 | highest)


def race_suspect(context: Context, cell: Line, start: int) -> int:
    """CTAs have perhaps accessed the same bytes of a line."""
    line = (start - context.RACE_FROM) >> Line.BITS
    cell.SUSPECT = 1
    if line < context.RACE_LOWEST:
        context.RACE_LOWEST = line
    if line > context.RACE_HIGHEST:
        context.RACE_HIGHEST = line
    return 0
