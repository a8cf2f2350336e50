"""Runtime of generated code: tensor copies lane by lane, their rows, and changes of tensor maps.

Written in the subset of ``compile_python`` and compiled, never run as Python. ``how``: bits of ``Bulk``. ``vectors``: 32-bit
coordinates of all lanes axis by axis, then the offsets of im2col.
"""

from __future__ import annotations

from ....isa.tensor_maps import Problem
from ....memory.tensor_maps import Place
from ...ir.abi import Context, Cta, State
from ...ir.access_records import Counter
from ...ir.copy_records import Bulk, TensorMap
from ..bulk import mbarrier_of_copy, signal_copied
from ..count import bump
from ..intrinsics import (
    load32,
    load64,
    store8,
    store16,
    store32,
    store64,
    trailing_zeros,
    unsigned_less,
)
from ..mbarrier import in_rank, refuse_mbarrier
from ..memory import reach
from ..races.groups import race_source
from ..races.mbarriers import race_bulk
from ..races.shared_memory import race_range
from .checks import (
    column_refused,
    coordinate,
    first_spatial,
    layout_refused,
    lower_corner,
    map_to_change,
    overridden,
    override_refused,
    start_refused,
    tensor_map_at,
    upper_corner,
)
from .units import is_padded, row_units, swizzled, tensor_row, unit_bytes, unit_held


def tensor_reached(
    context: Context,
    cta: Cta,
    state: State,
    site: int,
    lane: int,
    layout: TensorMap,
    inner: int,
    units: int,
    how: int,
) -> int:
    """Check the shared memory of a copy, without padding. Returns 1 if invalid."""
    held = unit_held(layout)
    done = 0
    if is_padded(layout) and (how & Bulk.TO_GLOBAL) == 0:
        size = unit_bytes(layout)
        word = size & (0 - size)
        while done < units * held:
            part = 0
            while part < size:
                moved = swizzled(layout, inner + done + part)
                if reach(context, cta, state, site, lane, moved, word, 4 + 1) == 0:
                    return 1
                part += word
            done += held
        return 0
    ways = 4 + 1
    if how & Bulk.TO_GLOBAL:
        ways = 8 + 1
        race_source(context)
    while done < units * held:
        if done & 511 == 0:
            ways = ways & 15
            if race_range(context, cta, site, lane, inner + done, units * held - done, ways & 12):
                ways += 16
        if reach(context, cta, state, site, lane, inner + done, 16, ways) == 0:
            store64(context + Context.RACE_AGENT, 0)
            return 1
        done += 16
    if how & Bulk.TO_GLOBAL:
        store64(context + Context.RACE_AGENT, 0)
    return 0


def tensor_line(
    context: Context,
    cta: Cta,
    state: State,
    site: int,
    lane: int,
    layout: TensorMap,
    cursor: int,
    inner: int,
    how: int,
    combine: int,
) -> int:
    """The row whose coordinates stand at the cursor, eight bytes each. Returns 1 if invalid."""
    address = layout.ADDRESS
    inside = 1
    axis = 1
    while axis < layout.RANK:
        at = load64(cursor + axis * 8)
        if at < 0 or at > layout.SHAPE[axis]:
            inside = 0
        address += at * layout.STRIDES[axis - 1]
        axis += 1
    start = load64(cursor)
    return tensor_row(context, cta, state, site, lane, layout, address, start, inside, inner, how, combine)


def box_count(layout: TensorMap, axis: int, how: int) -> int:
    """Elements of a box along an axis but the innermost."""
    if how & Bulk.FOUR_ROWS:
        return 4
    if layout.INTERLEAVE and axis + 2 == layout.RANK:
        return 1
    step = layout.STEPS[axis]
    return (layout.BOX[axis] + step - 1) // step


def tensor_box(
    context: Context,
    cta: Cta,
    state: State,
    site: int,
    lane: int,
    layout: TensorMap,
    vectors: int,
    inner: int,
    how: int,
    combine: int,
) -> int:
    """The rows of a box, or four rows. Returns 1 if invalid."""
    axes = layout.RANK
    cursor = context.SCRATCH + Bulk.CURSOR
    rows = 1
    axis = 1
    while axis < axes:
        rows = rows * box_count(layout, axis, how)
        axis += 1
    units = row_units(layout)
    pitch = units * unit_held(layout)
    if tensor_reached(context, cta, state, site, lane, layout, inner, rows * units, how):
        return 1
    store64(cursor, coordinate(vectors, lane, 0))
    row = 0
    while row < rows:
        rest = row
        axis = 1
        while axis < axes:
            count = box_count(layout, axis, how)
            at = coordinate(vectors, lane, axis) + rest % count * layout.STEPS[axis]
            if how & Bulk.FOUR_ROWS:
                at = coordinate(vectors, lane, row + 1)
            store64(cursor + axis * 8, at)
            rest = rest // count
            axis += 1
        if tensor_line(context, cta, state, site, lane, layout, cursor, inner + row * pitch, how, combine):
            return 1
        row += 1
    return tensor_counted(context, site, layout, rows * units, how)


