"""Runtime of generated code: accesses of global memory by several CTAs are held against one another. PYTEST_DONT_REWRITE

It is checked where no CTA can wait for another one, so that nothing orders them. Each line of it has slots: a CTA with the
bytes that it loaded and stored.
"""

from __future__ import annotations

from ..ir.abi import Context, Cta, Race, State
from .compile_python import (
    compare_swap,
    load8,
    load16,
    load32,
    load64,
    store16,
    store32,
    store64,
    trailing_zeros,
    unsigned_less,
)
from .races import race_noted


def race_row(
    context: int, site: int, mask: int, first: int, values: int, width: int, size: int, how: int
) -> int:
    """Accesses of global memory by lanes side by side; ``first`` is the address of lane 0. ``values`` as in ``race_lanes``."""
    lines = load64(context + Context.RACE_LINES)
    from_ = load64(context + Context.RACE_FROM)
    span = load64(context + Context.RACE_SPAN)
    locks = load64(context + Context.RACE_LOCKS)
    oldest = load64(context + Context.RACE_FIRST) << 1
    stamp = race_stamp(context, site)
    info = site << 14 | load32(load64(context + Context.STATE) + State.INDEX) << 9
    power = trailing_zeros(size)
    while mask:
        lane = trailing_zeros(mask)
        lanes = trailing_zeros(~(mask >> lane))
        mask = mask & ~(((1 << lanes) - 1) << lane)
        start = first + lane * size
        end = start + lanes * size
        while start < end:
            offset = start & (Race.LINE_BYTES - 1)
            part = Race.LINE_BYTES - offset
            if part > end - start:
                part = end - start
            place = start - from_
            cell = lines + (place >> Race.LINE_BITS) * (Race.SLOT * Race.SLOTS_COUNT)
            if not unsigned_less(place, span) or lines == 0:
                return 0
            known = 0
            if locks == 0 and load32(cell + Race.SLOT) < oldest:
                known = load32(cell)
                if known < oldest:
                    known = stamp
                    store32(cell, stamp)
                    store64(cell + Race.STORED, 0)
                    store64(cell + Race.LOADED, 0)
            if known == stamp:
                # no other CTA has been here
                bytes_ = -1
                if part < Race.LINE_BYTES:
                    bytes_ = ((1 << part) - 1) << offset
                shape = offset | power << Race.POWER | (part - 1) << Race.LENGTH
                race_kept(cell, info | lane, shape, bytes_, how)
            else:
                race_line(context, site, lane, start, part, values, width, size, how)
            start += part
            lane += part >> power
    return 0


def race_stamp(context: int, site: int) -> int:
    """Of accesses of global memory by the CTA that runs."""
    number = load64(context + Context.RACE_FIRST) + load64(load64(context + Context.CTA) + Cta.INDEX)
    if load8(load64(context + Context.RACE_SITES) + site) & Race.IS_STRONG:
        return number << 1 | 1
    return number << 1


def race_kept(slot: int, info: int, shape: int, mask: int, how: int) -> int:
    """Note an access in the slot of its CTA; one that goes on where the last one of its warp and instruction ended is one with it."""
    at = slot + Race.LOADED_AT
    by = slot + Race.LOADED_BY
    plane = slot + Race.LOADED
    if how & 4:
        at = slot + Race.STORED_AT
        by = slot + Race.STORED_BY
        plane = slot + Race.STORED
    known = load64(plane)
    if known and (load32(by) ^ info) < 32:
        last = load16(at)
        end = (last & (Race.LINE_BYTES - 1)) + (last >> Race.LENGTH) + 1
        if end == shape & (Race.LINE_BYTES - 1) and ((last ^ shape) >> Race.POWER & 7) == 0:
            store16(at, last + (((shape >> Race.LENGTH) + 1) << Race.LENGTH))
            store64(plane, known | mask)
            return 0
    store16(at, shape)
    store32(by, info)
    store64(plane, known | mask)
    return 0


def race_anywhere(
    context: int, site: int, mask: int, addresses: int, values: int, width: int, size: int, how: int
) -> int:
    """As ``race_row``, of lanes at any addresses."""
    while mask:
        lane = trailing_zeros(mask)
        mask = mask & (mask - 1)
        start = load64(addresses + lane * 8)
        end = start + size
        after = lane + 1
        while mask >> after & 1 and end & (Race.LINE_BYTES - 1) and load64(addresses + after * 8) == end:
            mask = mask & (mask - 1)
            end += size
            after += 1
        # a place that all lanes load from
        while how & 4 == 0 and mask and load64(addresses + trailing_zeros(mask) * 8) == start:
            mask = mask & (mask - 1)
        race_line(context, site, lane, start, end - start, values, width, size, how)
    return 0


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
    place = start - load64(context + Context.RACE_FROM)
    lines = load64(context + Context.RACE_LINES)
    if lines == 0 or not unsigned_less(place, load64(context + Context.RACE_SPAN)):
        return 0
    if part > Race.LINE_BYTES - (place & (Race.LINE_BYTES - 1)):
        return 0
    line = place >> Race.LINE_BITS
    cell = lines + line * (Race.SLOT * Race.SLOTS_COUNT)
    locks = load64(context + Context.RACE_LOCKS)
    if locks:
        locks += line & (Race.LOCKS - 1)
        while compare_swap(locks, 0, 1):
            continue
    race_slots(context, site, lane, cell, start, part, values, width, size, how)
    if locks:
        compare_swap(locks, 1, 0)
    return 0


