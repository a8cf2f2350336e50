"""Asynchronous operations of the SM that ``sm.core`` simulates: ``wgmma``, bulk and tensor copies, and the barrier of a cluster.

Written in the subset of ``compile_python`` and compiled, never run as Python.
"""

from __future__ import annotations

from ...ir.sm_records import CAUSE_BIT, END, FRACTION, Cause, Copy, Kind, Op, Slot, Sm, Warp
from ..intrinsics import bits_count, load32, separate
from .choice import sm_again
from .mbarriers import sm_signal, sm_wake, sm_warp
from .memory import sm_below, sm_lead
from .stalls import sm_held, sm_position


def sm_together(sm: Sm, warp: Warp, now: int) -> int:
    """A warp arrives where the four warps of a warpgroup start ``wgmma`` together; the last one resumes all four."""
    slot = Slot(warp.SLOT)
    group = warp.NUMBER // 4
    slot.WARPGROUPS[group] += 1
    warp.STATE = 48 + group
    warp.PARITY = 0
    if slot.WARPGROUPS[group] == 4:
        slot.WARPGROUPS[group] = 0
        sm_wake(sm, slot, 48 + group, 0, now + 1, Cause.WARPGROUP << CAUSE_BIT | sm_position(sm, warp.HELD))
        sm_again(sm)
    return 0


@separate
def sm_product(sm: Sm, part: int, warp: Warp, op: Op, now: int) -> int:
    """One warp's part of a ``wgmma``, which the tensor cores of its sub-partition execute after those before it. Meanwhile they read
    ``ARGUMENT`` / 2 bytes of operands from shared memory."""
    if now < sm.QUEUED_PRODUCTS[part]:
        now = sm.QUEUED_PRODUCTS[part]
    start = sm.OPERANDS
    if start < now << FRACTION:
        start = now << FRACTION
    cost = (op.ARGUMENT >> 1) * sm.WAVE << FRACTION >> 7
    sm.OPERANDS = start + cost
    sm.COPIED += cost
    until = now + op.BUSY
    read = sm.OPERANDS + (1 << FRACTION) - 1 >> FRACTION
    if read > until:
        until = read
    if op.ARGUMENT & 1:
        warp.PRODUCTS[warp.PRODUCED % 8] = until + op.LATENCY
        warp.PRODUCT_BY[warp.PRODUCED % 8] = Cause.PRODUCT << CAUSE_BIT | sm_position(sm, op)
        warp.PRODUCED += 1
    sm.QUEUED_PRODUCTS[part] = until
    return 0


def sm_received(sm: Sm, slot: Slot, copy: Copy, start: int, far: int, count: int) -> int:
    """The queueing delay of a copy that ``count`` SMs receive: each issues its part of the reads of L2 and DRAM, and all of the data
    pass through each SM's port. SMs that copy the same data wait for the same reads and stay in step, so none leads the others."""
    sm_lead(sm, slot, start)
    if copy.IN_STEP:
        sm.LEAD = 0
    near = copy.SECTORS - far
    own = (near + count - 1) // count
    own_far = (far + count - 1) // count
    late = 0
    if own:
        late = sm_below(sm, start, own, 0)
    if own_far:
        late = sm_below(sm, start, own_far, 1)
    if near + far > own + own_far:
        sm.PORT += (near + far - own - own_far) * sm.PORT_COST
        behind = sm.PORT - (start << FRACTION) >> FRACTION
        if behind > late:
            late = behind
    return late


def sm_arrived(sm: Sm, warp: Warp, copy: Copy, place: int, start: int, far: int) -> int:
    """A copy to shared memory of one or several CTAs: signal their mbarriers at the time of arrival."""
    word = load32(place)
    mask = load32(place + 4)
    number = word >> 8 & 255
    slot = Slot(warp.SLOT)
    offset = slot - sm.SLOT
    if sm.GROUP == 1:
        mask = 1
    elif mask == 0:
        mask = 1 << (word >> 16 & 255)
    latency = sm.LATENCY_TMA_L2
    if far:
        latency = sm.LATENCY_TMA_DRAM
    late = copy.REQUESTS * sm.REQUEST_CLOCKS
    rank = 0
    while rank < sm.GROUP:
        if mask >> rank & 1:
            peer = Sm(sm.PEERS + rank * Sm.BYTES)
            behind = sm_received(peer, Slot(peer.SLOT + offset), copy, start, far, bits_count(mask))
            if behind > late:
                late = behind
            peer.COPIED += copy.BYTES_MOVED * sm.WAVE << FRACTION >> 7
        rank += 1
    # in a pair of CTAs, the mbarrier of either may be told
    apart = word >> 24 & 255
    parity = (word >> 16 ^ apart) & 1
    rank = 0
    while rank < sm.GROUP:
        if mask >> rank & 1:
            told = rank
            if apart and sm.GROUP > 1:
                told = rank >> 1 << 1 | parity
            peer = Sm(sm.PEERS + told * Sm.BYTES)
            other = Slot(peer.SLOT + offset)
            by = sm_position(sm, warp.OP)
            if sm_signal(peer, other, number, 0, 0, 0 - copy.BYTES_MOVED, start + latency + late, by):
                sm_again(peer)
        rank += 1
    return 0


