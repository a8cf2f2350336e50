"""Runtime of generated code: loads, stores and asynchronous copies of the lanes of a warp, one lane after the other.

Written in the subset of ``compile_python`` and compiled, never run as Python.
"""

from __future__ import annotations

from ...ir.abi import UNWRITTEN, Context, Cta, State
from ...ir.access_records import UnseenRecord
from ...ir.race_records import Race
from ..count import count_lanes
from ..intrinsics import (
    fill,
    last_of,
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
from ..memory import is_local, keep_unseen, near, note, own_words, reach, unseen, written_words
from ..races.groups import race_copies
from ..races.shared_memory import race_pieces


def move(host: int, elements: int, size: int, width: int, lane: int, local: int, stores: int) -> int:
    """Copy the access of one lane between memory and ``elements``; element e of lane l is at ``elements[e · 32 + l]``."""
    part = width
    if local and width > 4:
        part = 4
    done = 0
    while done < size:
        source = host + done
        if local:
            source = host + (done >> 2) * 128 + (done & 3)
        target = elements + done // width * width * 32 + lane * width + done % width
        if stores:
            other = source
            source = target
            target = other
        if part == 4:
            store32(target, load32(source))
        elif part == 2:
            store16(target, load16(source))
        elif part == 1:
            store8(target, load8(source))
        else:
            store64(target, load64(source))
            if part == 16:
                store64(target + 8, load64(source + 8))
        done += part
    return 0


def load_lanes(
    context: Context,
    cta: Cta,
    state: State,
    site: int,
    mask: int,
    addresses: int,
    out: int,
    width: int,
    count: int,
    space: int,
) -> int:
    """Loads of ``count`` elements of ``width`` bytes per lane; element e of lane l goes to ``out[e · 32 + l]``. Returns 1 if
    invalid."""
    return move_lanes(context, cta, state, site, mask, addresses, out, width, width * count, space + 8)


def store_lanes(
    context: Context,
    cta: Cta,
    state: State,
    site: int,
    mask: int,
    addresses: int,
    values: int,
    width: int,
    count: int,
    space: int,
) -> int:
    """Stores, laid out as ``load_lanes``; lanes in ascending order, so the highest one wins. Returns 1 if invalid."""
    return move_lanes(context, cta, state, site, mask, addresses, values, width, width * count, space + 4)


def move_lanes(
    context: Context,
    cta: Cta,
    state: State,
    site: int,
    mask: int,
    addresses: int,
    elements: int,
    width: int,
    size: int,
    how: int,
) -> int:
    context.RACE_WIDTH = width
    held = mask
    if how & 4 and load16(context.RACE_SITES + 2 * site) & Race.GLOBAL:
        # of lanes that store to one address only the last is checked: the values of the others are overwritten
        held = last_of(addresses, mask)
    while mask:
        lane = trailing_zeros(mask)
        mask = mask & (mask - 1)
        address = load64(addresses + lane * 8)
        context.RACE_VALUE = 0
        if how & 4:
            context.RACE_VALUE = elements + lane * width
        host = near(context, site, address, size, how & 3)
        local = 0
        if host:
            note(context, address, size, how)
        else:
            if how & 15 == 8 + 1:
                host = written_words(context, cta, site, address, size)
            if host == 0:
                host = reach(
                    context, cta, state, site, lane, address, size, how | (held >> lane & 1 ^ 1) << 5
                )
            local = is_local(context, address, how & 3)
            if host == 0:
                return 1
        if held >> lane & 1 or local:
            move(host, elements, size, width, lane, local, how & 4)
    context.RACE_VALUE = 0
    return 0


def mark_lanes(context: Context, mask: int, first: int, size: int) -> int:
    """Mark a store of consecutive lanes in the shadow; ``first`` is the address of lane 0."""
    shadow = first + context.SHADOW
    while mask:
        lane = trailing_zeros(mask)
        lanes = trailing_zeros(~(mask >> lane))
        fill(shadow + lane * size, 1, lanes * size)
        mask = mask & ~(((1 << lanes) - 1) << lane)
    return 0


def seen_lanes(context: Context, site: int, mask: int, first: int, size: int) -> int:
    """Record if any byte of a load of consecutive lanes was never written; ``first`` is the address of lane 0."""
    known = UnseenRecord(context.UNSEEN + site * UnseenRecord.BYTES)
    index = context.CTA.INDEX + 1
    shadow = first + context.SHADOW
    lane = trailing_zeros(mask)
    if known.CTA and (
        known.CTA < index or (known.CTA == index and known.THREAD <= context.STATE.INDEX * 32 + lane)
    ):
        return 0
    if load32(context.USED + 4 * site) != 4294967295:
        while mask:
            lane = trailing_zeros(mask)
            unseen(context, site, lane, first + lane * size, shadow + lane * size, size, 0)
            mask = mask & (mask - 1)
        return 0
    while mask:
        lane = trailing_zeros(mask)
        lanes = trailing_zeros(~(mask >> lane))
        start = shadow + lane * size
        end = start + lanes * size
        while start + 8 <= end:
            word = load64(start)
            # a byte of the word is 0
            blank = (word - 72340172838076673) & ~word & -9187201950435737472
            if blank:
                # the lowest bit that this finds is that of the first such byte
                start += trailing_zeros(blank) >> 3
                return keep_unseen(context, site, (start - shadow) // size, start - context.SHADOW)
            start += 8
        while start < end:
            if load8(start) == 0:
                return keep_unseen(context, site, (start - shadow) // size, start - context.SHADOW)
            start += 1
        mask = mask & ~(((1 << lanes) - 1) << lane)
    return 0


def mark_unwritten(cta: Cta, host: int, size: int) -> int:
    """Mark stored words of shared memory that have the fill pattern of unwritten ones."""
    end = host + size
    while host < end:
        if load32(host) == UNWRITTEN:
            store8(host + cta.SHARED_SHADOW, 1)
            cta.MARKED = 1
        host += 4
    return 0


def copy_lanes(
    context: Context,
    cta: Cta,
    state: State,
    site: int,
    mask: int,
    sources: int,
    targets: int,
    sizes: int,
    width: int,
) -> int:
    """Copies of ``width`` bytes from the arena to shared memory, of which ``sizes`` are read and the others zero. Returns 1 if
    invalid."""
    rest = mask
    filled = 0
    if rest:
        race_copies(context)
    while rest:
        lane = trailing_zeros(rest)
        rest = rest & (rest - 1)
        size = load64(sizes + lane * 8)
        source = load64(sources + lane * 8)
        if size:
            filled = filled | 1 << lane
        whole = size == width or (size and source & (width - 1))
        if whole:
            if near(context, site, source, width, 0):
                note(context, source, width, 8)
            elif reach(context, cta, state, site, lane, source, width, 8) == 0:
                context.RACE_AGENT = 0
                return 1
        index = 0
        while size < width and index < size:
            if reach(context, cta, state, site, lane, source + index, 1, 8) == 0:
                context.FAULT_SIZE = 1
                context.RACE_AGENT = 0
                return 1
            index += 1
    how = 4 + 1
    if width == 16 and race_pieces(context, cta, site, -1, mask, targets, 4):
        how += 16
    rest = mask
    while rest:
        lane = trailing_zeros(rest)
        rest = rest & (rest - 1)
        target = load64(targets + lane * 8)
        host = own_words(context, cta, site, target, width)
        marked = host == 0
        if marked:
            host = reach(context, cta, state, site, lane, target, width, how)
            if host == 0:
                context.RACE_AGENT = 0
                return 1
        size = load64(sizes + lane * 8)
        source = load64(sources + lane * 8) + context.ARENA
        index = 0
        if size == width:
            while index < width:
                store32(host + index, load32(source + index))
                index += 4
        while index < width:
            if index < size:
                store8(host + index, load8(source + index))
            else:
                store8(host + index, 0)
            index += 1
        if marked == 0:
            mark_unwritten(cta, host, width)
    context.RACE_AGENT = 0
    count_lanes(context, site, filled, sources, width, 0, 1)
    count_lanes(context, site, mask, targets, width, 1, 0)
    return 0