def race_slots(
    context: int,
    site: int,
    lane: int,
    cell: int,
    start: int,
    part: int,
    values: int,
    width: int,
    size: int,
    how: int,
) -> int:
    """Hold an access against those of other CTAs to its line, and note it there."""
    oldest = load64(context + Context.RACE_FIRST) << 1
    stamp = race_stamp(context, site)
    offset = start & (Race.LINE_BYTES - 1)
    mask = -1
    if part < Race.LINE_BYTES:
        mask = ((1 << part) - 1) << offset
    info = site << 14 | load32(load64(context + Context.STATE) + State.INDEX) << 9 | lane
    shape = offset | trailing_zeros(size) << Race.POWER | (part - 1) << Race.LENGTH
    own = 0
    slot = cell
    end = cell + Race.SLOT * Race.SLOTS_COUNT
    while slot < end:
        other = load32(slot)
        if other < oldest:
            break
        if other == stamp:
            own = slot
        elif other >> 1 != stamp >> 1 and other & stamp & 1 == 0:
            met = mask & load64(slot + Race.STORED)
            if met and how & 4 == 0:
                race_met(context, slot, met, stamp, info, shape, start, Race.RAW)
            elif met and race_differs(context, lane, met, other | stamp, start, values, width, size):
                race_met(context, slot, met, stamp, info, shape, start, Race.WAW)
            met = mask & load64(slot + Race.LOADED)
            if met and how & 4:
                race_met(context, slot, met, stamp, info, shape, start, Race.WAR)
        slot += Race.SLOT
    if own == 0:
        if slot == end:
            slot = race_room(cell, stamp, how)
            if slot == 0:
                return 0
        own = slot
        store32(own, stamp)
        store64(own + Race.STORED, 0)
        store64(own + Race.LOADED, 0)
    race_kept(own, info, shape, mask, how)
    return 0


def race_room(cell: int, stamp: int, how: int) -> int:
    """Whose slot is taken over where a line has none left; 0: that of nobody. CTAs that only load go first; the first one stays."""
    turn = 0
    while turn < Race.SLOTS_COUNT - 1:
        slot = cell + (1 + ((stamp >> 1) + turn) % (Race.SLOTS_COUNT - 1)) * Race.SLOT
        if load64(slot + Race.STORED) == 0:
            return slot
        turn += 1
    if how & 4:
        return cell + (1 + (stamp >> 1) % (Race.SLOTS_COUNT - 1)) * Race.SLOT
    return 0


def race_differs(
    context: int, first: int, met: int, stamps: int, start: int, values: int, width: int, size: int
) -> int:
    """Whether a store of lanes from ``first`` on changes any of some bytes of a line. An atomic does; of other instructions than
    stores nobody knows, and so they are not told."""
    if stamps & 1:
        return 1
    if values == 0:
        return 0
    line = start & (0 - Race.LINE_BYTES)
    while met:
        byte = trailing_zeros(met)
        met = met & (met - 1)
        place = line + byte - start
        lane = first + place // size
        within = place % size
        at = within // width * width * 32 + lane * width + within % width
        if load8(line + byte + load64(context + Context.ARENA)) != load8(values + at):
            return 1
    return 0


def race_met(
    context: int, slot: int, met: int, stamp: int, info: int, shape: int, start: int, kind: int
) -> int:
    """An access has a race with those of a slot, in some bytes. The CTA with the lower number is told first, whichever ran first."""
    first = load64(context + Context.RACE_FIRST)
    before = load32(slot + Race.STORED_BY)
    behind = load16(slot + Race.STORED_AT)
    if kind == Race.WAR:
        before = load32(slot + Race.LOADED_BY)
        behind = load16(slot + Race.LOADED_AT)
    length = (behind >> Race.LENGTH) + 1
    last = -1
    if length < Race.LINE_BYTES:
        last = ((1 << length) - 1) << (behind & (Race.LINE_BYTES - 1))
    far = Race.FAR
    if met & last:
        met = met & last
    else:
        far = Race.FAR | Race.NEAR_BY
    byte = trailing_zeros(met)
    place = (start & (0 - Race.LINE_BYTES)) + byte
    other = (load32(slot) >> 1) - first
    number = (stamp >> 1) - first
    before = race_lane(before, behind, byte)
    after = race_lane(info, shape, byte)
    if other < number:
        return race_noted(context, other, number, before, after, place, far | kind)
    if kind != Race.WAW:
        kind = Race.RAW + Race.WAR - kind
    return race_noted(context, number, other, after, before, place, far | kind)


def race_lane(info: int, shape: int, byte: int) -> int:
    """What is behind a stamp, with the lane that accesses one byte of the line."""
    begins = shape & (Race.LINE_BYTES - 1)
    if byte >= begins:
        lane = (info & 31) + ((byte - begins) >> (shape >> Race.POWER & 7))
        if lane < 32:
            return (info & -32) | lane
    return info
