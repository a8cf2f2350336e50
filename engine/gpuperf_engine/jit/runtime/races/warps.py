"""Runtime of generated code: checks accesses of warps to global memory by vector clocks.

For these see ``races.clocks``. Where no CTA can wait for another one, each CTA has a window with cells for the lines that it accessed
last. Otherwise all CTAs share the cell of a line, which distinguishes them by segments.
"""

from __future__ import annotations

from ...ir.abi import Context
from ...ir.race_records import Line, LineAccess, LineEntry, LineRoom, Race, RaceWarp, Window
from ..intrinsics import unsigned_less
from .blocks import race_number, race_segment, race_segment_at
from .clocks import race_epoch, race_happened_before
from .lines import (
    race_differs,
    race_entry_at,
    race_filled,
    race_fresh,
    race_host,
    race_kept,
    race_report_line,
    race_set,
    race_valued,
)


def race_within(context: Context, access: LineAccess) -> int:
    """Check an access against those of other warps of the CTA; returns whether an equal access was already recorded."""
    record = Race(access.RECORD)
    if record == 0 or record.NOW == Race.LAST:
        return 0
    window = record.WINDOW
    cell = race_window_cell(access, window)
    room = race_room(access, window, access.START)
    me = context.RACE_WARP
    strong = access.STRONG
    repeats = strong == 0 or (access.IMAGE == 0 and (strong & 2 or context.CLUSTER_CTAS < 2))
    if (
        access.STORES
        and access.RANK == 0
        and repeats
        and cell.OWNER == Line.SHARED
        and race_repeats(context, access, cell, room, me)
    ):
        return 0
    me.TURN = access.RANK
    known = race_entry(context, access, cell, room, (access.EPOCH & me.MASK) + 1, access.EPOCH, 1)
    me.TURN = 0
    if access.IMAGE and context.RACE_LINES:
        race_valued(access, room + LineRoom.VALUES)
    return known


def race_replayed(context: Context, access: LineAccess, pair: LineEntry, host: int) -> int:
    """Record in the window of the CTA the last store and load of a word that only this CTA had accessed, both before the current
    access. ``host``: the host address of the line's bytes, as they were then."""
    record = Race(access.RECORD)
    if record.AGAIN or record.NOW == Race.LAST:
        return 0
    start = access.START
    window = record.WINDOW
    cell = race_window_cell(access, window)
    room = race_room(access, window, start)
    me = context.RACE_WARP
    mask = access.MASK
    info = access.INFO
    shape = access.SHAPE
    strong = access.STRONG
    stores = access.STORES
    flags = access.FLAGS
    epoch = access.EPOCH
    image = access.IMAGE
    access.FLAGS = flags & ~Race.IMAGE
    me.TURN = access.RANK
    index = 0
    while index < 2:
        if pair.WHO:
            access.MASK = pair.MASK
            access.INFO = pair.BY
            access.SHAPE = pair.AT
            access.STRONG = pair.STRONG
            access.EPOCH = pair.EPOCH
            access.STORES = 4 * (index == 0)
            access.IMAGE = host
            # these were already checked against one another, and no other CTA had accessed the word
            race_entry(context, access, cell, room, (pair.EPOCH & me.MASK) + 1, pair.EPOCH, 0)
            if index == 0:
                race_valued(access, room + LineRoom.VALUES)
        pair = LineEntry(pair + LineEntry.BYTES)
        index += 1
    me.TURN = 0
    access.MASK = mask
    access.INFO = info
    access.SHAPE = shape
    access.STRONG = strong
    access.STORES = stores
    access.FLAGS = flags
    access.EPOCH = epoch
    access.IMAGE = image
    return 0


def race_window_cell(access: LineAccess, window: Window) -> Line:
    """The cell in a window for the accessed line or word; cleared if it was another one's."""
    start = access.START
    cell = race_cell(access, window, start)
    tag = race_tagged(access, start)
    if window.TAGS[race_place(access, start)] != tag:
        race_fresh(cell, 0)
        window.TAGS[race_place(access, start)] = tag
    return cell


