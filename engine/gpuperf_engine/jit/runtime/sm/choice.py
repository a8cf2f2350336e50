"""The warp scheduler of the SM that ``sm.core`` simulates.

Written in the subset of ``compile_python`` and compiled, never run as Python.
"""

from __future__ import annotations

from ...ir.sm_records import AT_BIT, NEVER, QUEUED, RANK_BIT, Kind, Op, Sm, Warp
from ..intrinsics import earliest, load64, separate, store8, store64


def sm_pipe_free(sm: Sm, part: int, op: Op) -> int:
    """When a pipe that can execute an instruction is free."""
    return load64(sm + Sm.PIPES + part * 128 + 8 * op.FREE)


def sm_queue_free(sm: Sm, part: int, op: Op) -> int:
    """When the memory queue of a sub-partition has room for an instruction; 0 for an instruction that does not use it."""
    if op.KIND >= Kind.SHARED:
        return sm.ROOM[part]
    return 0


def sm_turn(sm: Sm, warp: Warp) -> int:
    """Tell the scheduler when a warp can issue, after the warp has come to another instruction, or is held, or resumes."""
    op = warp.OP
    at = NEVER
    if warp.STATE == 1:
        at = warp.AT
    key = sm.KEYS + 8 * warp.TURN
    store64(key, at << AT_BIT | load64(key) & (1 << AT_BIT) - 1)
    store8(sm.NEEDS + warp.TURN, op.FREE | (op.KIND >= Kind.SHARED) * QUEUED)
    return 0


def sm_youngest(sm: Sm, part: int, turn: int) -> int:
    """A warp of a sub-partition has started, and is younger than all others."""
    key = sm.KEYS + 8 * sm.ROW * part
    ends = key + 8 * sm.EACH
    own = sm.KEYS + 8 * turn
    behind = load64(own) >> RANK_BIT & (1 << RANK_BIT) - 1
    while key < ends:
        known = load64(key)
        if (known >> RANK_BIT & (1 << RANK_BIT) - 1) < behind:
            store64(key, known + (1 << RANK_BIT))
        key += 8
    store64(own, load64(own) - (behind << RANK_BIT))
    return 0


def sm_latest(one: int, other: int) -> int:
    """The later of two times."""
    return one if one > other else other


@separate
def sm_choose(sm: Sm, part: int) -> int:
    """Choose the warp of a sub-partition that issues next, and when: the last one while it can, unless its instruction yields;
    otherwise the one that can issue first, limited by its operands, its pipe and the memory queue, and the youngest of several."""
    slot = sm.FREE[part]
    last = Warp(sm.LAST[part])
    row = sm.ROW * part
    own = NEVER
    left_out = 0 - 1
    if last and last.STATE == 1:
        op = last.OP
        own = slot
        if last.AT > own:
            own = last.AT
        free = sm_pipe_free(sm, part, op)
        if free > own:
            own = free
        free = sm_queue_free(sm, part, op)
        if free > own:
            own = free
        if own == slot and sm.YIELDED[part] == 0:
            sm.NEXT_AT[part] = slot
            sm.NEXT[part] = last
            return 0
    if last:
        left_out = last.TURN - row
    pipes = sm + Sm.PIPES + part * 128
    best = earliest(sm.KEYS + 8 * row, sm.NEEDS + row, sm.ROW, pipes, sm.ROOM[part], slot, left_out)
    at = best >> AT_BIT
    chosen = sm.WARP + (part * sm.EACH + (best & (1 << RANK_BIT) - 1)) * Warp.BYTES
    if own < at or (own == at and sm.YIELDED[part] == 0):
        at = own
        chosen = last + 0
    sm.NEXT_AT[part] = at
    sm.NEXT[part] = chosen
    return 0


def sm_again(sm: Sm) -> int:
    """Warps of an SM have resumed: choose again in each sub-partition."""
    part = 0
    while part < sm.PARTS:
        sm_choose(sm, part)
        part += 1
    return 0
