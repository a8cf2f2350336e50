"""Runtime of generated code: ``tcgen05.mma``.

Written in the subset of ``compile_python`` and compiled, never run as Python. ``isa.tensor_layouts`` defines the layouts.
"""

from __future__ import annotations

from ....isa.tensor_layouts import (
    a_type,
    address_problem,
    b_type,
    columns_n,
    depth_of,
    is_long,
    is_spread,
    parts_of,
    product_problem,
    rows_of,
    scales_of,
    shift_of,
    uses_column,
    work_of,
    work_type,
    zeros_problem,
)
from ....isa.tensor_memory import Tensor, TensorProblem
from ...ir.abi import Context, Cta, State
from ...ir.tensor_records import TensorWork
from ..intrinsics import call, load64, store64, trailing_zeros
from ..mbarrier import refuse_mbarrier
from .matrices import expand, fetch, fetch_tensor, has_columns, put_codes
from .memory import peer_of, shift_rows


def put_numbers(
    context: Context, source: int, target: int, lines: int, count: int, line_step: int, element_step: int, spread: int, negates: int,
    numbers: int,
) -> int:  # fmt: skip
    """Decode elements to f64."""
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


def zeros_of(operands: int, lane: int, how: int) -> int:
    """The zero-column mask descriptor of a product, 0 without one."""
    if how & Tensor.WEIGHTS:
        return load64(operands + TensorWork.OPERAND_ZEROS + 8 * lane)
    return 0


def put_form(work: TensorWork, kind: int, form: int) -> int:
    """Set the encoding of the elements of a matrix."""
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
    work: TensorWork, operands: int, lane: int, rank: int, first: int, rows: int, spread: int
) -> int:
    """Set the masks of the lanes of D that are written: those of its rows that are not disabled."""
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


