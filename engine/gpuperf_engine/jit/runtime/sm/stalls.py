"""Stall accounting of the SM that ``sm.core`` simulates: each clock in which a warp does not issue is attributed to one cause.

Written in the subset of ``compile_python`` and compiled, never run as Python.
"""

from __future__ import annotations

from ...ir.sm_records import AT_BIT, CAUSE_BIT, TRAIL, WINDOW, Cause, Event, Op, Sm, Stall, Warp
from ..intrinsics import bits_count, separate
from .choice import sm_pipe_free, sm_queue_free


def sm_position(sm: Sm, op: int) -> int:
    """The position of an instruction in the program."""
    return (op - sm.OPS) // Op.BYTES


@separate
def sm_event(
    sm: Sm, what: int, part: int, warp: int, op: int, since: int, at: int, now: int, why: int
) -> int:
    """Record an event that ended at ``now``, if any of it is in the window."""
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


@separate
def sm_stalled(sm: Sm, op: Op, why: int, clocks: int, times: int) -> int:
    """Add to the clocks that warps have waited at an instruction for a cause."""
    stall = Stall(op.STALLS)
    while stall:
        if stall.WHY == why:
            stall.CLOCKS += clocks
            stall.TIMES += times
            return 0
        stall = Stall(stall.NEXT)
    stall = sm_new_stall(sm, op, why)
    if stall < Sm(sm.PEERS).LAST_STALL:
        stall.NEXT = op.STALLS
        op.STALLS = stall
    stall.CLOCKS += clocks
    stall.TIMES += times
    return 0


def sm_new_stall(sm: Sm, op: Op, why: int) -> Stall:
    """A record for the clocks that warps wait at an instruction for another cause; the last one if all others are taken."""
    first = Sm(sm.PEERS)
    stall = Stall(first.STALL)
    if stall >= first.LAST_STALL:
        stall = Stall(first.LAST_STALL)
        stall.WHY = Cause.UNKNOWN << CAUSE_BIT
        return stall
    first.STALL = stall + Stall.BYTES
    stall.WHY = why
    stall.AT = sm_position(sm, op)
    return stall


def sm_stalled_own(sm: Sm, op: Op, cause: int, clocks: int) -> int:
    """As ``sm_stalled``, once, for a pipe, the memory queue, ports or other warps, whose records the instruction knows."""
    number = op.OWN[cause - Cause.PIPE]
    if number == 0:
        made = sm_new_stall(sm, op, cause << CAUSE_BIT | sm_position(sm, op))
        number = (made - sm.FIRST_STALL) // Stall.BYTES + 1
        op.OWN[cause - Cause.PIPE] = number
    stall = Stall(sm.FIRST_STALL + (number - 1) * Stall.BYTES)
    stall.CLOCKS += clocks
    stall.TIMES += 1
    return 0


def sm_mark(sm: Sm, part: int, now: int) -> int:
    """Record that a sub-partition issues in this clock."""
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
    """The number of clocks from ``start`` to ``now`` in which a sub-partition issued. Clocks before the recorded window count as
    issued."""
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
    """Attribute the clocks that a warp waited before it issues: first to its operands, then to its pipe (or to other warps, if the
    sub-partition issued in each of these clocks, since a wider pipe would not have helped), then to the memory queue. Of the
    remaining clocks, in which it could have issued, those in which other warps issued are attributed to them, and the others to
    register ports."""
    since = warp.SINCE
    at = warp.AT
    if at > since:
        sm_stalled(sm, op, warp.WHY, at - since, 1)
        since = at
    if since < now:
        free = sm_pipe_free(sm, part, op)
        if free > since:
            cause = Cause.PIPE
            if sm_marks(sm, part, since, free) == free - since:
                cause = Cause.OTHERS
            sm_stalled_own(sm, op, cause, free - since)
            since = free
        free = sm_queue_free(sm, part, op)
        if free > since and since < now:
            sm_stalled_own(sm, op, Cause.QUEUE, free - since)
            since = free
        if since < now:
            issued = sm_marks(sm, part, since, now)
            if issued:
                sm_stalled_own(sm, op, Cause.OTHERS, issued)
            if issued < now - since:
                sm_stalled_own(sm, op, Cause.PORTS, now - since - issued)
    return 0


def sm_step(sm: Sm, warp: Warp, op: Op, now: int) -> int:
    """Record that a warp issues an instruction in its trail, with the instruction that it waited for."""
    by = sm_position(sm, op)
    if warp.AT > warp.SINCE:
        by = warp.WHY & (1 << CAUSE_BIT) - 1
    warp.ISSUES[warp.STEPS % TRAIL] = now << AT_BIT | by
    warp.STEPS += 1
    return 0


def sm_held(sm: Sm, warp: Warp, why: int, until: int) -> int:
    """Attribute the clocks that a warp was held at an instruction."""
    if until > warp.SINCE:
        if until >= sm.WINDOW_FROM:
            sm_event(sm, 1, 0, warp, warp.HELD, warp.SINCE, until, until, why)
        sm_stalled(sm, warp.HELD, why, until - warp.SINCE, 1)
        warp.SINCE = until
    return 0


def sm_since(last: Warp, step: int, start: int) -> int:
    """When a warp began to wait for an instruction in its trail, but at least ``start``."""
    if step:
        before = (last.ISSUES[(step - 1) % TRAIL] >> AT_BIT) + 1
        if before > start:
            return before
    return start


def sm_behind(sm: Sm, op: Op, last: Warp, now: int, clocks: int, times: int) -> int:
    """Attribute the clocks that warps have waited at a barrier for the last warp to what this warp executed meanwhile, in proportion
    to the time. If its trail does not reach back far enough, the proportions are those of the trail."""
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