def next_pixel(layout: TensorMap, cursor: int, spatial: int, moved: int) -> int:
    """Advance the cursor to the next pixel of the bounding box, which is shifted by ``moved`` along W."""
    first = first_spatial(layout)
    axis = 0
    while axis < spatial:
        cell = cursor + (first + axis) * 8
        at = load64(cell) + layout.STEPS[first + axis]
        upper = layout.SHAPE[first + axis] + 1 + upper_corner(layout, axis)
        if at < upper + moved:
            store64(cell, at)
            return 0
        store64(cell, lower_corner(layout, axis) + moved)
        axis += 1
    last = cursor + (layout.RANK - 1) * 8
    store64(last, load64(last) + 1)
    return 0


def pixel_row(layout: TensorMap, vectors: int, lane: int, cursor: int, row: int) -> int:
    """Write the coordinates of a row: those of the pixel at the cursor plus the offsets of im2col."""
    first = first_spatial(layout)
    axis = 0
    while axis < layout.RANK:
        at = load64(cursor + axis * 8)
        if layout.MODE < Place.WIDE and axis >= first and axis < first + layout.RANK - 2:
            at += coordinate(vectors, lane, 5 + axis - first)
        store64(row + axis * 8, at)
        axis += 1
    return 0


def halo_rows(
    context: Context,
    cta: Cta,
    state: State,
    site: int,
    lane: int,
    layout: TensorMap,
    row: int,
    inner: int,
    step: int,
    each: int,
    halo: int,
    groups: int,
    how: int,
    combine: int,
) -> int:
    """A row as a halo pixel of the groups that it is one of; ``inner`` is the address of the first halo pixel. Returns 1 if
    invalid."""
    pitch = row_units(layout) * unit_held(layout)
    group = 0
    while group < groups:
        more = step - each * (group + 1)
        if more >= 0 and more < halo:
            spot = inner + (more * groups + group) * pitch
            if tensor_line(context, cta, state, site, lane, layout, row, spot, how, combine):
                return 1
        group += 1
    return 0


def tensor_pixels(
    context: Context,
    cta: Cta,
    state: State,
    site: int,
    lane: int,
    layout: TensorMap,
    vectors: int,
    inner: int,
    how: int,
    combine: int,
) -> int:
    """The pixels of an im2col copy; ``tensor_boxes`` says in which order halo pixels lie. Returns 1 if invalid."""
    cursor = context.SCRATCH + Bulk.CURSOR
    row = cursor + 40
    spatial = layout.RANK - 2
    pixels = layout.PIXELS
    halo = 0
    moved = 0
    groups = 1
    if layout.MODE >= Place.WIDE:
        spatial = 1
        halo = coordinate(vectors, lane, 5)
        moved = coordinate(vectors, lane, 6)
    if layout.MODE == Place.WIDE_128:
        pixels = Place.WIDE_128_PIXELS
        groups = pixels >> 5
    units = row_units(layout)
    pitch = units * unit_held(layout)
    every = pixels + halo * groups
    if tensor_reached(context, cta, state, site, lane, layout, inner, every * units, how):
        return 1
    axis = 0
    while axis < layout.RANK:
        store64(cursor + axis * 8, coordinate(vectors, lane, axis))
        axis += 1
    start = cursor + first_spatial(layout) * 8
    store64(start, load64(start) + moved)
    behind = inner + pixels * pitch
    each = pixels // groups
    step = 0
    while step < pixels + halo:
        pixel_row(layout, vectors, lane, cursor, row)
        spot = inner + step * pitch
        if step < pixels and tensor_line(context, cta, state, site, lane, layout, row, spot, how, combine):
            return 1
        if halo_rows(
            context, cta, state, site, lane, layout, row, behind, step, each, halo, groups, how, combine
        ):
            return 1
        next_pixel(layout, cursor, spatial, moved)
        step += 1
    return tensor_counted(context, site, layout, every * units, how)


def tensor_counted(context: Context, site: int, layout: TensorMap, units: int, how: int) -> int:
    """Count a copy of so many units, and record the bytes that it moved."""
    if context.COUNTING:
        waves = (units * unit_held(layout) + 127) >> 7
        bump(context, site, Counter.WAVEFRONTS, waves)
        bump(context, site, Counter.IDEAL, waves)
        if (how & Bulk.AGAIN) == 0:
            bump(context, site, Counter.LANES, (context.MOVED + 15) >> 4)
    context.MOVED = units * unit_bytes(layout)
    return 0


