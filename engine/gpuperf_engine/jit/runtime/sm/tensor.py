"""The tensor core of an SM that ``tcgen05`` instructions use, and tensor memory, for ``sm.core``.

Products and copies to tensor memory run one after the other, in the order in which they are issued; the issuing warp continues. Each
of the 128 lanes of tensor memory holds a row of D, of which it computes one column after the other. A pair of CTAs multiplies on both
of its SMs at the same time.

Written in the subset of ``compile_python`` and compiled, never run as Python.
"""

from __future__ import annotations

from ...ir.sm_records import AT_BIT, CAUSE_BIT, END, FRACTION, Cause, Op, Slot, Sm, Tensor, Warp
from ..intrinsics import load32
from .choice import sm_again, sm_turn
from .mbarriers import sm_signal, sm_warp
from .stalls import sm_event, sm_held, sm_position


def sm_other(sm: Sm, paired: int) -> Sm:
    """The SM of the other CTA of a pair; the SM itself without a pair."""
    other = sm
    if paired and sm.GROUP > 1:
        rank = (sm - sm.PEERS) // Sm.BYTES
        other = Sm(sm.PEERS + (rank ^ 1) * Sm.BYTES)
    return other


def sm_later(one: int, other: int) -> int:
    """The later of two times."""
    if one > other:
        return one
    return other


def sm_operands(sm: Sm, size: int, now: int) -> int:
    """When ``size`` bytes of operands have been read from shared memory (1/256 clock)."""
    start = sm.OPERANDS
    if start < now << FRACTION:
        start = now << FRACTION
    cost = size * sm.WAVE << FRACTION >> 7
    sm.OPERANDS = start + cost
    sm.COPIED += cost
    return sm.OPERANDS


def sm_in_order(sm: Sm, warp: Warp, op: Op, busy: int, before: int, size: int, now: int) -> int:
    """The next instruction of the tensor core, which takes ``busy`` (1/256 clock). It starts when ``before`` bytes have been read from
    each SM's shared memory, while the instructions before it run, and reads ``size`` bytes more."""
    other = sm_other(sm, op.ARGUMENT & Tensor.PAIR)
    start = sm_operands(sm, before, now)
    read = sm_operands(sm, size, now)
    if other != sm:
        start = sm_later(start, sm_operands(other, before, now))
        read = sm_later(read, sm_operands(other, size, now))
        other.TENSOR_BUSY += busy
    start = sm_later(start, sm_later(sm.TENSOR, other.TENSOR))
    until = sm_later(start + busy, read)
    sm.TENSOR = until
    sm.TENSOR_BUSY += busy
    other.TENSOR = until
    until = until + (1 << FRACTION) - 1 >> FRACTION
    warp.MULTIPLIED = until
    if until >= sm.WINDOW_FROM:
        sm_event(sm, 2, 3, warp, op, start >> FRACTION, start >> FRACTION, until, 0)
    return 0


def sm_multiply(sm: Sm, warp: Warp, op: Op, now: int) -> int:
    """A product, whose instruction descriptor is in the stream. Lanes hold halves or quarters of the columns of D if it has 64 or
    32 rows with ``.ws``, or 64 rows of each CTA of a pair. An instruction reads A first, 32 bytes of each row, and during the
    product 32 bytes of each column of B, 64 if A is sparse; with K = 96 48 bytes of both, in the same time."""
    word = load32(warp.PLACE)
    warp.PLACE += 4
    if word == END:
        return 0
    how = op.ARGUMENT
    sparse = word >> 2 & 1
    columns = (word >> 17 & 63) << 3
    rows = (word >> 24 & 31) << 4
    stored = columns
    if how & Tensor.PAIR:
        rows = rows >> 1
        stored = columns >> 1
        if rows < Tensor.LANES and sparse == 0:
            columns = columns >> 1
    elif how & Tensor.WEIGHTS and rows:
        columns = columns * rows // Tensor.LANES
    before = 0
    size = 0
    line = 32
    if how & Tensor.LONG and word >> 31:
        line = 48
    if (how & Tensor.A_KEPT) == 0:
        before = rows * line
    if (how & Tensor.B_KEPT) == 0:
        size = stored * line << sparse
    return sm_in_order(sm, warp, op, columns * sm.COLUMN_COST, before, size, now)


