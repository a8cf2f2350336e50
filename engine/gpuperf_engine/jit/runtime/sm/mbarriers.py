"""Mbarriers of the SM that ``sm.core`` simulates. A signal changes the mbarrier when its instruction issues, and records the later
time at which it takes effect.

Written in the subset of ``compile_python`` and compiled, never run as Python.
"""

from __future__ import annotations

from ...ir.sm_records import CAUSE_BIT, Cause, Kind, Mbarrier, Op, Signal, Slot, Sm, Warp
from ..intrinsics import load32
from .choice import sm_again, sm_turn
from .stalls import sm_held, sm_position


def sm_warp(sm: Sm, slot: Slot, number: int) -> Warp:
    """A warp of a CTA."""
    place = (slot - sm.SLOT) // Slot.BYTES * sm.WARPS + number
    return Warp(sm.WARP + (place % sm.PARTS * sm.EACH + place // sm.PARTS) * Warp.BYTES)


def sm_wake(sm: Sm, slot: Slot, state: int, parity: int, at: int, why: int) -> int:
    """Resume the warps of a CTA that are in a state; ``why`` is the cause of their wait. Returns how many there are."""
    count = 0
    number = 0
    while number < sm.WARPS:
        warp = sm_warp(sm, slot, number)
        if warp.STATE == state and warp.PARITY == parity:
            warp.STATE = 1
            if warp.AT < at:
                warp.AT = at
            sm_turn(sm, warp)
            sm_held(sm, warp, why, at)
            count += 1
        number += 1
    return count


def sm_signal(
    sm: Sm, slot: Slot, number: int, arrivals: int, dropped: int, expected: int, at: int, by: int
) -> int:
    """Signal arrivals and expected bytes (negative: bytes that have arrived) to an mbarrier; from the next phase on, ``dropped`` fewer
    arrivals are expected. ``by`` is the position of the instruction. The last signal of a phase resumes the warps that wait for it.
    Returns whether any resumed."""
    told = Mbarrier(slot.MBARRIERS + number * Mbarrier.BYTES)
    known = told.COUNT
    told.COUNT -= dropped
    if told.READY < at:
        told.READY = at
        told.BY = by
    told.PENDING -= arrivals
    told.EXPECTED += expected
    if told.PENDING == 0 and told.EXPECTED == 0 and known:
        parity = told.PHASE & 1
        ready = told.READY
        told.DONE[parity] = ready
        told.DONE_BY[parity] = told.BY
        told.PHASE += 1
        told.PENDING = told.COUNT
        told.READY = 0
        why = Cause.MBARRIER << CAUSE_BIT | told.BY
        if sm_wake(sm, slot, 64 + number, parity, ready + sm.LATENCY_SHARED // 2, why):
            return 1
    return 0


def sm_told(sm: Sm, warp: Warp, op: Op, start: int) -> int:
    """Execute the signals or tests of an instruction: for each the stream has a word (the mbarrier's number, the CTA · 2⁸, lanes ·
    2¹⁶) and a value. Signals and results each take half the latency of shared memory."""
    place = warp.PLACE
    count = load32(place)
    place += 4
    kind = op.KIND
    slot = Slot(warp.SLOT)
    by = sm_position(sm, op)
    there = start + sm.LATENCY_SHARED // 2
    ready = start + sm.LATENCY_SHARED
    while count:
        word = load32(place)
        value = load32(place + 4)
        place += 8
        count -= 1
        number = word & 255
        lanes = word >> 16
        peer = sm
        at = there
        if sm.GROUP > 1:
            peer = Sm(sm.PEERS + (word >> 8 & 255) * Sm.BYTES)
            if peer != sm:
                at = start + sm.LATENCY_CLUSTER // 2
        other = Slot(peer.SLOT + (slot - sm.SLOT))
        told = Mbarrier(other.MBARRIERS + number * Mbarrier.BYTES)
        if kind == Kind.INIT:
            told.COUNT = 1048576 - (value >> 1)
            told.PENDING = told.COUNT
            told.EXPECTED = 0
            told.PHASE = 0
            told.READY = 0
        elif kind == Kind.TEST:
            parity = value >> 31
            if value >> 30 & 1:
                parity = told.TOKENS >> warp.NUMBER & 1
            if (told.PHASE & 1) != parity:
                at = told.DONE[parity] + sm.LATENCY_SHARED // 2
                if at > ready:
                    ready = at
                    sm.LATE_BY = Cause.MBARRIER << CAUSE_BIT | told.DONE_BY[parity]
            else:
                warp.TESTS = number + 1
                warp.PARITY = parity
        else:
            how = op.ARGUMENT
            if how & Signal.RETURNS:
                told.TOKENS = told.TOKENS & ~(1 << warp.NUMBER) | (told.PHASE & 1) << warp.NUMBER
            if kind == Kind.COPIES_SIGNAL and warp.COPIED > at:
                at = warp.COPIED
            expected = 0
            if how & Signal.BYTES:
                expected = value * lanes
            elif how & Signal.ONE:
                expected = lanes
            if how & Signal.COMPLETES:
                expected = 0 - expected
            times = lanes
            if how & Signal.TIMES:
                # before Hopper, copies take back arrivals
                times = (value - (value >> 31 << 32)) * lanes
            arrivals = times * (how & Signal.ARRIVES)
            dropped = 0
            if how & Signal.DROPS:
                dropped = times
            if sm_signal(peer, other, number, arrivals, dropped, expected, at, by):
                sm_again(peer)
    warp.PLACE = place
    return ready