def tensor_refused(
    context: Context,
    site: int,
    lane: int,
    layout: TensorMap,
    address: int,
    how: int,
    axes: int,
    vectors: int,
    kinds: int,
) -> int:
    """Whether a copy is invalid with this map and these coordinates; records the error. ``address``: that of shared memory."""
    if layout_refused(context, site, lane, layout, address, how, axes, kinds):
        return 1
    if start_refused(context, site, lane, layout, address, how, axes, vectors):
        return 1
    return layout.MODE and column_refused(context, site, lane, layout, address, how, axes, vectors)


def tensor_copy(
    context: Context,
    cta: Cta,
    state: State,
    site: int,
    lane: int,
    rank: int,
    layout: TensorMap,
    vectors: int,
    inner: int,
    mbarriers: int,
    how: int,
    combine: int,
) -> int:
    """One copy, of a multicast that to one CTA, with the mbarrier that it signals. Returns 1 if invalid."""
    if how & Bulk.MULTICAST:
        inner = in_rank(cta, inner, rank)
    context.MOVED = 0
    refused = 0
    if mbarriers:
        race_bulk(context, cta, mbarrier_of_copy(context, cta, load64(mbarriers + lane * 8), rank, how))
    if layout.MODE:
        refused = tensor_pixels(context, cta, state, site, lane, layout, vectors, inner, how, combine)
    else:
        refused = tensor_box(context, cta, state, site, lane, layout, vectors, inner, how, combine)
    context.RACE_AGENT = 0
    if refused:
        return 1
    reported = load64(context.SCRATCH + Bulk.FOUND)
    return signal_copied(context, cta, site, mbarriers, lane, rank, how, context.MOVED, reported)


def tensor_lanes(
    context: Context,
    cta: Cta,
    state: State,
    site: int,
    mask: int,
    maps: int,
    vectors: int,
    targets: int,
    mbarriers: int,
    words: int,
    how: int,
    axes: int,
    combine: int,
    kinds: int,
) -> int:
    """One instruction, lane after lane. ``targets``: addresses of shared memory; ``combine``: the function of a reduction (0: none),
    ``kinds``: the element types it takes, one bit each. Returns 1 if invalid."""
    while mask:
        lane = trailing_zeros(mask)
        mask = mask & (mask - 1)
        layout = tensor_map_at(context, cta, state, site, lane, load64(maps + lane * 8))
        if layout == 0:
            return 1
        inner = load64(targets + lane * 8)
        address = inner
        if cta.CLUSTER:
            address = (inner + cta.WINDOW) & 4294967295
        if how & Bulk.READDRESSED:
            if override_refused(context, site, lane, address, how, axes, vectors):
                return 1
            layout = TensorMap(overridden(context, lane, layout, how, axes, vectors))
        store64(context.SCRATCH + Bulk.FOUND, 0)
        if tensor_refused(context, site, lane, layout, address, how, axes, vectors, kinds):
            return 1
        ranks = 1
        if how & Bulk.MULTICAST:
            ranks = load32(words + lane * 4)
        again = 0
        while ranks:
            rank = trailing_zeros(ranks)
            ranks = ranks & (ranks - 1)
            if tensor_copy(
                context, cta, state, site, lane, rank, layout, vectors, inner, mbarriers, how | again, combine
            ):
                return 1
            again = Bulk.AGAIN
    return 0


def replace_lanes(
    context: Context,
    cta: Cta,
    state: State,
    site: int,
    instruction: int,
    mask: int,
    maps: int,
    values: int,
    space: int,
    field: int,
    size: int,
    bias: int,
    low: int,
    high: int,
    multiple: int,
    word: int,
    bit: int,
) -> int:
    """``tensormap.replace``, lane after lane: values from ``low`` to ``high``; ``field`` is where in a map, ``bit`` that of the field
    in what a map lacks. The instruction is not a site: ``site`` is that of what is not counted. Returns 1 if invalid."""
    while mask:
        lane = trailing_zeros(mask)
        mask = mask & (mask - 1)
        address = load64(maps + lane * 8)
        host = map_to_change(context, cta, state, site, lane, address, space)
        if host == 0:
            context.FAULT_SITE = instruction
            context.FAULT_SIZE = 16
            return 1
        value = load64(values + lane * 8)
        if unsigned_less(value, low) or unsigned_less(high, value) or value & (multiple - 1):
            refuse_mbarrier(context, instruction, lane, address, Problem.VALUE, word, value)
            return 1
        TensorMap(host).UNSET &= ~bit
        target = host + field
        if size == 1:
            store8(target, value + bias)
        elif size == 2:
            store16(target, value + bias)
        elif size == 4:
            store32(target, value + bias)
        else:
            store64(target, value + bias)
    return 0
