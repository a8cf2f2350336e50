"""Runtime of generated code: loads the matrices of ``tcgen05`` from shared and tensor memory, with their metadata and scales.

Written in the subset of ``compile_python`` and compiled, never run as Python. ``isa.tensor_layouts`` defines the layouts.
"""

from __future__ import annotations

from ....isa.tensor_layouts import (
    depth_of,
    element_bytes,
    line_offset,
    metadata_bit,
    metadata_row,
    pieces_before,
    row_lane,
    scale_block,
    swizzle_width,
    swizzled,
    transposed_offset,
)
from ....isa.tensor_memory import Tensor, TensorProblem
from ...ir.abi import Context, Cta, State
from ...ir.tensor_records import TensorWork
from ..intrinsics import (
    call,
    fill,
    load8,
    load16,
    load32,
    load64,
    store8,
    store16,
    store32,
    store64,
    unsigned_less,
)
from ..mbarrier import refuse_mbarrier
from ..memory import reach


def has_columns(cta: Cta, column: int, count: int) -> int:
    """Whether columns of tensor memory are allocated."""
    if unsigned_less(Tensor.COLUMNS - count, column):
        return 0
    first = column >> 5
    units = ((1 << (((column + count - 1) >> 5) - first + 1)) - 1) << first
    return (cta.TENSOR_UNITS & units) == units


def unpacked(target: int, source: int, bits: int, count: int, apart: int) -> int:
    """Unpack at most 16 elements of four or six bits, each to a byte."""
    index = 0
    held = load64(source)
    more = load32(source + 8)
    while index < count:
        store8(target + index * apart, held & ((1 << bits) - 1))
        held = (held >> bits) | (more << (64 - bits))
        more = more >> bits
        index += 1
    return 0


def fetch_lines(
    context: Context, cta: Cta, state: State, site: int, lane: int, descriptor: int, line: int, lines: int, pieces: int, bits: int,
    how: int, target: int,
) -> int:  # fmt: skip
    """Load lines of a K-major matrix in shared memory from ``line`` on, in pieces of 16 bytes; ``bits``: size of packed elements, each
    unpacked to a byte. In the absolute address mode, ``leading`` is where lines continue after the end of their 128 bytes."""
    start = (descriptor & 16383) << 4
    leading = ((descriptor >> 16) & 16383) << 4
    stride = ((descriptor >> 32) & 16383) << 4
    width = swizzle_width(descriptor >> 61)
    if width == 0 or descriptor >> 61 == 1:
        return refuse_mbarrier(context, site, lane, start, TensorProblem.SWIZZLE, 0, descriptor)
    before = pieces
    if pieces == 3 and width > 16 and pieces_before(start, width) < 3:
        before = pieces_before(start, width)
    absolute = (descriptor >> 52) & 1
    if width > 16 and (pieces * 16 > width or (absolute == 0 and before < pieces)):
        return refuse_mbarrier(context, site, lane, start, TensorProblem.LINE, 0, descriptor)
    phase = (descriptor >> 49) & 7
    target += line * Tensor.PITCH
    while line < lines:
        piece = 0
        while piece < pieces:
            address = start + line_offset(line, piece, width, leading, stride)
            if piece >= before:
                address = leading + line_offset(line, piece - before, width, 0, stride)
            address = address & 262143
            address = swizzled(address, width, 4, phase)
            host = reach(context, cta, state, site, lane, address, 16, how)
            if host == 0:
                return 0
            if context.VALUE_RANGE and bits == 8:
                call(context.VALUE_RANGE, context, address, 16, host, 65535)
            if bits < 8:
                unpacked(target + 16 * piece, host, bits, 16, 1)
            else:
                store64(target + 16 * piece, load64(host))
                store64(target + 16 * piece + 8, load64(host + 8))
            piece += 1
        target += Tensor.PITCH
        line += 1
    return 1