def put_right(
    context: Context, owner: Cta, site: int, lane: int, operands: int, how: int, rank: int, numbers: int
) -> int:
    """The numbers of B, which both CTAs share where there are no scales. Returns 0 if invalid."""
    work = context.TENSOR_WORK
    kind = how & Tensor.KIND
    idesc = load64(operands + TensorWork.OPERAND_IDESC + 8 * lane)
    columns = columns_n(idesc)
    depth = depth_of(how, idesc)
    scales = scales_of(how, idesc)
    work.SCALE_TABLE = Tensor.UE8M0
    work.SCALE_SHIFT = Tensor.UNSCALED
    if scales:
        if (idesc >> 23) & 1 == 0:
            work.SCALE_TABLE = Tensor.UE4M3
        work.SCALE_SHIFT = trailing_zeros(depth // scales)
        address = load64(operands + TensorWork.OPERAND_SCALE_B + 8 * lane)
        if put_codes(context, owner, site, lane, address, columns, scales, (idesc >> 4) & 3) == 0:
            return 0
    put_form(work, kind, b_type(kind, idesc))
    zeros = zeros_of(operands, lane, how)
    if scales or rank == 0:
        source = work + TensorWork.RAW_B + shift_of(zeros) * Tensor.PITCH
        put_numbers(
            context, source, work + TensorWork.NUMBERS_B, columns, depth, 8 * depth, 8, 0, (idesc >> 14) & 1, numbers
        )  # fmt: skip
    column = columns * (zeros == 0)
    while column < columns:
        if uses_column(zeros, column, columns, rows_of(idesc)) == 0:
            line = work + TensorWork.NUMBERS_B + column * 8 * depth
            end = line + 8 * depth
            while line < end:
                store64(line, 0)
                line += 8
        column += 1
    return 1


def fetch_left(
    context: Context, owner: Cta, state: State, site: int, lane: int, operands: int, how: int, reads: int
) -> int:
    """The scales of A, and its bytes if they lie in shared memory. Returns 0 if invalid."""
    work = context.TENSOR_WORK
    idesc = load64(operands + TensorWork.OPERAND_IDESC + 8 * lane)
    rows = rows_of(idesc) >> ((how >> 6) & 1)
    scales = scales_of(how, idesc)
    if scales:
        address = load64(operands + TensorWork.OPERAND_SCALE_A + 8 * lane)
        if put_codes(context, owner, site, lane, address, rows, scales, (idesc >> 29) & 3) == 0:
            return 0
    if how & Tensor.A_TENSOR:
        return 1
    a = load64(operands + TensorWork.OPERAND_A + 8 * lane)
    kind = how & Tensor.KIND
    stored = depth_of(how, idesc) >> ((how >> 4) & 1)
    across = (idesc >> 15) & 1
    if address_problem(how, a, across):
        return refuse_mbarrier(context, site, lane, 0, TensorProblem.ADDRESS, 0, a)
    target = work + TensorWork.RAW_A
    return fetch(
        context, owner, state, site, lane, a, 0, rows, stored, kind, a_type(idesc), across, reads, target
    )


def put_left(
    context: Context, owner: Cta, site: int, lane: int, operands: int, how: int, rows: int, first: int, spread: int, numbers: int
) -> int:  # fmt: skip
    """The numbers of A for the rows of D from lane ``first`` on. Returns 0 if invalid."""
    work = context.TENSOR_WORK
    kind = how & Tensor.KIND
    idesc = load64(operands + TensorWork.OPERAND_IDESC + 8 * lane)
    form = a_type(idesc)
    source = work + TensorWork.RAW_A
    if how & Tensor.A_TENSOR:
        a = load64(operands + TensorWork.OPERAND_A + 8 * lane)
        packed = form * (kind == Tensor.F8F6F4 or kind == Tensor.MXF8F6F4)
        words = 8 + 4 * is_long(how, idesc)
        if fetch_tensor(context, owner, site, lane, a, rows, first, spread, words, packed, source) == 0:
            return 0
    work.KEPT = 0
    if how & Tensor.SPARSE:
        meta = load64(operands + TensorWork.OPERAND_META + 8 * lane)
        if expand(context, owner, site, lane, meta, rows, first, spread, how, idesc) == 0:
            return 0
        source = work + TensorWork.RAW_SPARSE
        work.KEPT = work + TensorWork.KEPT_MASKS
    put_form(work, kind, form)
    target = work + TensorWork.NUMBERS_A + 8 * first
    put_numbers(
        context, source, target, rows, depth_of(how, idesc), 8, 1024, 128 * spread, (idesc >> 13) & 1, numbers
    )
    return 1


def put_sums(work: TensorWork, owner: Cta, lane: int, operands: int, how: int, columns: int) -> int:
    """Set the operands of the product for all parts of D, of so many columns."""
    idesc = load64(operands + TensorWork.OPERAND_IDESC + 8 * lane)
    d = load64(operands + TensorWork.OPERAND_D + 8 * lane)
    work.LEFT = work + TensorWork.NUMBERS_A
    work.RIGHT_STEP = depth_of(how, idesc) * 8
    work.DEPTH = depth_of(how, idesc)
    work.COLUMNS = columns
    work.D = owner.TENSOR + (d & 65535) * Tensor.COLUMN_BYTES
    work.READS = load64(operands + TensorWork.OPERAND_READS + 8 * lane)
    work.RESULT = Tensor.RESULT_F32
    if how & Tensor.KIND < Tensor.MXF8F6F4:
        work.RESULT = (idesc >> 4) & 3
    work.SATURATES = (idesc >> 3) & 1
    work.FACTOR = (1023 - ((how >> Tensor.SCALE) & 15)) << 52
    return 0


def multiply_in(
    context: Context, owner: Cta, state: State, site: int, lane: int, operands: int, how: int, rank: int, numbers: int, sums: int,
    reads: int,
) -> int:  # fmt: skip
    """Compute the part of a product whose D is in one CTA; the lines of B are already loaded."""
    work = context.TENSOR_WORK
    idesc = load64(operands + TensorWork.OPERAND_IDESC + 8 * lane)
    d = load64(operands + TensorWork.OPERAND_D + 8 * lane)
    a = load64(operands + TensorWork.OPERAND_A + 8 * lane)
    whole = rows_of(idesc)
    rows = whole >> ((how >> 6) & 1)
    spread = is_spread(how, whole)
    parts = parts_of(how, whole)
    columns = columns_n(idesc) // parts
    base = (d >> 16) & 65535
    if base & ~(16 * spread) or (how & Tensor.A_TENSOR and a >> 16 != base):
        return refuse_mbarrier(context, site, lane, d, TensorProblem.DESTINATION, base, 0)
    if has_columns(owner, d & 65535, columns) == 0:
        return refuse_mbarrier(context, site, lane, d, TensorProblem.NOT_ALLOCATED, d & 65535, columns)
    if put_right(context, owner, site, lane, operands, how, rank, numbers) == 0:
        return 0
    if fetch_left(context, owner, state, site, lane, operands, how, reads) == 0:
        return 0
    put_sums(work, owner, lane, operands, how, columns)
    part = 0
    while part < parts:
        first = base + part * rows
        if put_left(context, owner, site, lane, operands, how, rows, first, spread, numbers) == 0:
            return 0
        put_masks(work, operands, lane, rank, first, rows, spread)
        work.RIGHT = work + TensorWork.NUMBERS_B + part * columns * work.RIGHT_STEP
        call(sums, work, work, work)
        part += 1
    if how & Tensor.SHIFTED:
        shift_rows(owner, a & 65535, 0, Tensor.LANES)
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
    """The product of one lane. Returns 0 if invalid."""
    work = context.TENSOR_WORK
    kind = how & Tensor.KIND
    idesc = load64(operands + TensorWork.OPERAND_IDESC + 8 * lane)
    problem = product_problem(how, idesc)
    if problem:
        word = rows_of(idesc)
        if problem == TensorProblem.COLUMNS_N:
            word = columns_n(idesc)
        return refuse_mbarrier(context, site, lane, 0, problem, word, idesc)
    zeros = zeros_of(operands, lane, how)
    if zeros:
        problem = zeros_problem(zeros, rows_of(idesc), idesc)
        if problem:
            return refuse_mbarrier(context, site, lane, 0, problem, shift_of(zeros), zeros)
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
    first = shift_of(zeros)
    lines = first + (columns_n(idesc) >> ((how >> 6) & 1))
    depth = depth_of(how, idesc)
    form = b_type(kind, idesc)
    across = (idesc >> 16) & 1
    b = load64(operands + TensorWork.OPERAND_B + 8 * lane)
    if address_problem(how, b, across):
        return refuse_mbarrier(context, site, lane, 0, TensorProblem.ADDRESS, 0, b)
    # only accesses to the CTA's own memory are checked for races
    reads = 9 + 16 * (one != cta)
    target = work + TensorWork.RAW_B
    # the slot of B follows that of A
    context.VALUE_SLOT = context.VALUE_SLOT + 1
    if fetch(context, one, state, site, lane, b, first, lines, depth, kind, form, across, reads, target) == 0:
        return 0
    if other:
        target += lines * Tensor.PITCH
        more = 9 + 16 * (other != cta)
        if (
            fetch(context, other, state, site, lane, b, 0, lines, depth, kind, form, across, more, target)
            == 0
        ):
            return 0
    context.VALUE_SLOT = context.VALUE_SLOT - 1
    if multiply_in(context, one, state, site, lane, operands, how, 0, numbers, sums, reads) == 0:
        return 0
    if other:
        more = 9 + 16 * (other != cta)
        return multiply_in(context, other, state, site, lane, operands, how, 1, numbers, sums, more)
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
    """Execute ``tcgen05.mma``, lane after lane."""
    while mask:
        lane = trailing_zeros(mask)
        mask = mask & (mask - 1)
        if multiply_one(context, cta, state, site, lane, operands, how, numbers, sums) == 0:
            return 0
    return 1
