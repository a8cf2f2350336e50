"""Runtime of generated code: the units of tensor copies and their layout in shared memory (``tensor_maps`` defines the fields of a
map).

Written in the subset of ``compile_python`` and compiled, never run as Python. ``how``: bits of ``Bulk``; ``outer``: an address of
global memory, ``inner``: one of shared memory, before the swizzle.
"""

from __future__ import annotations

from ....memory.tensor_maps import Place
from ...ir.abi import Context, Cta, State
from ...ir.access_records import Counter
from ...ir.copy_records import Bulk, TensorMap
from ..count import bump, count_words
from ..intrinsics import call, load8, load16, load32, load64, store8, store16, store32, store64
from ..memory import near, note, reach


def element_bytes(layout: TensorMap) -> int:
    """Bytes of an element, or of a group of packed elements that are moved together."""
    return (Place.SIZES >> (layout.TYPE * 4)) & 15


def is_padded(layout: TensorMap) -> int:
    """Whether elements have padding after them in shared memory."""
    return (Place.PADDED >> layout.TYPE) & 1


def unit_bytes(layout: TensorMap) -> int:
    """Bytes of global memory that are moved as one: an element, packed ones, or a slice of an interleaved tensor."""
    interleave = layout.INTERLEAVE
    if interleave:
        return 8 << interleave
    return element_bytes(layout)


def unit_held(layout: TensorMap) -> int:
    """Bytes of shared memory from one unit to the next."""
    if is_padded(layout):
        return Place.PADDED_HELD
    return unit_bytes(layout)


def unit_elements(layout: TensorMap) -> int:
    """Difference of the first coordinates of consecutive units, without elements skipped by strides."""
    if layout.INTERLEAVE:
        return 1
    if is_padded(layout):
        return Place.PADDED_ELEMENTS
    if layout.TYPE == Place.PACKED_4:
        return 2
    return 1


def unit_step(layout: TensorMap) -> int:
    """Difference of the first coordinates of consecutive units."""
    if layout.INTERLEAVE:
        return layout.STEPS[0]
    return unit_elements(layout)


def row_units(layout: TensorMap) -> int:
    """Number of units of a row."""
    if layout.MODE:
        if layout.INTERLEAVE:
            return 1
        return layout.CHANNELS // unit_elements(layout)
    if layout.INTERLEAVE:
        step = layout.STEPS[0]
        return (layout.BOX[0] + step - 1) // step
    return layout.BOX[0] // unit_elements(layout)


def swizzled(layout: TensorMap, address: int) -> int:
    """Apply the swizzle to an address of shared memory."""
    mode = layout.SWIZZLE
    bits = mode
    unit = 4
    moved = address
    if mode == Place.SWIZZLE_96:
        bits = 1
    if mode == Place.SWIZZLE_128 and layout.ATOM:
        atom = layout.ATOM
        bits = 2
        unit = 5
        if atom == Place.ATOM_64B:
            bits = 1
            unit = 6
        if atom == Place.FLIPPED:
            moved = moved ^ ((address >> 4) & 8)
    return moved ^ (((address >> 7) & ((1 << bits) - 1)) << unit)


def put_element(target: int, value: int, size: int) -> int:
    """Store a word."""
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
    """Load a word."""
    if size == 2:
        return load16(source)
    if size == 4:
        return load32(source)
    if size == 8:
        return load64(source)
    return load8(source)


def filling(layout: TensorMap) -> int:
    """Return 64 bits of the fill value of elements outside the tensor."""
    if layout.FILL and (Place.FLOATS >> layout.TYPE) & 1:
        return Place.NAN
    return 0


def rounded(word: int) -> int:
    """Round a single-precision number to tf32, to nearest even; every NaN becomes the canonical one."""
    if (word & 2147483647) > 2139095040:
        return 2147475456
    return (word + 4095 + ((word >> 13) & 1)) & 4294959104


def six_bits(word: int) -> int:
    """Pack the low six bits of each of the low four bytes of a word."""
    return (word & 63) | ((word >> 2) & 4032) | ((word >> 4) & 258048) | ((word >> 6) & 16515072)


def tensor_piece(
    context: Context, cta: Cta, state: State, site: int, lane: int, layout: TensorMap, inner: int, how: int
) -> int:
    """Return the host address of the byte of shared memory for an ``inner`` address that is already checked."""
    ways = 4 + 1
    if how & Bulk.TO_GLOBAL:
        ways = 8 + 1
    moved = swizzled(layout, inner)
    return reach(context, cta, state, site, lane, moved & -16, 16, ways) + (moved & 15)


