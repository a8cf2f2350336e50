"""Runtime of generated code: tensor memory, what it is copied from, and the matrices of ``tcgen05.mma``.

Written in the subset of ``compile_python`` and compiled, never run as Python. ``isa.tensor_layouts`` says where everything lies. A
``site`` below 0 is −1 − the place of the instruction in its block.
"""

from __future__ import annotations

from ...isa.tensor_layouts import (
    a_type,
    b_type,
    columns_n,
    depth_of,
    element_bytes,
    is_spread,
    line_offset,
    metadata_bit,
    metadata_row,
    parts_of,
    product_problem,
    row_lane,
    rows_of,
    swizzle_width,
    swizzled,
    transposed_offset,
    work_of,
    work_type,
)
from ...isa.tensor_memory import Tensor, TensorProblem
from ..ir.abi import Context, Cta, State
from ..ir.tensor_records import TensorWork
from .compile_python import (
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
    trailing_zeros,
    unsigned_less,
)
from .mbarrier import refuse_mbarrier
from .memory import reach


def has_columns(cta: Cta, column: int, count: int) -> int:
    """Whether columns of tensor memory are allocated."""
    if unsigned_less(Tensor.COLUMNS - count, column):
        return 0
    first = column >> 5
    units = ((1 << (((column + count - 1) >> 5) - first + 1)) - 1) << first
    return (cta.TENSOR_UNITS & units) == units


def tensor_place(
    context: Context, cta: Cta, state: State, site: int, address: int, align: int, columns: int
) -> int:
    """Host address of what the warp loads or stores, or 0 after noting the fault. ``align``: lanes at multiples of which it may
    begin."""
    row = address >> 16
    column = address & 65535
    if row & (align - 1) or row >> 5 != state.INDEX & 3:
        return refuse_mbarrier(context, site, 0, address, TensorProblem.LANE, row, 0)
    if has_columns(cta, column, columns) == 0:
        return refuse_mbarrier(context, site, 0, address, TensorProblem.NOT_ALLOCATED, column, columns)
    return cta.TENSOR + column * Tensor.COLUMN_BYTES + row * 4


def tensor_alloc(
    context: Context, cta: Cta, state: State, site: int, lane: int, address: int, columns: int, how: int
) -> int:
    """Allocate columns: 1 if that is done, or refused; 0 if the warp must wait."""
    if columns & (columns - 1) or columns < Tensor.UNIT or columns > Tensor.COLUMNS:
        refuse_mbarrier(context, site, lane, 0, TensorProblem.COLUMNS, 0, columns)
        return 1
    if cta.TENSOR_CLOSED:
        refuse_mbarrier(context, site, lane, 0, TensorProblem.CLOSED, 0, columns)
        return 1
    count = columns >> 5
    wanted = (1 << count) - 1
    unit = 0
    while unit + count <= Tensor.UNITS and cta.TENSOR_UNITS & (wanted << unit):
        unit += count
    if unit + count > Tensor.UNITS:
        if state.EXPIRED:
            state.EXPIRED = 0
            refuse_mbarrier(context, site, lane, 0, TensorProblem.FULL, 0, columns)
            return 1
        return 0
    state.EXPIRED = 0
    host = reach(context, cta, state, site, lane, address, 4, how)
    if host:
        store32(host, unit * Tensor.UNIT)
        cta.TENSOR_UNITS = cta.TENSOR_UNITS | (wanted << unit)
        cta.TENSOR_SIZES[unit] = count
        fill(cta.TENSOR + unit * (Tensor.UNIT * Tensor.COLUMN_BYTES), 0, columns * Tensor.COLUMN_BYTES)
    return 1


def tensor_free(context: Context, cta: Cta, site: int, lane: int, address: int, columns: int) -> int:
    """Free columns; no columns: the CTA allocates no more."""
    if columns == 0:
        cta.TENSOR_CLOSED = 1
        return 1
    unit = address >> 5
    count = columns >> 5
    wrong = columns & 31 or address & 31 or not unsigned_less(unit, Tensor.UNITS)
    if wrong or cta.TENSOR_SIZES[unit] != count:
        return refuse_mbarrier(context, site, lane, address, TensorProblem.NOT_FREED, address, columns)
    cta.TENSOR_SIZES[unit] = 0
    cta.TENSOR_UNITS = cta.TENSOR_UNITS & ~(((1 << count) - 1) << unit)
    # whoever waits for columns looks again
    cta.PHASES += 1
    context.PASSED += 1
    return 1


