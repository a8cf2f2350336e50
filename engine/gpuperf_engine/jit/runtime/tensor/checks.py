"""Runtime of generated code: validity of tensor copies, as ``tensor_boxes.problem_of`` defines it for the interpreter.

Written in the subset of ``compile_python`` and compiled, never run as Python. ``how``: bits of ``Bulk``; ``vectors`` as in
``tensor_copies``.
"""

from __future__ import annotations

from ....isa.tensor_maps import Problem
from ....memory.tensor_maps import MAGIC, Place
from ...ir.abi import Context, Cta, State
from ...ir.copy_records import Bulk, TensorMap
from ..intrinsics import load32, load64, store64
from ..mbarrier import refuse_mbarrier
from ..memory import reach
from .units import is_padded, row_units, unit_elements, unit_held


def signed16(value: int) -> int:
    """Sign-extend 16 bits."""
    return (value ^ 32768) - 32768


def coordinate(vectors: int, lane: int, axis: int) -> int:
    """Return a coordinate of a lane; from 5 on the offsets of im2col."""
    return (load32(vectors + axis * 128 + lane * 4) ^ 2147483648) - 2147483648


def lower_corner(layout: TensorMap, axis: int) -> int:
    """Return the start of the bounding box along an axis between N and C."""
    return signed16(layout.LOWER[axis])


def upper_corner(layout: TensorMap, axis: int) -> int:
    """Return the end of the bounding box along an axis between N and C, relative to the axis's end."""
    return signed16(layout.UPPER[axis])


def first_spatial(layout: TensorMap) -> int:
    """Return the index of axis W."""
    return layout.INTERLEAVE == 0


def map_bytes(context: Context, cta: Cta, state: State, site: int, lane: int, address: int, how: int) -> int:
    """Return the host address of the bytes of a tensor map, or 0 after recording the error. ``how`` as for ``reach``."""
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


def tensor_map_at(context: Context, cta: Cta, state: State, site: int, lane: int, address: int) -> TensorMap:
    """Return the host address of the tensor map of a copy, or 0 after recording the error."""
    host = TensorMap(map_bytes(context, cta, state, site, lane, address, 8 + 3))
    if host == 0:
        return TensorMap(0)
    if is_map(host) == 0:
        return TensorMap(refuse_mbarrier(context, site, lane, address, Problem.NO_MAP, 0, 0))
    missing = missing_field(host)
    if missing:
        return TensorMap(refuse_mbarrier(context, site, lane, address, Problem.UNSET, missing - 1, 0))
    return host


def missing_field(layout: TensorMap) -> int:
    """Return 1 + the first field that a copy needs and that is not set, as ``field_word``; 0 if there is none."""
    unset = layout.UNSET
    if unset == 0:
        return 0
    if (unset >> Place.NO_ADDRESS) & 1:
        return Place.ADDRESS_WORD + 1
    axis = 0
    while axis < layout.RANK:
        own = unset >> axis
        if (own >> Place.NO_BOX) & 1:
            return Place.BOX_WORD + axis + 1
        if (own >> Place.NO_SHAPE) & 1:
            return Place.SHAPE_WORD + axis + 1
        if (own >> Place.NO_STEP) & 1:
            return Place.STEP_WORD + axis + 1
        axis += 1
        if axis < layout.RANK and (own >> Place.NO_STRIDE) & 1:
            return Place.STRIDE_WORD + axis
    return 0


def map_to_change(
    context: Context, cta: Cta, state: State, site: int, lane: int, address: int, space: int
) -> int:
    """Return the host address of a tensor map of which a field is to be set, or 0 after recording the error. 128 zero bytes become
    a map without fields."""
    host = TensorMap(map_bytes(context, cta, state, site, lane, address, space + 12))
    if host == 0:
        return 0
    if is_map(host):
        return host
    offset = 0
    while offset < 128:
        if load64(host + offset):
            return refuse_mbarrier(context, site, lane, address, Problem.NO_MAP, 0, 0)
        offset += 8
    store64(host, MAGIC)
    host.RANK = 1
    host.UNSET = Place.EVERY_FIELD
    axis = 0
    while axis < 5:
        host.BOX[axis] = 1
        host.STEPS[axis] = 1
        axis += 1
    return host