def tensor_packed(
    context: Context,
    cta: Cta,
    state: State,
    site: int,
    lane: int,
    layout: TensorMap,
    outer: int,
    inner: int,
    how: int,
) -> int:
    """Sixteen bytes of shared memory, six bits of each, to twelve of global memory. Returns 1 if invalid."""
    low = load64(tensor_piece(context, cta, state, site, lane, layout, inner, how))
    high = load64(tensor_piece(context, cta, state, site, lane, layout, inner + 8, how))
    first = six_bits(low) | (six_bits(low >> 32) << 24)
    second = six_bits(high) | (six_bits(high >> 32) << 24)
    done = 0
    while done < 12:
        context.FAULT_SIZE = 4
        host = reach(context, cta, state, site, lane, outer + done, 4, 4)
        context.FAULT_SIZE = 4 * (host == 0)
        if host == 0:
            return 1
        word = first
        if done == 4:
            word = (first >> 32) | (second << 16)
        elif done == 8:
            word = second >> 16
        store32(host, word)
        done += 4
    return 0


def tensor_unit(
    context: Context,
    cta: Cta,
    state: State,
    site: int,
    lane: int,
    layout: TensorMap,
    outer: int,
    inner: int,
    how: int,
    combine: int,
) -> int:
    """One unit, in words that neither end splits. Returns 1 if invalid."""
    size = unit_bytes(layout)
    kind = layout.TYPE
    if kind == Place.PACKED_6 and how & Bulk.TO_GLOBAL:
        return tensor_packed(context, cta, state, site, lane, layout, outer, inner, how)
    word = size & (0 - size)
    if word > 8:
        word = 8
    ways = 8
    if how & Bulk.TO_GLOBAL:
        ways = 4
    if combine:
        ways = 12
        word = element_bytes(layout)
    done = 0
    while done < size:
        context.FAULT_SIZE = word
        host = reach(context, cta, state, site, lane, outer + done, word, ways)
        context.FAULT_SIZE = word * (host == 0)
        if host == 0:
            return 1
        cell = 0
        if is_padded(layout):
            cell = reach(context, cta, state, site, lane, swizzled(layout, inner + done), word, 4 + 1)
        else:
            cell = tensor_piece(context, cta, state, site, lane, layout, inner + done, how)
        if combine:
            call(combine, host, cell, kind)
        elif how & Bulk.TO_GLOBAL:
            put_element(host, element(cell, word), word)
        elif (Place.ROUNDED >> kind) & 1:
            store32(cell, rounded(load32(host)))
            if word == 8:
                store32(cell + 4, rounded(load32(host + 4)))
        else:
            put_element(cell, element(host, word), word)
        done += word
    return 0


def tensor_fill(
    context: Context, cta: Cta, state: State, site: int, lane: int, layout: TensorMap, inner: int, how: int
) -> int:
    """Fill a unit of shared memory whose elements are outside the tensor."""
    size = unit_bytes(layout)
    word = size & (0 - size)
    if word > 8:
        word = 8
    done = 0
    while done < size:
        cell = 0
        if is_padded(layout):
            cell = reach(context, cta, state, site, lane, swizzled(layout, inner + done), word, 4 + 1)
        else:
            cell = tensor_piece(context, cta, state, site, lane, layout, inner + done, how)
        put_element(cell, filling(layout), word)
        done += word
    return 0


def unit_reported(context: Context, outer: int, size: int, kind: int) -> int:
    """Whether a unit of the tensor, already checked, has a pattern; ``kind`` as for ``holds_pattern``."""
    host = outer + context.ARENA
    done = 0
    while done < size:
        if kind == 5 and load8(host + done) == 255:
            return 1
        if (outer + done) & 15 == 0:
            if kind == 4 and load8(host + done) & 15 == 8:
                return 1
            if kind == 3 and load8(host + done) == 128:
                return 1
            if kind == 2 and done + 2 <= size and load16(host + done) == 32768:
                return 1
            if kind == 1 and done + 4 <= size and load32(host + done) == 2147483648:
                return 1
        done += 1
    return 0


def units_at_once(layout: TensorMap, how: int, combine: int) -> int:
    """Return the units in 16 bytes if units are copied unchanged: not strided, padded, rounded, combined or reported. Else 0."""
    size = unit_bytes(layout)
    each = unit_elements(layout)
    step = unit_step(layout)
    if size > 8 or unit_held(layout) != size or step != each or combine:
        return 0
    if (Place.ROUNDED >> layout.TYPE) & 1 or how >> Bulk.REPORT & 7:
        return 0
    return 16 // size


