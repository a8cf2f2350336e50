"""Runtime of generated code: whether tensor copies may be made, as ``tensor_boxes.problem_of`` says it of the reference backend.


Written in the subset of ``compile_python`` and compiled, never run as Python. ``how``: bits of ``Bulk``; ``vectors`` as in
``tensor_copies``.
"""

from __future__ import annotations

from ...isa.tensor_maps import Problem
from ...memory.tensor_maps import MAGIC, Place
from ..ir.abi import Bulk, Context
from .compile_python import load8, load16, load32, load64, store8, store16, store32, store64
from .mbarrier import refuse_mbarrier
from .memory import reach
from .tensor import is_padded, row_units, unit_elements, unit_held


def signed16(value: int) -> int:
    """Extended by its sign."""
    return (value ^ 32768) - 32768


def coordinate(vectors: int, lane: int, axis: int) -> int:
    """A coordinate of a lane; from 5 on the offsets of im2col."""
    return (load32(vectors + axis * 128 + lane * 4) ^ 2147483648) - 2147483648


def lower_corner(layout: int, axis: int) -> int:
    """Where the bounding box begins along an axis between N and C."""
    return signed16(load16(layout + Place.LOWER + axis * 2))


def upper_corner(layout: int, axis: int) -> int:
    """How far from its end the bounding box ends along an axis between N and C."""
    return signed16(load16(layout + Place.UPPER + axis * 2))


def first_spatial(layout: int) -> int:
    """The axis W."""
    return load32(layout + Place.INTERLEAVE) == 0


def map_bytes(context: int, cta: int, state: int, site: int, lane: int, address: int, how: int) -> int:
    """Host address of the bytes of a tensor map, or 0 after noting what is wrong. ``how`` as for ``reach``."""
    done = 0
    host = 0
    while done < 128:
        piece = reach(context, cta, state, site, lane, address + done, 16, how)
        if piece == 0:
            return 0
        if done == 0:
            host = piece
        done += 16
    return host


def tensor_map_at(context: int, cta: int, state: int, site: int, lane: int, address: int) -> int:
    """Host address of the tensor map of a copy, or 0 after noting what is wrong."""
    host = map_bytes(context, cta, state, site, lane, address, 8 + 3)
    if host == 0:
        return 0
    if is_map(host) == 0:
        return refuse_mbarrier(context, site, lane, address, Problem.NO_MAP, 0, 0)
    missing = missing_field(host)
    if missing:
        return refuse_mbarrier(context, site, lane, address, Problem.UNSET, missing - 1, 0)
    return host


def missing_field(layout: int) -> int:
    """1 + the first field that a copy needs and that has not been set, as ``field_word``; 0 if there is none."""
    unset = load32(layout + Place.UNSET)
    if unset == 0:
        return 0
    if (unset >> Place.NO_RANK) & 1:
        return Place.RANK_WORD + 1
    if (unset >> Place.NO_ADDRESS) & 1:
        return Place.ADDRESS_WORD + 1
    if (unset >> Place.NO_TYPE) & 1:
        return Place.TYPE_WORD + 1
    axis = 0
    while axis < load32(layout + Place.RANK):
        own = unset >> axis
        if (own >> Place.NO_BOX) & 1:
            return Place.BOX_WORD + axis + 1
        if (own >> Place.NO_SHAPE) & 1:
            return Place.SHAPE_WORD + axis + 1
        if (own >> Place.NO_STEP) & 1:
            return Place.STEP_WORD + axis + 1
        axis += 1
        if axis < load32(layout + Place.RANK) and (own >> Place.NO_STRIDE) & 1:
            return Place.STRIDE_WORD + axis
    return 0


def map_to_change(context: int, cta: int, state: int, site: int, lane: int, address: int, space: int) -> int:
    """Host address of a tensor map of which a field is set, or 0 after noting what is wrong. 128 zero bytes become a map that lacks
    its fields."""
    host = map_bytes(context, cta, state, site, lane, address, space + 12)
    if host == 0:
        return 0
    if is_map(host):
        return host
    place = 0
    while place < 128:
        if load64(host + place):
            return refuse_mbarrier(context, site, lane, address, Problem.NO_MAP, 0, 0)
        place += 8
    store64(host, MAGIC)
    store32(host + Place.RANK, 1)
    store32(host + Place.UNSET, Place.EVERY_FIELD)
    axis = 0
    while axis < 5:
        store16(host + Place.BOX + axis * 2, 1)
        store8(host + Place.STEPS + axis, 1)
        axis += 1
    return host


