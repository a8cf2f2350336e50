"""Runtime of generated code: after the end of CTAs that nothing orders, compares the accesses recorded for lines and words of global
memory.

See ``races.global_memory``.
"""

from __future__ import annotations

from ...ir.abi import Context
from ...ir.race_records import Line, LineEntry, LineRoom, Race
from .lines import race_entry_at, race_report_line
from .words import race_word_cell, race_word_room


def race_settle(context: Context, line: int, last: int) -> int:
    """All CTAs have ended: report the races in these lines."""
    while line <= last:
        cell = Line(context.RACE_LINES + line * Line.CELL)
        room = LineRoom(context.RACE_ROOMS + line * LineRoom.BYTES)
        if cell.LAUNCH == context.RACE_FIRST and cell.FULL and room.SUSPECT:
            race_pairs(context, cell, room, context.RACE_FROM + line * Line.BYTES)
        line += 1
    return 0


def race_settle_words(context: Context, number: int, last: int) -> int:
    """All CTAs have ended: report the races in the words with these cells."""
    while number < last:
        cell = race_word_cell(context, number)
        room = race_word_room(context, number)
        if room.SUSPECT:
            race_pairs(context, cell, room, context.RACE_FROM + cell.OWNER * Line.BYTES)
        number += 1
    return 0


def race_pairs(context: Context, cell: Line, room: LineRoom, start: int) -> int:
    """Check each pair of entries of a line or word in which the first is of stores. The CTA with the lower number is reported as the
    first one, independently of the order in which they ran."""
    number = 0
    while number < 2 * LineRoom.PAIRS * LineRoom.PAIRS:
        one = race_entry_at(cell, room, number // (2 * LineRoom.PAIRS) * 2)
        other = race_entry_at(cell, room, number % (2 * LineRoom.PAIRS))
        stores = number & 1 == 0
        overlap = one.MASK & other.MASK
        if stores and (one.STRONG | other.STRONG) == 0:
            overlap = overlap & cell.DIFFERS
        if one.STRONG & other.STRONG:
            overlap = 0
        before = one.WHO
        after = other.WHO
        if overlap and before and after and before != after and (before < after or stores == 0):
            if after < before:
                race_report_entries(context, Race.WAR, other, one, overlap, start)
            elif stores:
                race_report_entries(context, Race.WAW, one, other, overlap, start)
            else:
                race_report_entries(context, Race.RAW, one, other, overlap, start)
        number += 1
    return 0


def race_report_entries(
    context: Context, kind: int, one: LineEntry, other: LineEntry, overlap: int, start: int
) -> int:
    """Report the accesses of two entries, which overlap in some bytes of a line."""
    first = context.RACE_FIRST
    return race_report_line(
        context, kind, one.WHO - first, other.WHO - first, one.BY, one.AT, other.BY, other.AT, overlap, start
    )