def sm_passed(sm: Sm, warp: Warp, copy: Copy, word: int, start: int) -> int:
    """A copy from shared memory to that of another CTA of the cluster."""
    at = start << FRACTION
    if sm.PORT > at:
        at = sm.PORT
    sm.PORT = at + copy.SECTORS * sm.PORT_COST
    done = (sm.PORT >> FRACTION) + sm.LATENCY_CLUSTER
    peer = Sm(sm.PEERS + (word >> 16 & 255) * Sm.BYTES)
    other = Slot(peer.SLOT + (warp.SLOT - sm.SLOT))
    by = sm_position(sm, warp.OP)
    if sm_signal(peer, other, word >> 8 & 255, 0, 0, 0 - copy.BYTES_MOVED, done, by):
        sm_again(peer)
    return 0


@separate
def sm_transfer(sm: Sm, warp: Warp, now: int) -> int:
    """A bulk or tensor copy. The stream has a word (its kind, the mbarrier · 2⁸, the CTA · 2¹⁶) and the mask of the CTAs that receive
    it."""
    place = warp.PLACE
    word = load32(place)
    warp.PLACE = place + 8
    if word == END:
        return 0
    copy = Copy(sm.COPIES + (word & 255) * Copy.BYTES)
    start = sm.TMA
    if start < now:
        start = now
    clocks = copy.REQUESTS * sm.REQUEST_CLOCKS
    sm.TMA = start + clocks
    if copy.WAY == 4:
        return sm_passed(sm, warp, copy, word, start)
    sums = copy.SUM + copy.SHARE * copy.SECTORS
    far = sums >> 16
    copy.SUM = sums & 65535
    if far > copy.SECTORS:
        far = copy.SECTORS
    if copy.WAY == 0:
        return sm_arrived(sm, warp, copy, place, start, far)
    late = sm_received(sm, Slot(warp.SLOT), copy, start, far, 1)
    if late < clocks:
        late = clocks
    if copy.WAY < 3:
        sm.COPIED += copy.BYTES_MOVED * sm.WAVE << FRACTION >> 7
        done = start + sm.LATENCY_SHARED + late + sm.LATENCY_L2
        if done > warp.COPIED:
            warp.COPIED = done
            warp.COPIED_BY = sm_position(sm, warp.OP)
    return 0


def sm_gathered(sm: Sm, slot: Slot, now: int) -> int:
    """Complete the barrier of the cluster and resume its warps, if all live warps have arrived."""
    first = Sm(sm.PEERS)
    offset = slot - sm.SLOT
    all_of = Slot(first.SLOT + offset)
    live = 0
    rank = 0
    while rank < sm.GROUP:
        peer = Sm(sm.PEERS + rank * Sm.BYTES)
        live += Slot(peer.SLOT + offset).LIVE
        rank += 1
    if all_of.GATHERED == 0 or all_of.GATHERED < live:
        return 0
    all_of.GATHERED = 0
    all_of.PHASE += 1
    all_of.PHASE_AT = now + sm.LATENCY_CLUSTER
    rank = 0
    while rank < sm.GROUP:
        peer = Sm(sm.PEERS + rank * Sm.BYTES)
        why = Cause.CLUSTER << CAUSE_BIT | all_of.LAST
        if sm_wake(peer, Slot(peer.SLOT + offset), 40, 0, all_of.PHASE_AT, why):
            sm_again(peer)
        rank += 1
    return 0


def sm_grid(sm: Sm, warp: Warp, now: int) -> int:
    """A warp waits for all CTAs of the grid. Those of the SM, all of which run, stand for them: it waits until one warp of each
    does."""
    warp.STATE = 42
    warp.PARITY = 0
    index = 0
    while index < sm.RESIDENT:
        slot = Slot(sm.SLOT + index * Slot.BYTES)
        waits = 0
        if slot.LIVE == 0:
            waits = 1
        number = 0
        while number < sm.WARPS:
            if sm_warp(sm, slot, number).STATE == 42:
                waits = 1
            number += 1
        if waits == 0:
            return 0
        index += 1
    why = Cause.CLUSTER << CAUSE_BIT | sm_position(sm, warp.HELD)
    index = 0
    while index < sm.RESIDENT:
        sm_wake(sm, Slot(sm.SLOT + index * Slot.BYTES), 42, 0, now + 1, why)
        index += 1
    sm_again(sm)
    return 0


def sm_cluster(sm: Sm, warp: Warp, kind: int, now: int) -> int:
    """A warp arrives at the barrier of its cluster, or waits there."""
    slot = Slot(warp.SLOT)
    first = Sm(sm.PEERS)
    all_of = Slot(first.SLOT + (slot - sm.SLOT))
    if kind == Kind.CLUSTER_ARRIVE:
        warp.CLUSTER += 1
        all_of.GATHERED += 1
        all_of.LAST = sm_position(sm, warp.HELD)
        sm_gathered(sm, slot, now)
    elif all_of.PHASE < warp.CLUSTER:
        warp.STATE = 40
        warp.PARITY = 0
    elif warp.AT < all_of.PHASE_AT:
        warp.AT = all_of.PHASE_AT
        sm_held(sm, warp, Cause.CLUSTER << CAUSE_BIT | all_of.LAST, warp.AT)
    return 0
