"""Runtime of generated code: records of lines of global memory (``Line``), and reports of pairs of accesses."""

from __future__ import annotations

from ...ir.abi import Context
from ...ir.race_records import Line, LineAccess, LineEntry, LineRoom, Race
from ..intrinsics import copy, differing, trailing_zeros
from .reports import race_report


def race_fresh(cell: Line, launch: int) -> int:
    """Clear the record of a line."""
    cell.LAUNCH = launch
    cell.OWNER = 0
    cell.FULL = 0
    cell.DIFFERS = 0
    LineEntry(cell + Line.PAIR).WHO = 0
    LineEntry(cell + Line.PAIR + LineEntry.BYTES).WHO = 0
    return 0


def race_filled(cell: Line, room: LineRoom) -> int:
    """Initialise the room of a line for further entries."""
    if cell.FULL:
        return 0
    cell.FULL = 1
    room.KEPT_OF = 0
    room.SUSPECT = 0
    room.STORERS = 0
    room.LOADERS = 0
    entry = LineEntry(room + LineRoom.MORE)
    while entry < room + LineRoom.BYTES:
        entry.WHO = 0
        entry = LineEntry(entry + LineEntry.BYTES)
    return 0


def race_entry_at(cell: Line, room: LineRoom, index: int) -> LineEntry:
    """An entry: those of stores have even numbers, those of loads odd ones."""
    if index < 2:
        return LineEntry(cell + Line.PAIR + index * LineEntry.BYTES)
    return LineEntry(room + LineRoom.MORE + (index - 2) * LineEntry.BYTES)


def race_set(access: LineAccess, entry: LineEntry, who: int, strong: int) -> int:
    """Set an entry to its first access."""
    entry.WHO = who
    entry.BY = access.INFO
    entry.MASK = access.MASK
    entry.AT = access.SHAPE
    entry.STRONG = strong
    entry.EPOCH = access.EPOCH
    return 0


def race_kept(access: LineAccess, entry: LineEntry) -> int:
    """Add an access to its entry. If it continues the last one of the same warp and instruction, by the next lane or by the same
    lane, both become one access."""
    info = access.INFO
    shape = access.SHAPE
    entry.MASK = entry.MASK | access.MASK
    entry.EPOCH = access.EPOCH
    last = entry.AT
    length = (last >> LineEntry.LENGTH) + 1
    if (entry.BY ^ info) < 32 and (last & (Line.BYTES - 1)) + length == shape & (Line.BYTES - 1):
        more = (shape >> LineEntry.LENGTH) + 1
        power = last >> LineEntry.POWER & 7
        other = shape >> LineEntry.POWER & 7
        joined = last + (more << LineEntry.LENGTH)
        if entry.BY == info and length >> power < 2 and more >> other < 2:
            # all bytes are of one lane
            entry.AT = joined & ~(7 << LineEntry.POWER) | Line.BITS << LineEntry.POWER
            return 0
        if power == other and info & 31 == (entry.BY & 31) + (length >> power):
            entry.AT = joined
            return 0
    entry.AT = shape
    entry.BY = info
    return 0


def race_differs(access: LineAccess, host: int, overlap: int) -> int:
    """Which bytes of a line a store changes, compared with the bytes at ``host``. 0 for instructions other than stores, whose values
    are unknown: they are not reported."""
    if access.IMAGE == 0:
        return 0
    return overlap & differing(host, access.IMAGE)


def race_valued(access: LineAccess, host: int) -> int:
    """Write the stored values to the bytes of a line at ``host``."""
    left = access.MASK
    while left:
        byte = trailing_zeros(left)
        length = trailing_zeros(~(left >> byte))
        if length > Line.BYTES - byte:
            length = Line.BYTES - byte
        copy(host + byte, access.IMAGE + byte, length)
        left = left & (-2 << (byte + length - 1))
    return 0


def race_host(context: Context, start: int) -> int:
    """The host address of a line."""
    return (start & (0 - Line.BYTES)) + context.ARENA


def race_strength(flags: int) -> int:
    """The value of ``LineEntry.STRONG`` for a site with these flags."""
    if flags & Race.IS_STRONG == 0:
        return 0
    if flags & Race.NARROW:
        return 1
    return 5 + 2 * (flags & Race.IN_CLUSTER == 0)


def race_report_line(
    context: Context,
    kind: int,
    number: int,
    other: int,
    before: int,
    behind: int,
    after: int,
    shape: int,
    overlap: int,
    start: int,
) -> int:
    """Report two accesses that overlap in some bytes of a line; each has the details of its epoch and its extent in the line."""
    kind = kind | Race.FAR
    exact = overlap & race_bytes(behind) & race_bytes(shape)
    if exact:
        overlap = exact
    else:
        kind = kind | Race.NEAR_BY
    byte = trailing_zeros(overlap)
    place = (start & (0 - Line.BYTES)) + byte
    before = race_lane(before, behind, byte)
    after = race_lane(after, shape, byte)
    if context.CLUSTER_CTAS > 1:
        number = number << Race.RANK_BITS | before >> Race.RANK_PLACE
        other = other << Race.RANK_BITS | after >> Race.RANK_PLACE
        before = before & Race.BEHIND
        after = after & Race.BEHIND
    return race_report(context, number, other, before, after, place, kind)


def race_bytes(shape: int) -> int:
    """The bytes of the line that an access covers, as a mask."""
    length = (shape >> LineEntry.LENGTH) + 1
    if length < Line.BYTES:
        return ((1 << length) - 1) << (shape & (Line.BYTES - 1))
    return -1


def race_lane(info: int, shape: int, byte: int) -> int:
    """The details of an epoch with the lane that accesses one byte of the line; unchanged if that lane is not known (``NEAR_BY``)."""
    if race_bytes(shape) >> byte & 1 == 0:
        return info
    lane = (info & 31) + ((byte - (shape & (Line.BYTES - 1))) >> (shape >> LineEntry.POWER & 7))
    if lane > 31:
        return info
    return (info & -32) | lane