def peer_of(cta: Cta) -> Cta:
    """The other CTA of the pair; 0 if there is none."""
    cluster = cta.CLUSTER
    if cluster == 0:
        return Cta(0)
    rank = cta.RANK ^ 1
    if not unsigned_less(rank, cluster.SIZE):
        return Cta(0)
    return cluster.PEERS[rank]


def unpacked(target: int, source: int, bits: int) -> int:
    """16 elements of four or six bits, each to a byte."""
    index = 0
    held = load64(source)
    more = load32(source + 8)
    while index < 16:
        store8(target + index, held & ((1 << bits) - 1))
        held = (held >> bits) | (more << (64 - bits))
        more = more >> bits
        index += 1
    return 0


def fetch_lines(
    context: Context, cta: Cta, state: State, site: int, lane: int, descriptor: int, lines: int, pieces: int, bits: int, how: int,
    target: int,
) -> int:  # fmt: skip
    """Lines of a matrix in shared memory along K, in pieces of 16 bytes; ``bits``: of elements that are packed, each to a byte."""
    start = (descriptor & 16383) << 4
    leading = ((descriptor >> 16) & 16383) << 4
    stride = ((descriptor >> 32) & 16383) << 4
    width = swizzle_width(descriptor >> 61)
    if width == 0 or descriptor >> 61 == 1:
        return refuse_mbarrier(context, site, lane, start, TensorProblem.SWIZZLE, 0, descriptor)
    if width > 16 and pieces * 16 > width:
        return refuse_mbarrier(context, site, lane, start, TensorProblem.LINE, 0, descriptor)
    phase = (descriptor >> 49) & 7
    line = 0
    while line < lines:
        piece = 0
        while piece < pieces:
            address = (start + line_offset(line, piece, width, leading, stride)) & 262143
            host = reach(context, cta, state, site, lane, swizzled(address, width, 4, phase), 16, how)
            if host == 0:
                return 0
            if bits < 8:
                unpacked(target + 16 * piece, host, bits)
            else:
                store64(target + 16 * piece, load64(host))
                store64(target + 16 * piece + 8, load64(host + 8))
            piece += 1
        target += Tensor.PITCH
        line += 1
    return 1


def fetch_transposed(
    context: Context, cta: Cta, state: State, site: int, lane: int, descriptor: int, lines: int, depth: int, size: int, how: int,
    target: int,
) -> int:  # fmt: skip
    """Lines of a matrix in shared memory that lies across K: 16 bytes hold one k of several lines."""
    start = (descriptor & 16383) << 4
    leading = ((descriptor >> 16) & 16383) << 4
    stride = ((descriptor >> 32) & 16383) << 4
    mode = descriptor >> 61
    width = swizzle_width(mode)
    if width == 0 or (mode == 1) != (size == 4):
        return refuse_mbarrier(context, site, lane, start, TensorProblem.SWIZZLE, 0, descriptor)
    phase = (descriptor >> 49) & 7
    per = 16 // size
    line = 0
    while line < lines:
        k = 0
        while k < depth:
            offset = transposed_offset(line // per, k, width, leading, stride, 8 - 4 * (mode == 1))
            address = swizzled((start + offset) & 262143, width, 4 + (mode == 1), phase)
            host = reach(context, cta, state, site, lane, address, 16, how)
            if host == 0:
                return 0
            into = target + line * Tensor.PITCH + k * size
            index = 0
            while index < per and line + index < lines:
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
    context: Context, cta: Cta, state: State, site: int, lane: int, descriptor: int, lines: int, depth: int, kind: int, form: int,
    across: int, how: int, target: int,
) -> int:  # fmt: skip
    """A matrix in shared memory, line by line, ``Tensor.PITCH`` bytes apart."""
    size = element_bytes(kind)
    if across:
        return fetch_transposed(context, cta, state, site, lane, descriptor, lines, depth, size, how, target)
    bits = 8
    if size == 1 and kind != Tensor.I8 and form >= Tensor.E2M3:
        bits = 6 - 2 * (form == Tensor.E2M1)
    pieces = (depth * size) >> 4
    if size == 0:
        pieces = depth >> 5
    return fetch_lines(context, cta, state, site, lane, descriptor, lines, pieces, bits, how, target)