def fetch_transposed(
    context: Context, cta: Cta, state: State, site: int, lane: int, descriptor: int, first: int, lines: int, depth: int, size: int,
    bits: int, how: int, target: int,
) -> int:  # fmt: skip
    """Load lines of an MN-major matrix in shared memory, where 16 bytes hold one k of several lines, from line ``first`` on (or the
    lines that share its 16 bytes); ``bits``: size of packed elements, each unpacked to a byte."""
    start = (descriptor & 16383) << 4
    leading = ((descriptor >> 16) & 16383) << 4
    stride = ((descriptor >> 32) & 16383) << 4
    mode = descriptor >> 61
    width = swizzle_width(mode)
    if width == 0 or (mode == 1) != (size == 4):
        return refuse_mbarrier(context, site, lane, start, TensorProblem.SWIZZLE, 0, descriptor)
    phase = (descriptor >> 49) & 7
    per = 16 // size
    line = first // per * per
    while line < lines:
        k = 0
        while k < depth:
            offset = transposed_offset(line // per, k, width, leading, stride, 8 - 4 * (mode == 1))
            address = swizzled((start + offset) & 262143, width, 4 + (mode == 1), phase)
            host = reach(context, cta, state, site, lane, address, 16, how)
            if host == 0:
                return 0
            if context.VALUE_RANGE and bits == 8:
                call(context.VALUE_RANGE, context, address, 16, host, 65535)
            into = target + line * Tensor.PITCH + k * size
            count = lines - line
            if count > per:
                count = per
            if bits < 8:
                unpacked(into, host, bits, count, Tensor.PITCH)
            index = 0
            while bits == 8 and index < count:
                if size == 1:
                    store8(into, load8(host + index))
                elif size == 2:
                    store16(into, load16(host + 2 * index))
                else:
                    store32(into, load32(host + 4 * index))
                into += Tensor.PITCH
                index += 1
            k += 1
        line += per
    return 1


def fetch(
    context: Context, cta: Cta, state: State, site: int, lane: int, descriptor: int, first: int, lines: int, depth: int, kind: int,
    form: int, across: int, how: int, target: int,
) -> int:  # fmt: skip
    """Load a matrix in shared memory, from line ``first`` on, as lines with a stride of ``Tensor.PITCH`` bytes."""
    size = element_bytes(kind)
    bits = 8
    if size == 1 and kind != Tensor.I8 and form >= Tensor.E2M3:
        bits = 6 - 2 * (form == Tensor.E2M1)
    if across:
        return fetch_transposed(
            context, cta, state, site, lane, descriptor, first, lines, depth, size, bits, how, target
        )
    pieces = (depth * size) >> 4
    if size == 0:
        pieces = depth >> 5
    return fetch_lines(context, cta, state, site, lane, descriptor, first, lines, pieces, bits, how, target)


def fetch_tensor(
    context: Context,
    cta: Cta,
    site: int,
    lane: int,
    address: int,
    rows: int,
    base: int,
    spread: int,
    words: int,
    form: int,
    target: int,
) -> int:
    """Load lines of A in tensor memory: so many words in the lane of each row."""
    column = address & 65535
    if has_columns(cta, column, words) == 0:
        return refuse_mbarrier(context, site, lane, address, TensorProblem.NOT_ALLOCATED, column, words)
    source = cta.TENSOR + column * Tensor.COLUMN_BYTES
    row = 0
    while row < rows:
        place = source + 4 * (base + row_lane(row, spread))
        word = 0
        while word < words:
            content = load32(place)
            if form == Tensor.E2M1:
                content = (content >> 2) & 252645135
            store32(target + 4 * word, content)
            place += Tensor.COLUMN_BYTES
            word += 1
        target += Tensor.PITCH
        row += 1
    return 1


def metadata_of(cta: Cta, column: int, held: int, bit: int) -> int:
    """Return the four bits of metadata from ``bit`` on, in lane ``held`` and the columns from ``column`` on."""
    return (load32(cta.TENSOR + (column + (bit >> 5)) * Tensor.COLUMN_BYTES + 4 * held) >> (bit & 31)) & 15


def stored_element(source: int, index: int, size: int) -> int:
    """Return the bits of an element of a line; ``size``: its bytes, 0 if it has four bits."""
    if size == 0:
        return (load8(source + (index >> 1)) >> (4 * (index & 1))) & 15
    if size == 1:
        return load8(source + index)
    if size == 2:
        return load16(source + 2 * index)
    return load32(source + 4 * index)


def expand_row(work: TensorWork, cta: Cta, row: int, column: int, base: int, spread: int, how: int) -> int:
    """Expand a row of a sparse A by the metadata from a column on. Returns 0 if these are invalid."""
    kind = how & Tensor.KIND
    depth = depth_of(how, 0)
    size = element_bytes(kind)
    place = base + row_lane(row, spread)
    source = work + TensorWork.RAW_A + row * Tensor.PITCH
    target = work + TensorWork.RAW_SPARSE + row * Tensor.PITCH
    index = 0
    while index < depth >> 1:
        # the group of elements of four bits of metadata, and the element's index among the stored ones
        chunk = 2 * index
        which = 0
        if kind >= Tensor.MXF4:
            chunk = (index >> 2) << 3
            which = (index >> 1) & 1
        elif kind != Tensor.TF32:
            chunk = (index >> 1) << 2
            which = index & 1
        held = base + row_lane(metadata_row(how, row, chunk), spread)
        pair = metadata_of(cta, column, held, metadata_bit(how, row, chunk))
        content = stored_element(source, index, size)
        if kind == Tensor.TF32:
            if pair != 14 and pair != 4:
                return 0
            k = chunk + (pair == 14)
        else:
            if (pair | content) == 0:
                pair = 4
            if pair & 3 >= pair >> 2 and pair != 6:
                return 0
            k = chunk + ((pair >> (2 * which)) & 3)
            if kind >= Tensor.MXF4:
                k = chunk + 2 * ((pair >> (2 * which)) & 3) + (index & 1)
        mask = work + TensorWork.KEPT_MASKS + k * 16 + (place >> 5) * 4
        store32(mask, load32(mask) | 1 << (place & 31))
        if size == 0:
            store8(target + (k >> 1), load8(target + (k >> 1)) | content << (4 * (k & 1)))
        elif size == 1:
            store8(target + k, content)
        elif size == 2:
            store16(target + 2 * k, content)
        else:
            store32(target + 4 * k, content)
        index += 1
    return 1


def expand(
    context: Context,
    cta: Cta,
    site: int,
    lane: int,
    address: int,
    rows: int,
    base: int,
    spread: int,
    how: int,
    idesc: int,
) -> int:
    """Expand a sparse A by its metadata, and record which elements are stored. Returns 0 if metadata are invalid."""
    work = context.TENSOR_WORK
    kind = how & Tensor.KIND
    column = address & 65535
    columns = 1 + (kind > Tensor.TF32)
    if kind <= Tensor.TF32:
        column += idesc & 3
    if has_columns(cta, column, columns) == 0:
        return refuse_mbarrier(context, site, lane, address, TensorProblem.NOT_ALLOCATED, column, columns)
    fill(work + TensorWork.RAW_SPARSE, 0, 128 * Tensor.PITCH)
    fill(work + TensorWork.KEPT_MASKS, 0, depth_of(how, idesc) * 16)
    row = 0
    while row < rows:
        if expand_row(work, cta, row, column, base, spread, how) == 0:
            return refuse_mbarrier(context, site, lane, address, TensorProblem.METADATA, row, 0)
        row += 1
    return 1


def put_codes(
    context: Context, cta: Cta, site: int, lane: int, address: int, lines: int, scales: int, first: int
) -> int:
    """Load the codes of the scales of lines: bytes of the word in lane l % 32 and column l / 32, from the selector's byte on, and of a
    later column after its fourth byte."""
    work = context.TENSOR_WORK
    column = address & 65535
    further = scale_block(lines)
    if first + scales <= 4:
        further = 0
    columns = further + ((lines + 31) >> 5)
    if has_columns(cta, column, columns) == 0:
        return refuse_mbarrier(context, site, lane, address, TensorProblem.NOT_ALLOCATED, column, columns)
    line = 0
    while line < lines:
        place = cta.TENSOR + (column + (line >> 5)) * Tensor.COLUMN_BYTES + 4 * (line & 31)
        word = load32(place) | load32(place + further * Tensor.COLUMN_BYTES) << 32
        store64(work + TensorWork.CODES + 8 * line, word >> (8 * first))
        line += 1
    return 1
