"""Instruction fetch of the SM that ``sm.core`` simulates: the instruction cache of the SM and the level behind it.

Written in the subset of ``compile_python`` and compiled, never run as Python.
"""

from __future__ import annotations

from ...ir.sm_records import AT_BIT, CAUSE_BIT, FRACTION, Cause, Code, Op, Sm, Warp
from ..intrinsics import load64, store64
from .stalls import sm_position


def sm_cell(sm: Sm, cells: int, ways: int, used: int) -> int:
    """The cell of a set for a new line: a free one, or that of the least recently used line, which is evicted. ``used``: the offset
    in ``Code`` of the number of the last use."""
    oldest = cells
    least = 1 << 60
    at = cells
    while at < cells + 8 * ways:
        number = load64(at)
        if number == 0:
            return at
        last = load64(sm.CODE + number * Code.BYTES + used)
        if last < least:
            least = last
            oldest = at
        at += 8
    gone = Code(sm.CODE + load64(oldest) * Code.BYTES)
    if used == Code.USED:
        gone.HOLDS = 0
    else:
        gone.L15_HOLDS = 0
    return oldest


def sm_hold(sm: Sm, line: int) -> int:
    """Insert a line of code into the instruction cache of the SM."""
    cell = sm_cell(sm, sm.CELLS + 8 * sm.WAYS * (line % sm.SETS), sm.WAYS, Code.USED)
    store64(cell, line)
    code = Code(sm.CODE + line * Code.BYTES)
    code.HOLDS = 1
    code.USED = sm.USES
    return 0


def sm_bring(sm: Sm, line: int, now: int) -> int:
    """Fetch a line of code into the instruction cache of the SM. Lines arrive one after the other, at the throughput of the level
    that has them, and none before its latency."""
    code = Code(sm.CODE + line * Code.BYTES)
    start = sm.FETCHED
    if start < now << FRACTION:
        start = now << FRACTION
    cost = sm.L15_COST
    latency = sm.LATENCY_L15
    if code.L15_HOLDS == 0:
        cost = sm.CODE_COST
        latency = sm.LATENCY_L2
        if sm.L15_SETS:
            cell = sm_cell(
                sm, sm.L15_CELLS + 8 * sm.L15_WAYS * (line % sm.L15_SETS), sm.L15_WAYS, Code.L15_USED
            )
            store64(cell, line)
            code.L15_HOLDS = 1
    code.L15_USED = sm.USES
    sm.FETCHED = start + cost
    sm.FETCHING += cost
    ready = start + cost + (1 << FRACTION) - 1 >> FRACTION
    if ready < now + latency:
        ready = now + latency
    code.READY = ready
    sm_hold(sm, line)
    return 0


def sm_enter(sm: Sm, line: int) -> int:
    """A CTA starts at a line of code, which is ready."""
    if line:
        sm.USES += 1
        code = Code(sm.CODE + line * Code.BYTES)
        code.USED = sm.USES
        if code.HOLDS == 0:
            code.READY = 0
            sm_hold(sm, line)
    return 0


def sm_fetch(sm: Sm, warp: Warp, op: Op, at: int) -> int:
    """When the first instruction of a line of code, or of a block, can issue; ``at``: the earliest time, with its cause. The
    following lines are prefetched."""
    line = op.LINE
    if line == warp.LINE:
        return at
    warp.LINE = line
    code = Code(sm.CODE + line * Code.BYTES)
    sm.USES += 1
    code.USED = sm.USES
    last = line + sm.AHEAD
    ahead = last
    if code.HOLDS == 0:
        sm_bring(sm, line, at >> AT_BIT)
        ahead = line + 1
    # a warp that hardly runs would request the same lines again and again, which others evict until it comes to them
    most = (at >> AT_BIT << FRACTION) + (sm.AHEAD + 1) * sm.CODE_COST
    while ahead <= last and ahead <= sm.CODE_LINES and sm.FETCHED < most:
        if Code(sm.CODE + ahead * Code.BYTES).HOLDS == 0:
            sm_bring(sm, ahead, at >> AT_BIT)
        ahead += 1
    if code.READY > at >> AT_BIT:
        return code.READY << AT_BIT | Cause.FETCH << CAUSE_BIT | sm_position(sm, op)
    return at