def fetch_tensor(
    context: Context,
    cta: Cta,
    site: int,
    lane: int,
    address: int,
    rows: int,
    base: int,
    spread: int,
    form: int,
    target: int,
) -> int:
    """Lines of A in tensor memory: eight words in the lane of each row."""
    column = address & 65535
    if has_columns(cta, column, 8) == 0:
        return refuse_mbarrier(context, site, lane, address, TensorProblem.NOT_ALLOCATED, column, 8)
    source = cta.TENSOR + column * Tensor.COLUMN_BYTES
    row = 0
    while row < rows:
        place = source + 4 * (base + row_lane(row, spread))
        word = 0
        while word < 8:
            content = load32(place)
            if form == Tensor.E2M1:
                content = (content >> 2) & 252645135
            store32(target + 4 * word, content)
            place += Tensor.COLUMN_BYTES
            word += 1
        target += Tensor.PITCH
        row += 1
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
    """Put the elements of a sparse A where their metadata say, and note where there are any. 0 if metadata mean nothing."""
    work = context.TENSOR_WORK
    kind = how & Tensor.KIND
    column = address & 65535
    columns = 1 + (kind > Tensor.TF32)
    if kind <= Tensor.TF32:
        column += idesc & 3
    if has_columns(cta, column, columns) == 0:
        return refuse_mbarrier(context, site, lane, address, TensorProblem.NOT_ALLOCATED, column, columns)
    depth = depth_of(how)
    size = element_bytes(kind)
    fill(work + TensorWork.RAW_SPARSE, 0, 128 * Tensor.PITCH)
    fill(work + TensorWork.KEPT_MASKS, 0, depth * 16)
    row = 0
    while row < rows:
        place = base + row_lane(row, spread)
        source = work + TensorWork.RAW_A + row * Tensor.PITCH
        target = work + TensorWork.RAW_SPARSE + row * Tensor.PITCH
        index = 0
        while index < depth >> 1:
            # the group of elements that four bits of metadata are about, and which of those stored it is
            chunk = 2 * index
            which = 0
            if kind >= Tensor.MXF4:
                chunk = (index >> 2) << 3
                which = (index >> 1) & 1
            elif kind != Tensor.TF32:
                chunk = (index >> 1) << 2
                which = index & 1
            held = base + row_lane(metadata_row(how, row, chunk), spread)
            bit = metadata_bit(how, row, chunk)
            word = load32(cta.TENSOR + (column + (bit >> 5)) * Tensor.COLUMN_BYTES + 4 * held)
            pair = (word >> (bit & 31)) & 15
            if kind == Tensor.TF32:
                if pair != 14 and pair != 4:
                    return refuse_mbarrier(context, site, lane, address, TensorProblem.METADATA, row, 0)
                k = chunk + (pair == 14)
            else:
                if pair & 3 >= pair >> 2:
                    return refuse_mbarrier(context, site, lane, address, TensorProblem.METADATA, row, 0)
                k = chunk + ((pair >> (2 * which)) & 3)
                if kind >= Tensor.MXF4:
                    k = chunk + 2 * ((pair >> (2 * which)) & 3) + (index & 1)
            mask = work + TensorWork.KEPT_MASKS + k * 16 + (place >> 5) * 4
            store32(mask, load32(mask) | 1 << (place & 31))
            if size == 0:
                nibble = (load8(source + (index >> 1)) >> (4 * (index & 1))) & 15
                store8(target + (k >> 1), load8(target + (k >> 1)) | nibble << (4 * (k & 1)))
            elif size == 1:
                store8(target + k, load8(source + index))
            elif size == 2:
                store16(target + 2 * k, load16(source + 2 * index))
            else:
                store32(target + 4 * k, load32(source + 4 * index))
            index += 1
        row += 1
    return 1