def is_map(layout: TensorMap) -> int:
    """Whether the bytes are a tensor map with valid fields only, as programs can write any bytes."""
    if load64(layout) != MAGIC or layout.RANK < 1 or layout.RANK > 5:
        return 0
    if layout.TYPE >= Place.TYPES or layout.SWIZZLE >= Place.WIDTHS:
        return 0
    if layout.FILL >= Place.FILLINGS or layout.MODE >= Place.KINDS:
        return 0
    if layout.INTERLEAVE >= Place.SLICES or layout.ATOM >= Place.ATOMICITIES:
        return 0
    if layout.CHANNELS > Place.MOST_CHANNELS or layout.PIXELS > Place.MOST_PIXELS:
        return 0
    axis = 0
    while axis < 5:
        length = layout.BOX[axis]
        step = layout.STEPS[axis]
        if length < 1 or length > Place.MOST_BOX or step < 1 or step > Place.MOST_STEP:
            return 0
        axis += 1
    return 1


def override_refused(
    context: Context, site: int, lane: int, inner: int, how: int, axes: int, vectors: int
) -> int:
    """Whether the values that override a map's fields are invalid."""
    base = load64(vectors + Bulk.BASE + lane * 8)
    if base & 15:
        refuse_mbarrier(context, site, lane, inner, Problem.OVERRIDE, 0, base)
        return 1
    if how & Bulk.RESIZED == 0:
        return 0
    axis = 0
    while axis < axes:
        at = coordinate(vectors, lane, axis)
        if at:
            refuse_mbarrier(context, site, lane, inner, Problem.OVERRIDE, 1 + axis, at)
            return 1
        axis += 1
    axis = 0
    while axis < axes:
        if load32(vectors + Bulk.EXTENTS + axis * 128 + lane * 4) & 255 == 0:
            refuse_mbarrier(context, site, lane, inner, Problem.OVERRIDE, 16 + axis, 0)
            return 1
        axis += 1
    return 0


def overridden(context: Context, lane: int, layout: TensorMap, how: int, axes: int, vectors: int) -> int:
    """Return a copy of a tensor map with the values of the instruction."""
    changed = TensorMap(context.SCRATCH + Bulk.CHANGED)
    done = 0
    while done < 128:
        store64(changed + done, load64(layout + done))
        done += 8
    changed.ADDRESS = load64(vectors + Bulk.BASE + lane * 8)
    axis = 0
    while how & Bulk.RESIZED and axis < axes:
        size = load32(vectors + Bulk.EXTENTS + axis * 128 + lane * 4) & 255
        changed.SHAPE[axis] = size - 1
        if axis:
            upper = load32(vectors + Bulk.UPPER + lane * 4) >> (axis * 4 - 4) & 15
            lower = load32(vectors + Bulk.LOWER + axis * 128 - 128 + lane * 4)
            changed.STRIDES[axis - 1] = (lower | (upper << 32)) << 4
        axis += 1
    return changed


