"""Runtime of generated code: cells of lines of global memory (``Line``), and reports of two accesses."""

from __future__ import annotations

from ..ir.abi import Line, Race
from .compile_python import (
    copy,
    load8,
    load16,
    load32,
    load64,
    store8,
    store16,
    store32,
    store64,
    trailing_zeros,
)
from .races_reports import race_report


def race_fresh(cell: int, launch: int) -> int:
    """Of a line nothing is known."""
    store32(cell + Line.LAUNCH, launch)
    store32(cell + Line.OWNER, 0)
    store32(cell + Line.FULL, 0)
    store64(cell + Line.DIFFERS, 0)
    store32(cell + Line.PAIR + Line.WHO, 0)
    store32(cell + Line.PAIR + Line.ENTRY + Line.WHO, 0)
    return 0


def race_filled(cell: int, room: int) -> int:
    """The room of a line is in use."""
    if load8(cell + Line.FULL):
        return 0
    store8(cell + Line.FULL, 1)
    store32(room + Line.KEPT_OF, 0)
    entry = room + Line.MORE
    while entry < room + Line.ROOM:
        store32(entry + Line.WHO, 0)
        entry += Line.ENTRY
    return 0


def race_entry_at(cell: int, room: int, index: int) -> int:
    """An entry: those of stores have even numbers, those of loads odd ones."""
    if index < 2:
        return cell + Line.PAIR + index * Line.ENTRY
    return room + Line.MORE + (index - 2) * Line.ENTRY


def race_set(entry: int, who: int, strong: int, info: int, shape: int, mask: int) -> int:
    """The first access of an entry."""
    store32(entry + Line.WHO, who)
    store32(entry + Line.BY, info)
    store64(entry + Line.MASK, mask)
    store16(entry + Line.AT, shape)
    store8(entry + Line.STRONG, strong)
    return 0


def race_kept(entry: int, info: int, shape: int, mask: int) -> int:
    """Note an access in its entry; one that goes on where the last one of its warp and instruction ended is one with it."""
    known = load64(entry + Line.MASK)
    store64(entry + Line.MASK, known | mask)
    if (load32(entry + Line.BY) ^ info) < 32:
        last = load16(entry + Line.AT)
        end = (last & (Line.BYTES - 1)) + (last >> Line.LENGTH) + 1
        if end == shape & (Line.BYTES - 1) and ((last ^ shape) >> Line.POWER & 7) == 0:
            store16(entry + Line.AT, last + (((shape >> Line.LENGTH) + 1) << Line.LENGTH))
            return 0
    store16(entry + Line.AT, shape)
    store32(entry + Line.BY, info)
    return 0


def race_value(lane: int, place: int, values: int, width: int, size: int) -> int:
    """Where the value of a byte is that lanes from ``lane`` on store, each ``size`` bytes, a power of 2, by elements of ``width``."""
    if width == size:
        return values + lane * width + place
    within = place & (size - 1)
    bits = trailing_zeros(width)
    element = (within >> bits) * 32 + lane + (place >> trailing_zeros(size))
    return values + (element << bits) + (within & (width - 1))


def race_differs(host: int, lane: int, overlap: int, start: int, values: int, width: int, size: int) -> int:
    """Which bytes of a line a store of lanes from ``lane`` on changes, where those of the line lie at ``host``. Of other instructions
    than stores nobody knows, and so they are not reported."""
    if values == 0:
        return 0
    line = start & (0 - Line.BYTES)
    found = 0
    while overlap:
        byte = trailing_zeros(overlap)
        value = race_value(lane, line + byte - start, values, width, size)
        together = width == size or width == 8
        if (
            together
            and byte & 7 == 0
            and overlap >> byte & 255 == 255
            and load64(host + byte) == load64(value)
        ):
            overlap = overlap & ~(255 << byte)
            continue
        overlap = overlap & (overlap - 1)
        if load8(host + byte) != load8(value):
            found = found | 1 << byte
    return found


def race_valued(host: int, lane: int, length: int, start: int, values: int, width: int, size: int) -> int:
    """Store so many bytes to a line whose bytes lie at ``host``."""
    host += start & (Line.BYTES - 1)
    if width == size:
        copy(host, values + lane * width, length)
        return 0
    place = 0
    while place < length:
        copy(host + place, race_value(lane, place, values, width, size), width)
        place += width
    return 0


def race_report_line(
    context: int,
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
    """Report two accesses that overlap in some bytes of a line, each with what is behind its epoch, and where it lies."""
    kind = kind | Race.FAR
    exact = overlap & race_bytes(behind) & race_bytes(shape)
    if exact:
        overlap = exact
    else:
        kind = kind | Race.NEAR_BY
    byte = trailing_zeros(overlap)
    place = (start & (0 - Line.BYTES)) + byte
    return race_report(
        context, number, other, race_lane(before, behind, byte), race_lane(after, shape, byte), place, kind
    )  # fmt: skip


def race_bytes(shape: int) -> int:
    """Those of the line in which an access lies."""
    length = (shape >> Line.LENGTH) + 1
    if length < Line.BYTES:
        return ((1 << length) - 1) << (shape & (Line.BYTES - 1))
    return -1


def race_lane(info: int, shape: int, byte: int) -> int:
    """What is behind an epoch, with the lane that accesses one byte of the line."""
    begins = shape & (Line.BYTES - 1)
    if byte >= begins:
        lane = (info & 31) + ((byte - begins) >> (shape >> Line.POWER & 7))
        if lane < 32:
            return (info & -32) | lane
    return info