def put_codes(
    context: Context, cta: Cta, site: int, lane: int, address: int, lines: int, scales: int, first: int
) -> int:
    """The codes of the scales of lines: bytes of the word in lane l % 32 and column l / 32, from that of the selector on."""
    work = context.TENSOR_WORK
    column = address & 65535
    columns = (lines + 31) >> 5
    if has_columns(cta, column, columns) == 0:
        return refuse_mbarrier(context, site, lane, address, TensorProblem.NOT_ALLOCATED, column, columns)
    line = 0
    while line < lines:
        word = load32(cta.TENSOR + (column + (line >> 5)) * Tensor.COLUMN_BYTES + 4 * (line & 31))
        store32(work + TensorWork.CODES + 4 * line, word >> (8 * first))
        line += 1
    return 1


def put_numbers(
    context: Context, source: int, target: int, lines: int, count: int, line_step: int, element_step: int, spread: int, negates: int,
    numbers: int,
) -> int:  # fmt: skip
    """Turn elements into numbers."""
    work = context.TENSOR_WORK
    work.SOURCE = source
    work.TARGET = target
    work.LINES = lines
    work.COUNT = count
    work.LINE_STEP = line_step
    work.ELEMENT_STEP = element_step
    work.SPREAD = spread
    work.SIGN = 1023 << 52 | negates << 63
    work.SCALES = work + TensorWork.CODES
    return call(numbers, work, work, work)


def put_form(work: TensorWork, kind: int, form: int) -> int:
    """How the elements of a matrix are stored, and what they mean."""
    work.FORM = Tensor.BYTES_FORM
    work.TABLE = form
    if kind <= Tensor.TF32:
        work.FORM = form
        work.TABLE = 0
    elif kind == Tensor.I8:
        work.TABLE = Tensor.U8 + form
    elif kind >= Tensor.MXF4:
        work.FORM = Tensor.NIBBLES_FORM
        work.TABLE = Tensor.E2M1
    return 0


def put_masks(
    work: TensorWork, operands: int, lane: int, rank: int, how: int, first: int, rows: int, spread: int
) -> int:
    """Which lanes of D are written: those of its rows that are not disabled."""
    chunk = 0
    while chunk < 4:
        mask = 4294967295
        if spread:
            mask = 65535 << (first & 16)
        elif rows < 128 and (chunk < first >> 5 or chunk >= (first + rows) >> 5):
            mask = 0
        word = TensorWork.OPERAND_MASKS + (4 * rank + chunk) * 256
        work.MASKS[chunk] = mask & ~load64(operands + word + 8 * lane)
        chunk += 1
    return 0


