"""Runtime of generated code: tensor memory, its allocation, and copies to it.

Written in the subset of ``compile_python`` and compiled, never run as Python. ``isa.tensor_layouts`` defines the layouts. A ``site``
below 0 is −1 − the position of the instruction in its block.
"""

from __future__ import annotations

from ....isa.tensor_memory import Tensor, TensorProblem
from ...ir.abi import Context, Cta, State
from ...ir.tensor_records import TensorWork
from ..intrinsics import fill, load32, load64, store32, trailing_zeros, unsigned_less
from ..mbarrier import refuse_mbarrier
from ..memory import reach
from .matrices import fetch_lines, has_columns


def tensor_place(
    context: Context, cta: Cta, state: State, site: int, address: int, align: int, columns: int
) -> int:
    """Return the host address of a warp's access, or 0 after recording the fault. ``align``: the first lane must be a multiple of
    it."""
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
    """Allocate columns. Returns 1 after the allocation, or if it is invalid; 0 if the warp must wait."""
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
    """Free columns; with 0 columns, relinquish the right to allocate."""
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
    # warps that wait for columns try again
    cta.PHASES += 1
    context.PASSED += 1
    return 1


def peer_of(cta: Cta) -> Cta:
    """Return the other CTA of the pair; 0 if there is none."""
    cluster = cta.CLUSTER
    if cluster == 0:
        return Cta(0)
    rank = cta.RANK ^ 1
    if not unsigned_less(rank, cluster.SIZE):
        return Cta(0)
    return cluster.PEERS[rank]


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
    if fetch_lines(context, cta, state, site, lane, descriptor, 0, rows, pieces, bits, reads, raw) == 0:
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


def shift_rows(cta: Cta, column: int, first: int, last: int) -> int:
    """Give each lane from ``first`` up to ``last`` the row of the next one, except the last of each 32, in the columns of a shift."""
    end = column + Tensor.SHIFTED_COLUMNS
    while column < end:
        lane = first
        place = cta.TENSOR + column * Tensor.COLUMN_BYTES
        while lane < last:
            if lane & 31 != 31:
                store32(place + 4 * lane, load32(place + 4 * lane + 4))
            lane += 1
        column += 1
    return 1


def shift_one(context: Context, cta: Cta, site: int, lane: int, address: int) -> int:
    """One shift in the tensor memory of one CTA."""
    row = address >> 16
    column = address & 65535
    if row & 31 or not unsigned_less(row, Tensor.LANES):
        return refuse_mbarrier(context, site, lane, address, TensorProblem.SHIFT_LANE, row, 0)
    if has_columns(cta, column, Tensor.SHIFTED_COLUMNS) == 0:
        return refuse_mbarrier(
            context, site, lane, address, TensorProblem.NOT_ALLOCATED, column, Tensor.SHIFTED_COLUMNS
        )
    return shift_rows(cta, column, row, row + 32)


def tensor_shift(context: Context, cta: Cta, site: int, mask: int, addresses: int, pair: int) -> int:
    """Execute ``tcgen05.shift``, lane after lane; ``pair``: in both CTAs of the pair."""
    other = Cta(0)
    if pair:
        other = peer_of(cta)
    while mask:
        lane = trailing_zeros(mask)
        mask = mask & (mask - 1)
        address = load64(addresses + 8 * lane)
        if pair and other == 0:
            return refuse_mbarrier(context, site, lane, address, TensorProblem.PAIR, 0, 0)
        if shift_one(context, cta, site, lane, address) == 0:
            return 0
        if pair and shift_one(context, other, site, lane, address) == 0:
            return 0
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
    """Execute ``tcgen05.cp``, lane after lane; ``pair``: in both CTAs of the pair, from the shared memory of each."""
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
