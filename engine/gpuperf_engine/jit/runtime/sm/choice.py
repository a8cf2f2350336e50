"""The warp scheduler of the SM that ``sm.core`` simulates.

Written in the subset of ``compile_python`` and compiled, never run as Python.
"""

from __future__ import annotations

from ...ir.sm_records import MOST_QUEUED, NONE, Kind, Op, Sm, Warp
from ..intrinsics import load64


def sm_pipe_free(sm: Sm, part: int, op: Op) -> int:
    """When a pipe that can execute an instruction is free."""
    pipes = sm + Sm.PIPES + part * 128
    free = load64(pipes + 8 * op.PIPE)
    if op.OTHER != NONE:
        other = load64(pipes + 8 * op.OTHER)
        if other < free:
            free = other
    return free


def sm_queue_free(sm: Sm, part: int, op: Op) -> int:
    """When the memory queue of a sub-partition has room for an instruction; 0 for an instruction that does not use it."""
    if op.KIND >= Kind.SHARED and sm.PUSHED[part] >= sm.QUEUE:
        return sm.QUEUES[part * MOST_QUEUED + sm.PUSHED[part] % sm.QUEUE]
    return 0


def sm_earliest(sm: Sm, part: int, warp: Warp) -> int:
    """When a warp can issue, limited by its operands, its pipe and the memory queue."""
    op = warp.OP
    at = warp.AT
    free = sm_pipe_free(sm, part, op)
    if free > at:
        at = free
    free = sm_queue_free(sm, part, op)
    if free > at:
        at = free
    return at


def sm_choose(sm: Sm, part: int) -> int:
    """Choose the warp of a sub-partition that issues next, and when: the last one while it can, unless its instruction yields;
    otherwise the one that can issue first, and the youngest of several."""
    slot = sm.FREE[part]
    last = Warp(sm.LAST[part])
    yielded = sm.YIELDED[part]
    if yielded == 0 and last and last.STATE == 1 and sm_earliest(sm, part, last) <= slot:
        sm.NEXT_AT[part] = slot
        sm.NEXT[part] = last
        return 0
    best = 1 << 60
    chosen = Warp(0)
    age = 0
    warp = Warp(sm.WARP + part * sm.EACH * Warp.BYTES)
    ends = warp + sm.EACH * Warp.BYTES
    while warp < ends:
        if warp.STATE == 1:
            at = warp.AT
            if at <= best:
                at = sm_earliest(sm, part, warp)
                if at < slot:
                    at = slot
                better = at < best
                if at == best and yielded:
                    better = warp != last and (chosen == last or warp.AGE > age)
                elif at == best:
                    better = warp == last or (chosen != last and warp.AGE > age)
                if better:
                    best = at
                    chosen = warp
                    age = warp.AGE
        warp = Warp(warp + Warp.BYTES)
    sm.NEXT_AT[part] = best
    sm.NEXT[part] = chosen
    return 0


def sm_again(sm: Sm) -> int:
    """Warps of an SM have resumed: choose again in each sub-partition."""
    part = 0
    while part < sm.PARTS:
        sm_choose(sm, part)
        part += 1
    return 0