def multiply_in(
    context: Context, cta: Cta, owner: Cta, state: State, site: int, lane: int, operands: int, how: int, rank: int, numbers: int,
    sums: int, reads: int,
) -> int:  # fmt: skip
    """The part of a product whose D lies in one CTA; the lines of B have been fetched."""
    work = context.TENSOR_WORK
    kind = how & Tensor.KIND
    idesc = load64(operands + TensorWork.OPERAND_IDESC + 8 * lane)
    d = load64(operands + TensorWork.OPERAND_D + 8 * lane)
    a = load64(operands + TensorWork.OPERAND_A + 8 * lane)
    whole = rows_of(idesc)
    rows = whole >> ((how >> 6) & 1)
    columns = columns_n(idesc)
    depth = depth_of(how)
    scales = (how >> Tensor.SCALES) & 15
    spread = is_spread(how, whole)
    parts = parts_of(how, whole)
    own = columns // parts
    form = a_type(idesc)
    base = (d >> 16) & 65535
    if base & ~(16 * spread) or (how & Tensor.A_TENSOR and a >> 16 != base):
        return refuse_mbarrier(context, site, lane, d, TensorProblem.DESTINATION, base, 0)
    if has_columns(owner, d & 65535, own) == 0:
        return refuse_mbarrier(context, site, lane, d, TensorProblem.NOT_ALLOCATED, d & 65535, own)
    work.SCALE_TABLE = Tensor.UE8M0
    if scales:
        if (idesc >> 23) & 1 == 0:
            work.SCALE_TABLE = Tensor.UE4M3
        shift = trailing_zeros(depth // scales)
        work.SCALE_SHIFT = shift
        address = load64(operands + TensorWork.OPERAND_SCALE_B + 8 * lane)
        if put_codes(context, owner, site, lane, address, columns, scales, (idesc >> 4) & 3) == 0:
            return 0
    else:
        work.SCALE_SHIFT = Tensor.UNSCALED
    put_form(work, kind, b_type(kind, idesc))
    if scales or rank == 0:
        put_numbers(
            context, work + TensorWork.RAW_B, work + TensorWork.NUMBERS_B, columns, depth, 8 * depth, 8, 0, (idesc >> 14) & 1, numbers
        )  # fmt: skip
    if scales:
        address = load64(operands + TensorWork.OPERAND_SCALE_A + 8 * lane)
        if put_codes(context, owner, site, lane, address, rows, scales, (idesc >> 29) & 3) == 0:
            return 0
    stored = depth >> ((how >> 4) & 1)
    if how & Tensor.A_TENSOR == 0:
        across = (idesc >> 15) & 1
        target = work + TensorWork.RAW_A
        if fetch(context, owner, state, site, lane, a, rows, stored, kind, form, across, reads, target) == 0:
            return 0
    part = 0
    while part < parts:
        first = base + part * rows
        if how & Tensor.A_TENSOR:
            packed = form * (kind == Tensor.F8F6F4 or kind == Tensor.MXF8F6F4)
            target = work + TensorWork.RAW_A
            if fetch_tensor(context, owner, site, lane, a, rows, first, spread, packed, target) == 0:
                return 0
        source = work + TensorWork.RAW_A
        work.KEPT = 0
        if how & Tensor.SPARSE:
            meta = load64(operands + TensorWork.OPERAND_META + 8 * lane)
            if expand(context, owner, site, lane, meta, rows, first, spread, how, idesc) == 0:
                return 0
            source = work + TensorWork.RAW_SPARSE
            work.KEPT = work + TensorWork.KEPT_MASKS
        put_form(work, kind, form)
        target = work + TensorWork.NUMBERS_A + 8 * first
        put_numbers(context, source, target, rows, depth, 8, 1024, 128 * spread, (idesc >> 13) & 1, numbers)
        put_masks(work, operands, lane, rank, how, first, rows, spread)
        work.LEFT = work + TensorWork.NUMBERS_A
        work.RIGHT = work + TensorWork.NUMBERS_B + part * own * depth * 8
        work.RIGHT_STEP = depth * 8
        work.DEPTH = depth
        work.COLUMNS = own
        work.D = owner.TENSOR + (d & 65535) * Tensor.COLUMN_BYTES
        work.READS = load64(operands + TensorWork.OPERAND_READS + 8 * lane)
        work.RESULT = Tensor.RESULT_F32
        if kind < Tensor.MXF8F6F4:
            work.RESULT = (idesc >> 4) & 3
        work.SATURATES = (idesc >> 3) & 1
        work.FACTOR = (1023 - ((how >> Tensor.SCALE) & 15)) << 52
        call(sums, work, work, work)
        part += 1
    return 1


def multiply_one(
    context: Context,
    cta: Cta,
    state: State,
    site: int,
    lane: int,
    operands: int,
    how: int,
    numbers: int,
    sums: int,
) -> int:
    """The product of one lane. 0 if refused."""
    work = context.TENSOR_WORK
    kind = how & Tensor.KIND
    idesc = load64(operands + TensorWork.OPERAND_IDESC + 8 * lane)
    problem = product_problem(how, idesc)
    if problem:
        word = rows_of(idesc)
        if problem == TensorProblem.COLUMNS_N:
            word = columns_n(idesc)
        return refuse_mbarrier(context, site, lane, 0, problem, word, idesc)
    work.OPERATIONS[work_type(how, idesc)] += work_of(how, idesc)
    one = cta
    other = Cta(0)
    if how & Tensor.PAIR:
        other = peer_of(cta)
        if other == 0:
            return refuse_mbarrier(context, site, lane, 0, TensorProblem.PAIR, 0, idesc)
        if cta.RANK & 1:
            one = other
            other = cta
    lines = columns_n(idesc) >> ((how >> 6) & 1)
    depth = depth_of(how)
    form = b_type(kind, idesc)
    across = (idesc >> 16) & 1
    b = load64(operands + TensorWork.OPERAND_B + 8 * lane)
    # races are looked for in the memory of the CTA itself
    reads = 9 + 16 * (one != cta)
    target = work + TensorWork.RAW_B
    if fetch(context, one, state, site, lane, b, lines, depth, kind, form, across, reads, target) == 0:
        return 0
    if other:
        target += lines * Tensor.PITCH
        more = 9 + 16 * (other != cta)
        if fetch(context, other, state, site, lane, b, lines, depth, kind, form, across, more, target) == 0:
            return 0
    if multiply_in(context, cta, one, state, site, lane, operands, how, 0, numbers, sums, reads) == 0:
        return 0
    if other:
        more = 9 + 16 * (other != cta)
        return multiply_in(context, cta, other, state, site, lane, operands, how, 1, numbers, sums, more)
    return 1


def tensor_multiply(
    context: Context,
    cta: Cta,
    state: State,
    site: int,
    mask: int,
    operands: int,
    how: int,
    numbers: int,
    sums: int,
) -> int:
    """``tcgen05.mma``: each lane's product, one after the other."""
    while mask:
        lane = trailing_zeros(mask)
        mask = mask & (mask - 1)
        if multiply_one(context, cta, state, site, lane, operands, how, numbers, sums) == 0:
            return 0
    return 1


def copy_one(
    context: Context,
    cta: Cta,
    state: State,
    site: int,
    lane: int,
    address: int,
    descriptor: int,
    shape: int,
    bits: int,
    reads: int,
) -> int:
    """One copy to the tensor memory of one CTA. ``shape``: rows + 256 · pieces of 16 bytes + 4096 · how they are multicast."""
    work = context.TENSOR_WORK
    rows = shape & 255
    pieces = (shape >> 8) & 15
    multicast = shape >> 12
    column = address & 65535
    base = address >> 16
    if has_columns(cta, column, 4 * pieces) == 0:
        return refuse_mbarrier(context, site, lane, address, TensorProblem.NOT_ALLOCATED, column, 4 * pieces)
    if base and (rows > 4 or base > 31):
        return refuse_mbarrier(context, site, lane, address, TensorProblem.DESTINATION, base, 0)
    raw = work + TensorWork.RAW_A
    if fetch_lines(context, cta, state, site, lane, descriptor, rows, pieces, bits, reads, raw) == 0:
        return 0
    target = cta.TENSOR + column * Tensor.COLUMN_BYTES
    place = 0
    while place < Tensor.LANES:
        row = place
        if rows == 4:
            row = place >> 5
        elif multicast == 1:
            row = place & 63
        elif multicast == 2:
            row = (place & 31) + ((place >> 6) << 5)
        elif multicast == 3:
            row = place & 31
        if rows > 4 or place & 31 == base:
            word = 0
            while word < 4 * pieces:
                content = load32(raw + row * Tensor.PITCH + 4 * word)
                if bits == 4:
                    content = content << 2
                store32(target + word * Tensor.COLUMN_BYTES + 4 * place, content)
                word += 1
        place += 1
    return 1


def tensor_copy(
    context: Context,
    cta: Cta,
    state: State,
    site: int,
    mask: int,
    addresses: int,
    descriptors: int,
    shape: int,
    bits: int,
    pair: int,
) -> int:
    """``tcgen05.cp``: each lane's copy, one after the other; ``pair``: in both CTAs of the pair, from the shared memory of each."""
    other = Cta(0)
    if pair:
        other = peer_of(cta)
    while mask:
        lane = trailing_zeros(mask)
        mask = mask & (mask - 1)
        address = load64(addresses + 8 * lane)
        descriptor = load64(descriptors + 8 * lane)
        if pair and other == 0:
            return refuse_mbarrier(context, site, lane, address, TensorProblem.PAIR, 0, 0)
        if copy_one(context, cta, state, site, lane, address, descriptor, shape, bits, 9) == 0:
            return 0
        if pair and copy_one(context, other, state, site, lane, address, descriptor, shape, bits, 25) == 0:
            return 0
    return 1
