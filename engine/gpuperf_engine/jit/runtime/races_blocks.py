"""Runtime of generated code: what is released among CTAs that may wait for one another.

Releases to other CTAs are numbered. A warp knows the last one that it has acquired, whatever the flag, as the time of one more agent;
a segment, which is what an agent accesses between two of its releases, knows the first one that covers it.
"""

from __future__ import annotations

from ..ir.abi import Context, Cta, Line, Race, Segment, Segments
from .compile_python import fill, load32, load64, store32, store64
from .races_clocks import (
    race_advance,
    race_clock,
    race_fenced,
    race_happened_before,
    race_join_clock,
    race_me,
)


def race_begin_blocks(record: int, warps: int) -> int:
    """A CTA starts: of other ones nothing is known."""
    fill(load64(record + Race.SEGMENTS), 0, Segments.BYTES)
    number = 0
    while number < Race.CLOCKS_COUNT:
        store32(race_clock(record, number) + Race.OF_OTHERS * 4, 0)
        number += 1
    warp = 0
    while warp < warps:
        store32(race_fenced(record, race_me(record, warp)) + Race.OF_OTHERS * 4, 0)
        warp += 1
    return 0


def race_fence_blocks(context: int, record: int, me: int) -> int:
    """As ``race_fence``, of what is ordered among CTAs."""
    own = load64(record + Race.SEGMENTS)
    race_acquire_blocks(context, record, me)
    store32(own + Segments.PENDING, 1)
    store32(own + Segments.FENCES + (load64(me + Race.EPOCH) & 31) * 4, load64(me + Race.EPOCH))
    return 0


def race_acquire_blocks(context: int, record: int, me: int) -> int:
    """A warp acquires what had been released to other CTAs when it, or a warp of which it knows that, last read a flag. (A fence after
    the read of another thread is enough where fences are ``fence.sc``, as ``membar`` is.)"""
    own = load64(record + Race.SEGMENTS)
    clock = me + Race.CLOCK + Race.OF_OTHERS * 4
    warp = 0
    while warp < load64(context + Context.WARPS):
        number = load32(own + Segments.READS + warp * 4)
        if number > load32(clock) and race_happened_before(me, load32(own + Segments.READ_AT + warp * 4)):
            store32(clock, number)
        warp += 1
    return 0


def race_release_blocks(context: int, record: int, me: int) -> int:
    """A warp writes a flag: what came before its last fence, and before those of warps of which it knows that, is released to other
    CTAs."""
    own = load64(record + Race.SEGMENTS)
    warps = load64(context + Context.WARPS)
    left = 0
    found = 0
    warp = 0
    while warp < warps:
        epoch = load32(own + Segments.FENCES + warp * 4)
        if epoch and race_happened_before(me, epoch):
            store32(own + Segments.FENCES + warp * 4, 0)
            found = 1
            agent = 0
            while agent < load64(record + Race.AGENTS):
                time = load32(race_fenced(record, race_me(record, warp)) + agent * 4)
                if time > load32(own + Segments.RELEASED + agent * 4):
                    store32(own + Segments.RELEASED + agent * 4, time)
                agent += 1
        elif epoch:
            left = 1
        warp += 1
    store32(own + Segments.PENDING, left)
    if found:
        race_number_release(context, record)
    return 0


def race_number_release(context: int, record: int) -> int:
    """Another release to other CTAs."""
    own = load64(record + Race.SEGMENTS)
    number = load64(context + Context.RACE_RELEASES) + 1
    store64(context + Context.RACE_RELEASES, number)
    agent = 0
    while agent < load64(record + Race.AGENTS):
        race_release_segments(context, own + agent * 8, load32(own + Segments.RELEASED + agent * 4), number)
        agent += 1
    return 0


def race_flag_blocks(context: int, record: int, me: int, flags: int, how: int) -> int:
    """As ``race_flag``, of what is ordered among CTAs."""
    own = load64(record + Race.SEGMENTS)
    warp = load64(me + Race.EPOCH) & 31
    race_again(context, record)
    if how & 8:
        store32(own + Segments.READS + warp * 4, load64(context + Context.RACE_RELEASES))
        store32(own + Segments.READ_AT + warp * 4, load64(me + Race.EPOCH))
        if flags & Race.ACQUIRES:
            race_acquire_blocks(context, record, me)
    if how & 4 == 0:
        return 0
    if load32(own + Segments.PENDING):
        race_release_blocks(context, record, me)
    if flags & Race.RELEASES:
        race_advance(record, me)
        race_join_clock(record, own + Segments.RELEASED, me + Race.CLOCK, 0)
        race_number_release(context, record)
    return 0


def race_release_segments(context: int, list_: int, time: int, number: int) -> int:
    """Segments of an agent up to a time have been released."""
    table = load64(context + Context.RACE_SEGMENTS)
    segment = load32(list_)
    while segment and load32(table + segment * Segment.BYTES + Segment.EPOCH) >> 8 <= time:
        store32(table + segment * Segment.BYTES + Segment.RELEASED, number)
        segment = load32(table + segment * Segment.BYTES + Segment.NEXT)
    store32(list_, segment)
    return 0


def race_again(context: int, record: int) -> int:
    """If times have begun anew, nothing is known of what was accessed before."""
    if load64(record + Race.AGAIN) != 1:
        return 0
    store64(record + Race.AGAIN, 2)
    if load64(record + Race.WINDOW):
        fill(load64(record + Race.WINDOW) + Line.TAGS, 0, Line.WINDOW * 8)
    own = load64(record + Race.SEGMENTS)
    if own == 0:
        return 0
    agent = 0
    while agent < 128:
        race_release_segments(context, own + agent * 8, Race.EVER, 1)
        agent += 1
    fill(own, 0, Segments.BYTES)
    return 0


def race_segment(context: int, cta: int, record: int, epoch: int) -> int:
    """The segment of accesses that have an epoch; 0: there is no room for it."""
    table = load64(context + Context.RACE_SEGMENTS)
    race_again(context, record)
    list_ = load64(record + Race.SEGMENTS) + (epoch & 127) * 8
    last = load32(list_ + 4)
    if last and load32(table + last * Segment.BYTES + Segment.EPOCH) == epoch:
        return last
    number = load64(context + Context.RACE_SEGMENT_COUNT) + 1
    if number >= Segment.MOST:
        return 0
    store64(context + Context.RACE_SEGMENT_COUNT, number)
    place = table + number * Segment.BYTES
    store32(place + Segment.CTA, load64(cta + Cta.INDEX))
    store32(place + Segment.EPOCH, epoch)
    store32(place + Segment.RELEASED, 0)
    store32(place + Segment.NEXT, 0)
    if load32(list_):
        store32(table + last * Segment.BYTES + Segment.NEXT, number)
    else:
        store32(list_, number)
    store32(list_ + 4, number)
    return number