def is_map(layout: int) -> int:
    """Whether there is a tensor map, and no field has a number that means nothing, as programs can write anything."""
    if load64(layout) != MAGIC or load32(layout + Place.RANK) < 1 or load32(layout + Place.RANK) > 5:
        return 0
    if load32(layout + Place.TYPE) >= Place.TYPES or load32(layout + Place.SWIZZLE) >= Place.WIDTHS:
        return 0
    if load32(layout + Place.FILL) >= Place.FILLINGS or load32(layout + Place.MODE) >= Place.KINDS:
        return 0
    if load32(layout + Place.INTERLEAVE) >= Place.SLICES or load8(layout + Place.ATOM) >= Place.ATOMICITIES:
        return 0
    if (
        load16(layout + Place.CHANNELS) > Place.MOST_CHANNELS
        or load16(layout + Place.PIXELS) > Place.MOST_PIXELS
    ):
        return 0
    axis = 0
    while axis < 5:
        length = load16(layout + Place.BOX + axis * 2)
        step = load8(layout + Place.STEPS + axis)
        if length < 1 or length > Place.MOST_BOX or step < 1 or step > Place.MOST_STEP:
            return 0
        axis += 1
    return 1


def override_refused(
    context: int, site: int, lane: int, place: int, how: int, axes: int, vectors: int
) -> int:
    """Whether what overrides a map must not be."""
    base = load64(vectors + Bulk.BASE + lane * 8)
    if base & 15:
        refuse_mbarrier(context, site, lane, place, Problem.OVERRIDE, 0, base)
        return 1
    if how & Bulk.RESIZED == 0:
        return 0
    axis = 0
    while axis < axes:
        at = coordinate(vectors, lane, axis)
        if at:
            refuse_mbarrier(context, site, lane, place, Problem.OVERRIDE, 1 + axis, at)
            return 1
        axis += 1
    axis = 0
    while axis < axes:
        if load32(vectors + Bulk.EXTENTS + axis * 128 + lane * 4) & 255 == 0:
            refuse_mbarrier(context, site, lane, place, Problem.OVERRIDE, 16 + axis, 0)
            return 1
        axis += 1
    return 0


def overridden(context: int, lane: int, layout: int, how: int, axes: int, vectors: int) -> int:
    """A tensor map with the values of the instruction."""
    made = load64(context + Context.SCRATCH) + Bulk.CHANGED
    done = 0
    while done < 128:
        store64(made + done, load64(layout + done))
        done += 8
    store64(made + Place.ADDRESS, load64(vectors + Bulk.BASE + lane * 8))
    axis = 0
    while how & Bulk.RESIZED and axis < axes:
        size = load32(vectors + Bulk.EXTENTS + axis * 128 + lane * 4) & 255
        store32(made + Place.SHAPE + axis * 4, size - 1)
        if axis:
            upper = load32(vectors + Bulk.UPPER + lane * 4) >> (axis * 4 - 4) & 15
            lower = load32(vectors + Bulk.LOWER + axis * 128 - 128 + lane * 4)
            store64(made + Place.STRIDES + axis * 8 - 8, (lower | (upper << 32)) << 4)
        axis += 1
    return made