def layout_refused(
    context: Context, site: int, lane: int, layout: TensorMap, inner: int, how: int, axes: int, kinds: int
) -> int:
    """Whether a map is invalid for an instruction; ``kinds``: the element types that a reduction combines, one bit each."""
    kind = layout.TYPE
    stores = how & Bulk.TO_GLOBAL
    if layout.RANK != axes:
        refuse_mbarrier(context, site, lane, inner, Problem.RANK, 0, layout.RANK)
        return 1
    if layout.MODE != (how >> Bulk.MODE) & 3:
        refuse_mbarrier(context, site, lane, inner, Problem.MODE, 0, layout.MODE)
        return 1
    if layout.INTERLEAVE and axes < 3:
        refuse_mbarrier(context, site, lane, inner, Problem.AXES, 0, axes)
        return 1
    if layout.INTERLEAVE and is_padded(layout):
        refuse_mbarrier(context, site, lane, inner, Problem.SLICES, 0, kind)
        return 1
    if inner & 127:
        refuse_mbarrier(context, site, lane, inner, Problem.LINE, 0, 0)
        return 1
    if kinds and (kinds >> kind) & 1 == 0:
        refuse_mbarrier(context, site, lane, inner, Problem.OPERATION, 0, kind)
        return 1
    interleaved = layout.INTERLEAVE != 0
    if how & Bulk.FOUR_ROWS and (interleaved or layout.BOX[1] != 1):
        refuse_mbarrier(context, site, lane, inner, Problem.ROWS, interleaved, layout.BOX[1])
        return 1
    row = row_units(layout) * unit_held(layout)
    if row == 0 or row & 15:
        refuse_mbarrier(context, site, lane, inner, Problem.BOX, 0, row)
        return 1
    padded = is_padded(layout)
    atom = 0
    if layout.SWIZZLE == Place.SWIZZLE_128:
        atom = layout.ATOM
    if stores and padded and kind != Place.PACKED_6:
        refuse_mbarrier(context, site, lane, inner, Problem.PADDED_STORE, 0, kind)
        return 1
    if atom == Place.FLIPPED and (padded or stores):
        refuse_mbarrier(context, site, lane, inner, Problem.FLIPPED, 0, 0)
        return 1
    if atom == Place.ATOM_64B and padded and stores == 0:
        refuse_mbarrier(context, site, lane, inner, Problem.ATOM, 0, kind)
        return 1
    odd = layout.ATOM | interleaved | padded | (layout.MODE == Place.WIDE_128)
    if layout.SWIZZLE == Place.SWIZZLE_96 and (odd or row > 96):
        refuse_mbarrier(context, site, lane, inner, Problem.SWIZZLE_96, 0, row)
        return 1
    return 0


def start_refused(
    context: Context, site: int, lane: int, layout: TensorMap, inner: int, how: int, axes: int, vectors: int
) -> int:
    """Whether the start of a copy is invalid."""
    multiple = 1
    if layout.INTERLEAVE == 0:
        multiple = unit_elements(layout)
        if is_padded(layout):
            multiple = Place.PADDED_START
    start = coordinate(vectors, lane, 0)
    if start & (multiple - 1):
        refuse_mbarrier(context, site, lane, inner, Problem.START, multiple, start)
        return 1
    if how & Bulk.TO_GLOBAL:
        several = axes
        if how & Bulk.FOUR_ROWS:
            several = 5
        axis = 0
        while axis < several:
            at = coordinate(vectors, lane, axis)
            if at < 0:
                refuse_mbarrier(context, site, lane, inner, Problem.NEGATIVE, axis, at)
                return 1
            axis += 1
    return 0


def column_refused(
    context: Context, site: int, lane: int, layout: TensorMap, inner: int, how: int, axes: int, vectors: int
) -> int:
    """Whether an im2col copy is invalid for its map."""
    mode = layout.MODE
    spatial = axes - 2
    axis = 0
    if how & Bulk.TO_GLOBAL:
        while axis < spatial:
            if lower_corner(layout, axis) < 0 or upper_corner(layout, axis) > 0:
                refuse_mbarrier(context, site, lane, inner, Problem.CORNERS, 0, axis)
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
            refuse_mbarrier(context, site, lane, inner, Problem.OFFSET, limit, offset)
            return 1
        axis += 1
    if mode >= Place.WIDE:
        spatial = 1
    axis = 0
    while axis < spatial:
        at = coordinate(vectors, lane, first_spatial(layout) + axis)
        size = layout.SHAPE[first_spatial(layout) + axis] + 1
        before = at < lower_corner(layout, axis) and mode < Place.WIDE
        if before or at >= size + upper_corner(layout, axis):
            refuse_mbarrier(context, site, lane, inner, Problem.BASE, first_spatial(layout) + axis, at)
            return 1
        axis += 1
    return 0