def sm_told_products(sm: Sm, warp: Warp, op: Op, now: int) -> int:
    """``tcgen05.commit``: tell an mbarrier, or those of several CTAs, when the products and copies of the warp so far are done. The
    stream has signals as of other instructions on mbarriers, with the mask of CTAs as the value."""
    place = warp.PLACE
    count = load32(place)
    place += 4
    done = now
    if warp.MULTIPLIED > done:
        done = warp.MULTIPLIED
    if op.ARGUMENT & Tensor.PAIR:
        done += sm.LATENCY_PAIR
    else:
        done += sm.LATENCY_TENSOR
    by = sm_position(sm, op)
    offset = warp.SLOT - sm.SLOT
    while count:
        word = load32(place)
        mask = load32(place + 4)
        place += 8
        count -= 1
        if sm.GROUP == 1:
            mask = 1
        elif (op.ARGUMENT & Tensor.MULTICAST) == 0:
            mask = 1 << (word >> 8 & 255)
        rank = 0
        while rank < sm.GROUP:
            if mask >> rank & 1:
                peer = Sm(sm.PEERS + rank * Sm.BYTES)
                at = done
                if peer != sm:
                    at += sm.LATENCY_CLUSTER // 2
                if sm_signal(peer, Slot(peer.SLOT + offset), word & 255, 1, 0, 0, at, by):
                    sm_again(peer)
            rank += 1
    warp.PLACE = place
    return 0


def sm_fragment(sm: Sm, part: int, cost: int, now: int) -> int:
    """When a fragment has passed between tensor memory and the registers of a sub-partition."""
    start = sm.FRAGMENTS[part]
    if start < now << FRACTION:
        start = now << FRACTION
    sm.FRAGMENTS[part] = start + cost
    return start + cost + (1 << FRACTION) - 1 >> FRACTION


def sm_stored_tensor(sm: Sm, part: int, warp: Warp, op: Op, now: int) -> int:
    """A store to tensor memory, which a later ``wait`` of the warp waits for."""
    until = sm_fragment(sm, part, op.ARGUMENT, now) + op.LATENCY
    if until > warp.STORED >> AT_BIT:
        warp.STORED = until << AT_BIT | sm_position(sm, op)
    return 0


def sm_took(sm: Sm, warp: Warp, units: int, paired: int) -> int:
    """Allocate columns of tensor memory, of both SMs of a pair, if enough are free."""
    other = sm_other(sm, paired)
    if sm.ALLOCATED + units > Tensor.UNITS or other.ALLOCATED + units > Tensor.UNITS:
        return 0
    slot = Slot(warp.SLOT)
    slot.COLUMNS += units
    slot.ALLOCATIONS += 1
    sm.ALLOCATED += units
    if other != sm:
        also = Slot(other.SLOT + (slot - sm.SLOT))
        also.COLUMNS += units
        also.ALLOCATIONS += 1
        other.ALLOCATED += units
    return 1


def sm_allocate(sm: Sm, warp: Warp, op: Op) -> int:
    """``tcgen05.alloc``: the warp waits until enough columns are free."""
    units = load32(warp.PLACE)
    warp.PLACE += 4
    if units == END or sm_took(sm, warp, units, op.ARGUMENT & Tensor.PAIR):
        return 0
    warp.WANTED = units
    return 0


def sm_freed(sm: Sm, slot: Slot, units: int, now: int) -> int:
    """Free columns that a CTA holds. Warps that wait for columns take them, those of the oldest CTA first."""
    if units == 0:
        return 0
    slot.COLUMNS -= units
    sm.ALLOCATED -= units
    older = 1
    while older:
        older = 0
        first = Warp(0)
        index = 0
        while index < sm.RESIDENT:
            each = Slot(sm.SLOT + index * Slot.BYTES)
            number = 0
            while each.LIVE and number < sm.WARPS:
                warp = sm_warp(sm, each, number)
                if warp.STATE == 41 and (first == 0 or warp.AGE < first.AGE):
                    first = warp
                number += 1
            index += 1
        if first:
            op = first.HELD
            if sm_took(sm, first, first.WANTED, op.ARGUMENT & Tensor.PAIR):
                first.STATE = 1
                first.WANTED = 0
                older = 1
                if first.AT < now:
                    first.AT = now
                sm_turn(sm, first)
                sm_held(sm, first, Cause.COLUMNS << CAUSE_BIT | sm_position(sm, op), now)
    return sm_again(sm)


def sm_deallocate(sm: Sm, warp: Warp, now: int) -> int:
    """``tcgen05.dealloc``: an average allocation of the CTA is free. Which one depends on an address that is not traced."""
    slot = Slot(warp.SLOT)
    held = slot.ALLOCATIONS
    if held == 0:
        return 0
    slot.ALLOCATIONS = held - 1
    return sm_freed(sm, slot, slot.COLUMNS // held, now)
