"""Runtime of generated code: tensor copies in boxes (``tensor_maps`` says where the fields of a map are). PYTEST_DONT_REWRITE

Written in the subset of ``native_script`` and compiled, never run as Python. ``how``: bits of ``Bulk``.
"""

from __future__ import annotations

from ..isa.mbarriers import Mbarrier
from .native_layout import Bulk, Context, Counter, Cta
from .native_runtime_bulk import in_rank
from .native_runtime_count import bump
from .native_runtime_mbarrier import mbarrier_change, refuse_mbarrier
from .native_runtime_memory import near, note, reach
from .native_script import (
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


def signed32(value: int) -> int:
    """Extended by its sign."""
    return (value ^ 2147483648) - 2147483648


def counted(layout: int, axis: int) -> int:
    """Elements of a box along an axis."""
    step = load8(layout + 50 + axis)
    return (load16(layout + 40 + axis * 2) + step - 1) // step


def swizzled(layout: int, place: int) -> int:
    """Where in shared memory the byte lies that would lie at a place without a swizzle."""
    mode = load32(layout + 28)
    bits = mode
    unit = 4
    if mode == 3 and load8(layout + 124) == 1:
        bits = 2
        unit = 5
    elif mode == 3 and load8(layout + 124):
        bits = 1
        unit = 6
    return place ^ (((place >> 7) & ((1 << bits) - 1)) << unit)


def put_element(target: int, value: int, size: int) -> int:
    """Store an element."""
    if size == 2:
        store16(target, value)
    elif size == 4:
        store32(target, value)
    elif size == 8:
        store64(target, value)
    else:
        store8(target, value)
    return 0


def element(source: int, size: int) -> int:
    """Load an element."""
    if size == 2:
        return load16(source)
    if size == 4:
        return load32(source)
    if size == 8:
        return load64(source)
    return load8(source)


def filling(layout: int) -> int:
    """The bits of elements outside of the tensor."""
    kind = load32(layout + 24)
    size = load32(layout + 20)
    if load32(layout + 32) == 0 or kind < 6 or kind > 12:
        return 0
    if size == 2:
        return 32767
    if size == 4:
        return 2147483647
    return 9223372036854775807


def tensor_piece(
    context: int, cta: int, state: int, site: int, lane: int, layout: int, place: int, how: int
) -> int:
    """Host address of the byte of shared memory that stands for a place; it has been checked."""
    ways = 4 + 1
    if how & Bulk.TO_GLOBAL:
        ways = 8 + 1
    moved = swizzled(layout, place)
    return reach(context, cta, state, site, lane, moved & -16, 16, ways) + (moved & 15)


def tensor_row(
    context: int,
    cta: int,
    state: int,
    site: int,
    lane: int,
    layout: int,
    address: int,
    start: int,
    inside: int,
    place: int,
    how: int,
) -> int:
    """One run of elements along the innermost axis: ``address`` is that of coordinate 0. 1 if refused."""
    size = load32(layout + 20)
    step = load8(layout + 50)
    length = load32(layout + 88) + 1
    elements = counted(layout, 0)
    ways = 8
    if how & Bulk.TO_GLOBAL:
        ways = 4
    first = 0
    last = 0
    within = 0
    index = 0
    while index < elements:
        at = start + index * step
        outer = address + at * size
        good = inside != 0 and at >= 0 and at < length
        many = 16 // size
        host = 0
        whole = index + many <= elements and at + many <= length and step == 1
        if good and whole and ((outer | (place + index * size)) & 15) == 0:
            host = near(context, site, outer, 16, 0)
        if host:
            note(context, outer, 16, ways)
            inner = tensor_piece(context, cta, state, site, lane, layout, place + index * size, how)
            if how & Bulk.TO_GLOBAL:
                store64(host, load64(inner))
                store64(host + 8, load64(inner + 8))
            else:
                store64(inner, load64(host))
                store64(inner + 8, load64(host + 8))
        elif good:
            many = 1
            store64(context + Context.FAULT_SIZE, size)
            host = reach(context, cta, state, site, lane, outer, size, ways)
            store64(context + Context.FAULT_SIZE, size * (host == 0))
            if host == 0:
                return 1
            inner = tensor_piece(context, cta, state, site, lane, layout, place + index * size, how)
            if how & Bulk.TO_GLOBAL:
                put_element(host, element(inner, size), size)
            else:
                put_element(inner, element(host, size), size)
        else:
            many = 1
            if (how & Bulk.TO_GLOBAL) == 0:
                inner = tensor_piece(context, cta, state, site, lane, layout, place + index * size, how)
                put_element(inner, filling(layout), size)
        if good:
            if within == 0:
                first = outer
            within += many
            last = outer + size * ((many - 1) * step + 1)
        index += many
    if within and load64(context + Context.COUNTING) and (how & Bulk.AGAIN) == 0:
        bump(context, site, Counter.SECTORS, ((last - 1) >> 5) - (first >> 5) + 1)
        bump(context, site, Counter.LINES, ((last - 1) >> 7) - (first >> 7) + 1)
    store64(context + Context.MOVED, load64(context + Context.MOVED) + within * size)
    return 0


def tensor_box(
    context: int,
    cta: int,
    state: int,
    site: int,
    lane: int,
    layout: int,
    coordinates: int,
    place: int,
    how: int,
) -> int:
    """One box. 1 if refused."""
    size = load32(layout + 20)
    axes = load32(layout + 16)
    rows = 1
    axis = 1
    while axis < axes:
        rows = rows * counted(layout, axis)
        axis += 1
    if how & Bulk.FOUR_ROWS:
        rows = 4
    pitch = counted(layout, 0) * size
    ways = 4 + 1
    if how & Bulk.TO_GLOBAL:
        ways = 8 + 1
    done = 0
    while done < rows * pitch:
        if reach(context, cta, state, site, lane, place + done, 16, ways) == 0:
            return 1
        done += 16
    store64(context + Context.MOVED, 0)
    row = 0
    while row < rows:
        address = load64(layout + 8)
        inside = 1
        rest = row
        axis = 1
        while axis < axes:
            count = counted(layout, axis)
            at = signed32(load32(coordinates + axis * 128 + lane * 4)) + rest % count * load8(
                layout + 50 + axis
            )
            rest = rest // count
            if how & Bulk.FOUR_ROWS:
                at = signed32(load32(coordinates + (row + 1) * 128 + lane * 4))
            if at < 0 or at > load32(layout + 88 + axis * 4):
                inside = 0
            address += at * load64(layout + 48 + axis * 8)
            axis += 1
        start = signed32(load32(coordinates + lane * 4))
        if tensor_row(
            context, cta, state, site, lane, layout, address, start, inside, place + row * pitch, how
        ):
            return 1
        row += 1
    if load64(context + Context.COUNTING):
        waves = (rows * pitch + 127) >> 7
        bump(context, site, Counter.WAVEFRONTS, waves)
        bump(context, site, Counter.IDEAL, waves)
        if (how & Bulk.AGAIN) == 0:
            bump(context, site, Counter.LANES, (load64(context + Context.MOVED) + 15) >> 4)
    store64(context + Context.MOVED, rows * pitch)
    return 0


def tensor_map_at(context: int, cta: int, state: int, site: int, lane: int, address: int) -> int:
    """Host address of a tensor map, or 0 after noting what is wrong."""
    done = 0
    host = 0
    while done < 128:
        piece = reach(context, cta, state, site, lane, address + done, 16, 8 + 3)
        if piece == 0:
            return 0
        if done == 0:
            host = piece
        done += 16
    size = load32(host + 20)
    good = load64(host) == Bulk.MAGIC and load32(host + 16) >= 1 and load32(host + 16) <= 5
    if not good or (size != 1 and size != 2 and size != 4 and size != 8):
        refuse_mbarrier(context, site, lane, address, Mbarrier.NO_MAP, 0, 0)
        return 0
    return host


def tensor_lanes(
    context: int,
    cta: int,
    state: int,
    site: int,
    mask: int,
    maps: int,
    coordinates: int,
    places: int,
    told: int,
    words: int,
    how: int,
    axes: int,
) -> int:
    """One instruction, lane after lane. 1 if refused."""
    while mask:
        lane = trailing_zeros(mask)
        mask = mask & (mask - 1)
        layout = tensor_map_at(context, cta, state, site, lane, load64(maps + lane * 8))
        if layout == 0:
            return 1
        place = load64(places + lane * 8)
        whole = place
        if load64(cta + Cta.CLUSTER):
            whole = (place + load64(cta + Cta.WINDOW)) & 4294967295
        if load32(layout + 16) != axes or load32(layout + 36):
            refuse_mbarrier(context, site, lane, whole, Mbarrier.RANK, 0, load32(layout + 16))
            return 1
        if whole & 127:
            refuse_mbarrier(context, site, lane, whole, Mbarrier.LINE, 0, 0)
            return 1
        ranks = 1
        if how & Bulk.MULTICAST:
            ranks = load16(words + lane * 2)
        again = 0
        while ranks:
            rank = trailing_zeros(ranks)
            ranks = ranks & (ranks - 1)
            to = place
            tell = 0
            if told:
                tell = load64(told + lane * 8)
            if how & Bulk.MULTICAST:
                to = in_rank(cta, place, rank)
                tell = in_rank(cta, tell, rank)
            if tensor_box(context, cta, state, site, lane, layout, coordinates, to, how | again):
                return 1
            if told:
                moved = load64(context + Context.MOVED)
                mbarrier_change(
                    context, cta, site | Bulk.TELLS, lane, tell, Mbarrier.COMPLETE | 512, 1, moved
                )
                if load64(context + Context.FAULTED):
                    return 1
            again = Bulk.AGAIN
    return 0
