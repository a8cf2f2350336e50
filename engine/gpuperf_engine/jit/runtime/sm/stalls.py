"""What the warps of the SM that ``sm.core`` simulates wait for: each clock of a warp in which it issues nothing is counted once.

Written in the subset of ``compile_python`` and compiled, never run as Python.
"""

from __future__ import annotations

from ...ir.sm_records import AT_BIT, CAUSE_BIT, TRAIL, WINDOW, Cause, Event, Op, Sm, Stall, Warp
from ..intrinsics import bits_count
from .choice import sm_pipe_free, sm_queue_free


def sm_position(sm: Sm, op: int) -> int:
    """That of an instruction."""
    return (op - sm.OPS) // Op.BYTES


def sm_event(
    sm: Sm, what: int, part: int, warp: int, op: int, since: int, at: int, now: int, why: int
) -> int:
    """Something happened until ``now``; it is kept if any of it lies in the window."""
    if now >= sm.WINDOW_FROM and since < sm.WINDOW_TO and sm.EVENTS_LEFT:
        event = sm.EVENT
        sm.EVENT = Event(event + Event.BYTES)
        sm.EVENTS_LEFT -= 1
        event.WHAT = what
        event.PART = part
        event.WARP = (warp - sm.WARP) // Warp.BYTES
        event.OP = sm_position(sm, op)
        event.SINCE = since
        event.AT = at
        event.NOW = now
        event.WHY = why
    return 0


def sm_stalled(sm: Sm, op: Op, why: int, clocks: int, times: int) -> int:
    """Warps have waited so many clocks at an instruction."""
    stall = Stall(op.STALLS)
    while stall:
        if stall.WHY == why:
            stall.CLOCKS += clocks
            stall.TIMES += times
            return 0
        stall = Stall(stall.NEXT)
    first = Sm(sm.PEERS)
    stall = Stall(first.STALL)
    if stall >= first.LAST_STALL:
        stall = Stall(first.LAST_STALL)
        stall.WHY = Cause.UNKNOWN << CAUSE_BIT
    else:
        first.STALL = stall + Stall.BYTES
        stall.WHY = why
        stall.AT = sm_position(sm, op)
        stall.NEXT = op.STALLS
        op.STALLS = stall
    stall.CLOCKS += clocks
    stall.TIMES += times
    return 0


def sm_mark(sm: Sm, part: int, now: int) -> int:
    """A sub-partition issues."""
    word = now >> 6
    last = sm.MARKED[part]
    if last < word:
        sm.MARKED[part] = word
        if last + WINDOW < word:
            last = word - WINDOW
        while last < word:
            last += 1
            sm.MARKS[part * WINDOW + last % WINDOW] = 0
    sm.MARKS[part * WINDOW + word % WINDOW] = sm.MARKS[part * WINDOW + word % WINDOW] | 1 << (now & 63)
    return 0


def sm_marks(sm: Sm, part: int, start: int, now: int) -> int:
    """In how many of some clocks before this one a sub-partition issued; in all of those that are too long ago."""
    count = 0
    least = now - (WINDOW - 1) * 64
    if start < least:
        count = least - start
        start = least
    while start < now:
        word = sm.MARKS[part * WINDOW + (start >> 6) % WINDOW]
        if sm.MARKED[part] < start >> 6:
            word = 0
        ends = (start | 63) + 1
        bits = word >> (start & 63)
        if now < ends:
            bits = bits & (1 << (now - start)) - 1
        count += bits_count(bits)
        start = ends
    return count


def sm_waited(sm: Sm, part: int, warp: Warp, op: Op, now: int) -> int:
    """A warp issues after it has waited: until its operands were ready, then for its pipe (unless others issued in each clock, so
    that a
    wider one would not have helped), then for the memory queue; while it could issue, either others did or register ports held the
    sub-partition up."""
    since = warp.SINCE
    at = warp.AT
    if at > since:
        sm_stalled(sm, op, warp.WHY, at - since, 1)
        since = at
    if since < now:
        own = sm_position(sm, op)
        free = sm_pipe_free(sm, part, op)
        if free > since:
            why = Cause.PIPE << CAUSE_BIT | own
            if sm_marks(sm, part, since, free) == free - since:
                why = Cause.OTHERS << CAUSE_BIT | own
            sm_stalled(sm, op, why, free - since, 1)
            since = free
        free = sm_queue_free(sm, part, op)
        if free > since and since < now:
            sm_stalled(sm, op, Cause.QUEUE << CAUSE_BIT | own, free - since, 1)
            since = free
        if since < now:
            issued = sm_marks(sm, part, since, now)
            if issued:
                sm_stalled(sm, op, Cause.OTHERS << CAUSE_BIT | own, issued, 1)
            if issued < now - since:
                sm_stalled(sm, op, Cause.PORTS << CAUSE_BIT | own, now - since - issued, 1)
    return 0


def sm_step(sm: Sm, warp: Warp, op: Op, now: int) -> int:
    """A warp remembers that it issues an instruction."""
    by = sm_position(sm, op)
    if warp.AT > warp.SINCE:
        by = warp.WHY & (1 << CAUSE_BIT) - 1
    warp.ISSUES[warp.STEPS % TRAIL] = now << AT_BIT | by
    warp.STEPS += 1
    return 0


def sm_held(sm: Sm, warp: Warp, why: int, until: int) -> int:
    """A warp was held at an instruction until some time."""
    if until > warp.SINCE:
        if until >= sm.WINDOW_FROM:
            sm_event(sm, 1, 0, warp, warp.HELD, warp.SINCE, until, until, why)
        sm_stalled(sm, warp.HELD, why, until - warp.SINCE, 1)
        warp.SINCE = until
    return 0


def sm_since(last: Warp, step: int, start: int) -> int:
    """When a warp began to wait for an instruction that it remembers, or later."""
    if step:
        before = (last.ISSUES[(step - 1) % TRAIL] >> AT_BIT) + 1
        if before > start:
            return before
    return start


def sm_behind(sm: Sm, op: Op, last: Warp, now: int, clocks: int, times: int) -> int:
    """Warps have waited so many clocks, so many of them, at a barrier for the last: for what that did in the meantime, by share; where
    it does not remember all, by the shares of what it does."""
    start = now - clocks // times
    first = last.STEPS
    least = 0
    if first >= TRAIL:
        least = first - TRAIL + 1
    ends = now
    while first > least and ends > start:
        first -= 1
        ends = sm_since(last, first, start)
    seen = now - ends
    left = clocks
    ends = now
    step = last.STEPS
    while step > first:
        step -= 1
        before = sm_since(last, step, start)
        if before < ends:
            part = clocks * (ends - before) // seen
            left -= part
            if part:
                by = last.ISSUES[step % TRAIL] & (1 << CAUSE_BIT) - 1
                sm_stalled(sm, op, Cause.BARRIER << CAUSE_BIT | by, part, 0)
            ends = before
    sm_stalled(sm, op, Cause.BARRIER << CAUSE_BIT | sm_position(sm, op), left, times)
    return 0