def tensor_sixteen(
    context: Context,
    cta: Cta,
    state: State,
    site: int,
    lane: int,
    layout: TensorMap,
    outer: int,
    inner: int,
    how: int,
) -> int:
    """Copy sixteen bytes between global and shared memory, if both addresses are multiples of 16 and the site's cache points to the
    allocation; else return 0."""
    if (outer | inner) & 15:
        return 0
    host = near(context, site, outer, 16, 0)
    if host == 0:
        return 0
    cell = tensor_piece(context, cta, state, site, lane, layout, inner, how)
    other = cell + 8
    if layout.SWIZZLE == Place.SWIZZLE_128 and layout.ATOM == Place.FLIPPED and (inner >> 7) & 1:
        other = cell - 8
    if how & Bulk.TO_GLOBAL:
        note(context, outer, 16, 4)
        store64(host, load64(cell))
        store64(host + 8, load64(other))
    else:
        note(context, outer, 16, 8)
        store64(cell, load64(host))
        store64(other, load64(host + 8))
    return 1


def row_counted(context: Context, site: int, first: int, last: int, how: int) -> int:
    """Count the units of global memory that a row covers."""
    if context.COUNTING and (how & Bulk.AGAIN) == 0:
        bump(context, site, Counter.SECTORS, ((last - 1) >> 5) - (first >> 5) + 1)
        bump(context, site, Counter.LINES, ((last - 1) >> 7) - (first >> 7) + 1)
    return 0


def row_recorded(context: Context, first: int, last: int, bytes: int, size: int, stride: int) -> int:
    """Record so many bytes of global memory, those of the units of a row."""
    if last - first == bytes:
        call(context.VALUE_RANGE, context, first, bytes, first + context.ARENA, 65535)
        return 0
    while first < last:
        call(context.VALUE_RANGE, context, first, size, first + context.ARENA, 65535)
        first += stride
    return 0


def row_moved(
    context: Context, site: int, layout: TensorMap, first: int, last: int, count: int, how: int
) -> int:
    """Count and record the units of a row that are in the tensor, from ``first`` to ``last`` in global memory."""
    size = unit_bytes(layout)
    if count:
        row_counted(context, site, first, last, how)
        if context.VALUE_RANGE and (how & Bulk.AGAIN) == 0:
            stride = unit_step(layout) // unit_elements(layout) * size
            row_recorded(context, first, last, count * size, size, stride)
    context.MOVED += count * size
    return 0


def count_combined(context: Context, counted: int, start: int, end: int) -> int:
    """Count the words of a unit to which a reduction comes; those below ``counted`` have been, as two elements may lie in one word.
    Gives where the words end."""
    if counted < start:
        counted = start
    count_words(context, counted, end)
    return (end + 3) & -4


def tensor_row(
    context: Context,
    cta: Cta,
    state: State,
    site: int,
    lane: int,
    layout: TensorMap,
    address: int,
    start: int,
    inside: int,
    target: int,
    how: int,
    combine: int,
) -> int:
    """Units that lie side by side: ``address`` is that of coordinate 0, ``target`` that of the first unit in shared memory. 1 if
    refused."""
    size = unit_bytes(layout)
    held = unit_held(layout)
    each = unit_elements(layout)
    step = unit_step(layout)
    length = layout.SHAPE[0] + 1
    units = row_units(layout)
    many = units_at_once(layout, how, combine)
    report = how >> Bulk.REPORT & 7
    counted = 0
    first = 0
    last = 0
    within = 0
    index = 0
    while index < units:
        at = start + index * step
        good = inside != 0 and at >= 0 and at < length
        outer = 0
        if good:
            outer = address + at // each * size
        inner = target + index * held
        taken = 1
        together = 0
        if good and many and index + many <= units and at + many * step <= length:
            together = tensor_sixteen(context, cta, state, site, lane, layout, outer, inner, how)
        if together:
            taken = many
        elif good:
            if tensor_unit(context, cta, state, site, lane, layout, outer, inner, how, combine):
                return 1
            if report and unit_reported(context, outer, size, report):
                store64(context.SCRATCH + Bulk.FOUND, 1)
            if combine:
                counted = count_combined(context, counted, outer, outer + size)
        elif (how & Bulk.TO_GLOBAL) == 0:
            tensor_fill(context, cta, state, site, lane, layout, inner, how)
        if good:
            if within == 0:
                first = outer
            within += taken
            last = outer + size * taken
        index += taken
    return row_moved(context, site, layout, first, last, within, how)