def race_repeats(context: Context, access: LineAccess, cell: Line, room: LineRoom, me: RaceWarp) -> int:
    """Whether an access repeats concurrent ones: a store of the value that memory has, as when all threads set a flag, or a load or
    an atomic like those of the same bytes. The line must have only such entries, or entries for other bytes, that are not ordered
    before the access. It is then recorded as by ``race_entries``."""
    mask = access.MASK
    strong = access.STRONG
    epoch = access.EPOCH
    base = me.BASE
    agents = me.MASK
    side = (access.STORES == 0) * LineEntry.BYTES
    own = 0
    free = 0
    early = 0
    first = race_entry_at(cell, room, 0)
    pair = 0
    while pair < LineRoom.PAIRS:
        entry = LineEntry(first + side)
        other = LineEntry(first + (LineEntry.BYTES - side))
        known = entry.WHO
        if (other.WHO and other.MASK & mask) or (known and entry.MASK & mask and entry.STRONG != strong):
            return 0
        if known == 0:
            free = entry
        elif known == epoch and entry.STRONG == strong:
            own = entry
        elif known == epoch:
            early = entry
        elif known < base or (known ^ epoch) & agents == 0 or me.CLOCK[known & agents] >= known >> 8:
            return 0
        first = LineEntry(room + LineRoom.MORE + pair * 2 * LineEntry.BYTES)
        pair += 1
    if access.STORES and strong == 0:
        host = room + LineRoom.VALUES
        if context.RACE_LINES == 0:
            host = race_host(context, access.START)
        if race_differs(access, host, mask):
            return 0
    if own:
        race_kept(access, LineEntry(own))
        return 1
    if free == 0:
        free = early
    if free == 0:
        free = race_entry_at(cell, room, epoch % LineRoom.PAIRS * 2 + (side != 0))
    race_set(access, LineEntry(free), epoch, strong)
    return 1


def race_unit(access: LineAccess, start: int) -> int:
    """The number of the line at an address, or of the word if words are checked."""
    return start >> access.UNIT


def race_place(access: LineAccess, start: int) -> int:
    """The number of the cell of a line or word in a window."""
    return race_unit(access, start) & (Window.LINES - 1)


def race_room(access: LineAccess, window: Window, start: int) -> LineRoom:
    """The room of a line or word in a window."""
    return LineRoom(window + Window.ROOMS + race_place(access, start) * LineRoom.BYTES)


def race_cell(access: LineAccess, window: Window, start: int) -> Line:
    """The cell of a line or word in a window."""
    return Line(window + race_place(access, start) * Line.CELL)


def race_tagged(access: LineAccess, start: int) -> int:
    """The tag of a line or word that the CTA has accessed. The lowest bits of its number are those of the cell."""
    words = (access.FLAGS & Race.WORDS != 0) << 31
    return access.NUMBER << 32 | words | (race_unit(access, start) >> Window.LINES_BITS & 2147483647)


def race_ordered(context: Context, access: LineAccess) -> int:
    """Check an access against those of all warps of all CTAs."""
    record = Race(access.RECORD)
    place = access.START - context.RACE_FROM
    if record == 0 or not unsigned_less(place, context.RACE_SPAN):
        return 0
    cta = access.CTA
    if context.RACE_AGENT and context.CLUSTER_CTAS > 1:
        # a copy that completes on the mbarrier of another CTA
        cta = cta.CLUSTER.PEERS[context.RACE_AGENT >> 32]
        record = cta.RACES
        access.EPOCH = race_epoch(context, record.RANK)
    segment = race_segment(context, cta, record, access.EPOCH)
    if segment == 0 or record.NOW == Race.LAST:
        return 0
    cell = Line(context.RACE_LINES + (place >> Line.BITS) * Line.CELL)
    room = LineRoom(context.RACE_ROOMS + (place >> Line.BITS) * LineRoom.BYTES)
    if cell.LAUNCH != context.RACE_FIRST:
        race_fresh(cell, context.RACE_FIRST)
    who = (race_number(context, cta) << 7 | (access.EPOCH & 127)) + 1
    return race_entry(context, access, cell, room, who, segment, 1)


def race_entry(
    context: Context, access: LineAccess, cell: Line, room: LineRoom, who: int, number: int, held: int
) -> int:
    """Check an access of an agent (``who``) against those in the cell of its line, unless ``held`` is 0, and record it there under a
    number; returns whether an equal access was already recorded."""
    strong = access.STRONG
    mask = access.MASK
    owner = cell.OWNER
    if owner == 0:
        owner = who
        cell.OWNER = who
    if owner == who and cell.FULL == 0:
        entry = race_entry_at(cell, room, access.STORES == 0)
        if access.FLAGS & Race.IMAGE:
            race_stale(context, access, room, race_entry_at(cell, room, 0))
        if entry.WHO == 0:
            return race_set(access, entry, number, strong)
        if entry.STRONG == strong:
            if entry.WHO == number:
                if access.STORES == 0 and entry.MASK & mask == mask:
                    return 1
                return race_kept(access, entry)
            if entry.MASK & ~mask == 0:
                return race_set(access, entry, number, strong)
    race_filled(cell, room)
    if owner != who:
        cell.OWNER = Line.SHARED
    return race_entries(context, access, cell, room, number, held)