def layout_refused(
    context: int, site: int, lane: int, layout: int, place: int, how: int, axes: int, kinds: int
) -> int:
    """Whether a map does not go with an instruction; ``kinds``: the element types that it combines, one bit each."""
    kind = load32(layout + Place.TYPE)
    stores = how & Bulk.TO_GLOBAL
    if load32(layout + Place.RANK) != axes:
        refuse_mbarrier(context, site, lane, place, Problem.RANK, 0, load32(layout + Place.RANK))
        return 1
    if load32(layout + Place.MODE) != (how >> Bulk.MODE) & 3:
        refuse_mbarrier(context, site, lane, place, Problem.MODE, 0, load32(layout + Place.MODE))
        return 1
    if load32(layout + Place.INTERLEAVE) and axes < 3:
        refuse_mbarrier(context, site, lane, place, Problem.AXES, 0, axes)
        return 1
    if load32(layout + Place.INTERLEAVE) and is_padded(layout):
        refuse_mbarrier(context, site, lane, place, Problem.SLICES, 0, kind)
        return 1
    if place & 127:
        refuse_mbarrier(context, site, lane, place, Problem.LINE, 0, 0)
        return 1
    if kinds and (kinds >> kind) & 1 == 0:
        refuse_mbarrier(context, site, lane, place, Problem.OPERATION, 0, kind)
        return 1
    interleaved = load32(layout + Place.INTERLEAVE) != 0
    if how & Bulk.FOUR_ROWS and (interleaved or load16(layout + Place.BOX + 2) != 1):
        refuse_mbarrier(context, site, lane, place, Problem.ROWS, interleaved, load16(layout + Place.BOX + 2))
        return 1
    row = row_units(layout) * unit_held(layout)
    if row == 0 or row & 15:
        refuse_mbarrier(context, site, lane, place, Problem.BOX, 0, row)
        return 1
    padded = is_padded(layout)
    atom = 0
    if load32(layout + Place.SWIZZLE) == Place.SWIZZLE_128:
        atom = load8(layout + Place.ATOM)
    if stores and padded and kind != Place.PACKED_6:
        refuse_mbarrier(context, site, lane, place, Problem.PADDED_STORE, 0, kind)
        return 1
    if atom == Place.FLIPPED and (padded or stores):
        refuse_mbarrier(context, site, lane, place, Problem.FLIPPED, 0, 0)
        return 1
    if atom == Place.ATOM_64B and padded and stores == 0:
        refuse_mbarrier(context, site, lane, place, Problem.ATOM, 0, kind)
        return 1
    odd = load8(layout + Place.ATOM) | interleaved | padded | (load32(layout + Place.MODE) == Place.WIDE_128)
    if load32(layout + Place.SWIZZLE) == Place.SWIZZLE_96 and (odd or row > 96):
        refuse_mbarrier(context, site, lane, place, Problem.SWIZZLE_96, 0, row)
        return 1
    return 0


def start_refused(
    context: int, site: int, lane: int, layout: int, place: int, how: int, axes: int, vectors: int
) -> int:
    """Whether a copy begins where it must not."""
    multiple = 1
    if load32(layout + Place.INTERLEAVE) == 0:
        multiple = unit_elements(layout)
        if is_padded(layout):
            multiple = Place.PADDED_START
    start = coordinate(vectors, lane, 0)
    if start & (multiple - 1):
        refuse_mbarrier(context, site, lane, place, Problem.START, multiple, start)
        return 1
    if how & Bulk.TO_GLOBAL:
        several = axes
        if how & Bulk.FOUR_ROWS:
            several = 5
        axis = 0
        while axis < several:
            at = coordinate(vectors, lane, axis)
            if at < 0:
                refuse_mbarrier(context, site, lane, place, Problem.NEGATIVE, axis, at)
                return 1
            axis += 1
    return 0


def column_refused(
    context: int, site: int, lane: int, layout: int, place: int, how: int, axes: int, vectors: int
) -> int:
    """Whether an im2col copy does not go with its map."""
    mode = load32(layout + Place.MODE)
    spatial = axes - 2
    axis = 0
    if how & Bulk.TO_GLOBAL:
        while axis < spatial:
            if lower_corner(layout, axis) < 0 or upper_corner(layout, axis) > 0:
                refuse_mbarrier(context, site, lane, place, Problem.CORNERS, 0, axis)
                return 1
            axis += 1
    several = spatial
    # 16, 8 and 5 bits
    limit = 1 << 16 // spatial
    if mode == Place.WIDE:
        limit = Place.WIDE_HALO
    if mode == Place.WIDE_128:
        limit = Place.WIDE_128_HALO
    if mode >= Place.WIDE:
        several = 2
    axis = 0
    while axis < several:
        offset = coordinate(vectors, lane, 5 + axis)
        if mode >= Place.WIDE and axis == 1:
            limit = Place.WIDE_OFFSET
        if offset >= limit:
            refuse_mbarrier(context, site, lane, place, Problem.OFFSET, limit, offset)
            return 1
        axis += 1
    if mode >= Place.WIDE:
        spatial = 1
    axis = 0
    while axis < spatial:
        at = coordinate(vectors, lane, first_spatial(layout) + axis)
        size = load32(layout + Place.SHAPE + (first_spatial(layout) + axis) * 4) + 1
        before = at < lower_corner(layout, axis) and mode < Place.WIDE
        if before or at >= size + upper_corner(layout, axis):
            refuse_mbarrier(context, site, lane, place, Problem.BASE, first_spatial(layout) + axis, at)
            return 1
        axis += 1
    return 0