def race_entries(
    context: Context, access: LineAccess, cell: Line, room: LineRoom, number: int, held: int
) -> int:
    """As ``race_entry``, for a line that several agents have accessed. A load replaces loads of the same bytes that happened before,
    and a store replaces such stores: a later access that races with them races with this one too. A store replaces loads only if they
    come before the last barrier of all warps, because a store of the same value races with these loads but not with the store."""
    mask = access.MASK
    strong = access.STRONG
    stores = access.STORES
    own = 0
    free = 0
    early = 0
    index = 0
    me = context.RACE_WARP
    lonely = context.RACE_SEGMENTS == 0 and context.CLUSTER_CTAS < 2
    entry = race_entry_at(cell, room, 0)
    while index < 2 * LineRoom.PAIRS:
        known = entry.WHO
        same = index & 1 == (stores == 0)
        overlap = mask & entry.MASK
        if known == 0:
            if same:
                free = entry
        elif known == number and entry.STRONG == strong and same:
            own = entry
        elif overlap or same:
            before = known == number or race_precedes(context, access, known)
            if before and same:
                early = entry
            gone = same or (stores and lonely and known < me.BASE)
            if before and overlap and gone and strong & ~entry.STRONG == 0:
                overlap = entry.MASK & ~mask
                entry.MASK = overlap
                if overlap == 0:
                    entry.WHO = 0
                    if same:
                        free = entry
            elif before == 0 and held and overlap and (stores or index & 1 == 0):
                race_of_warps(context, access, known, room, entry, index & 1, overlap)
            elif before and overlap and index & 1 == 0 and access.FLAGS & Race.IMAGE:
                race_stale(context, access, room, entry)
        index += 1
        entry = LineEntry(entry + LineEntry.BYTES)
        if index == 2:
            entry = LineEntry(room + LineRoom.MORE)
    if own:
        if stores == 0 and LineEntry(own).MASK & mask == mask:
            # as where only one warp has accessed the line
            return 1
        return race_kept(access, LineEntry(own))
    if free == 0:
        free = early
    if free == 0:
        free = race_entry_at(cell, room, number % LineRoom.PAIRS * 2 + (stores == 0))
    return race_set(access, LineEntry(free), number, strong)


def race_stale(context: Context, access: LineAccess, room: LineRoom, entry: LineEntry) -> int:
    """Report a read through a texture or surface of bytes that were stored before, if any were."""
    overlap = entry.MASK & access.MASK
    if access.STORES or entry.WHO == 0 or overlap == 0:
        return 0
    return race_of_warps(context, access, entry.WHO, room, entry, Race.UNFENCED, overlap)


def race_precedes(context: Context, access: LineAccess, known: int) -> int:
    """Whether the access recorded under a number happened before the current access."""
    me = context.RACE_WARP
    if context.RACE_SEGMENTS == 0:
        return race_happened_before(me, known)
    segment = race_segment_at(context, known)
    if segment.RELEASED and segment.RELEASED <= me.CLOCK[Race.OF_OTHERS]:
        return 1
    turn = segment.CTA ^ race_number(context, access.CTA)
    if turn >> Race.RANK_BITS or (turn and context.CLUSTER_CTAS < 2):
        return 0
    me.TURN = turn
    before = race_happened_before(me, segment.EPOCH)
    me.TURN = 0
    return before


def race_of_warps(
    context: Context, access: LineAccess, known: int, room: LineRoom, entry: LineEntry, loaded: int, overlap: int
) -> int:  # fmt: skip
    """Report the race of an access with that of an entry, a load (``loaded`` 1) or a store, which nothing orders, unless both store
    the same value; ``loaded`` ``UNFENCED``: the accesses are ordered."""
    number = access.NUMBER - context.RACE_FIRST
    other = number
    if context.RACE_SEGMENTS:
        other = race_segment_at(context, known).CTA
    if context.CLUSTER_CTAS > 1 and context.RACE_SEGMENTS:
        other = other >> Race.RANK_BITS
    near = other == number
    together = near
    if context.CLUSTER_CTAS > 1:
        together = near and entry.BY >> Race.RANK_PLACE == access.RANK
    strong = access.STRONG & entry.STRONG
    if strong & 2 or (strong & 4 and near) or (strong and together):
        return 0
    kind = Race.RAW | loaded & Race.UNFENCED
    if access.STORES:
        kind = Race.WAW
        if loaded:
            kind = Race.WAR
    if kind == Race.WAW and (access.STRONG | entry.STRONG) == 0:
        host = race_host(context, access.START)
        if context.RACE_LINES and context.RACE_SEGMENTS == 0:
            # other CTAs may store there at any time
            host = room + LineRoom.VALUES
        overlap = race_differs(access, host, overlap)
        if overlap == 0:
            return 0
    if together:
        kind = kind | Race.OF_ONE
    return race_report_line(
        context, kind, other, number, entry.BY, entry.AT, access.INFO, access.SHAPE, overlap, access.START
    )  # fmt: skip
