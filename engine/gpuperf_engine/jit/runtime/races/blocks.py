"""Runtime of generated code: releases among CTAs that may wait for one another.

Releases to other CTAs are numbered. The clock of a warp has the last release that it has acquired, by any flag, as the time of one
more agent. A segment is the accesses of an agent between two of its releases; it has the number of the first release that covers it.
"""

from __future__ import annotations

from ...ir.abi import Context, Cta
from ...ir.race_records import Race, RaceClock, RaceWarp, Segment, Segments, Window
from ..intrinsics import fill
from .clocks import (
    race_advance,
    race_clock,
    race_fenced,
    race_happened_before,
    race_known,
    race_me,
)


def race_begin_blocks(record: Race, warps: int) -> int:
    """A CTA starts: it has acquired no release of other CTAs."""
    fill(record.SEGMENTS, 0, Segments.BYTES)
    number = 0
    while number < Race.CLOCKS_COUNT:
        race_clock(record, number).TIMES[Race.OF_OTHERS] = 0
        number += 1
    warp = 0
    while warp < warps:
        race_fenced(record, race_me(record, warp)).TIMES[Race.OF_OTHERS] = 0
        warp += 1
    return 0


def race_fence_blocks(context: Context, record: Race, me: RaceWarp) -> int:
    """As ``race_fence``, for the order among CTAs."""
    own = record.SEGMENTS
    race_acquire_blocks(context, record, me)
    own.PENDING = 1
    own.FENCES[me.EPOCH & 31] = me.EPOCH
    return 0


def race_acquire_blocks(context: Context, record: Race, me: RaceWarp) -> int:
    """A warp acquires what had been released to other CTAs when the warp last read a flag, or when another warp did whose read
    happened before. (A fence after another thread's read suffices for ``fence.sc``, which ``membar`` is.)"""
    own = record.SEGMENTS
    warp = 0
    while warp < context.WARPS:
        number = own.READS[warp]
        if number > me.CLOCK[Race.OF_OTHERS] and race_happened_before(me, own.READ_AT[warp]):
            me.CLOCK[Race.OF_OTHERS] = number
        warp += 1
    return 0


def race_release_blocks(context: Context, record: Race, me: RaceWarp) -> int:
    """A warp writes a flag: accesses before its last fence, and before fences of other warps that happened before, are released to
    other CTAs."""
    own = record.SEGMENTS
    warps = context.WARPS
    left = 0
    found = 0
    warp = 0
    while warp < warps:
        epoch = own.FENCES[warp]
        if epoch and race_happened_before(me, epoch):
            own.FENCES[warp] = 0
            if found == 0:
                found = race_number_release(context)
            race_release_known(context, record, race_fenced(record, race_me(record, warp)), found)
        elif epoch:
            left = 1
        warp += 1
    own.PENDING = left
    return 0


def race_number_release(context: Context) -> int:
    """The number of a new release to other CTAs."""
    number = context.RACE_RELEASES + 1
    context.RACE_RELEASES = number
    return number


def race_release_known(context: Context, record: Race, clock: RaceClock, number: int) -> int:
    """Release everything in a clock of a CTA to other CTAs."""
    own = record.SEGMENTS
    agent = 0
    while agent < record.AGENTS:
        if own.LISTS[2 * agent]:
            race_release_segments(context, own, agent, clock.TIMES[agent], number)
        agent += 1
    cluster = record.CTA.CLUSTER
    turn = 1
    while turn < record.STEP:
        peer = record.RANK ^ turn
        agent = 0
        while peer < cluster.SIZE and agent < record.AGENTS:
            time = RaceClock(clock + turn * Race.PEER).TIMES[agent] ^ turn
            if agent < 32:
                time = time & (Race.ASYNCHRONOUS - 1)
            race_release_segments(context, cluster.PEERS[peer].RACES.SEGMENTS, agent, time, number)
            agent += 1
        turn += 1
    return 0


def race_flag_blocks(context: Context, record: Race, me: RaceWarp, flags: int, how: int) -> int:
    """As ``race_flag``, for the order among CTAs."""
    own = record.SEGMENTS
    warp = me.EPOCH & 31
    race_again(context, record)
    if how & 8:
        own.READS[warp] = context.RACE_RELEASES
        own.READ_AT[warp] = me.EPOCH
        if flags & Race.ACQUIRES:
            race_acquire_blocks(context, record, me)
    if how & 4 == 0:
        return 0
    if own.PENDING:
        race_release_blocks(context, record, me)
    if flags & Race.RELEASES:
        race_advance(record, me)
        race_release_known(context, record, race_known(me), race_number_release(context))
    return 0


def race_release_segments(context: Context, own: Segments, agent: int, time: int, number: int) -> int:
    """The segments of an agent up to a time are covered by a release."""
    first = own.LISTS[2 * agent]
    while first:
        segment = race_segment_at(context, first)
        if segment.EPOCH >> 8 > time:
            break
        segment.RELEASED = number
        first = segment.NEXT
    own.LISTS[2 * agent] = first
    return 0


def race_segment_at(context: Context, number: int) -> Segment:
    """A segment, by its number."""
    return Segment(context.RACE_SEGMENTS + number * Segment.BYTES)


def race_again(context: Context, record: Race) -> int:
    """If times have restarted, clear the records of earlier accesses."""
    if record.AGAIN != 1:
        return 0
    record.AGAIN = 2
    record.OLDEST = context.RACE_ACCESSOR + 1
    if record.WINDOW:
        fill(record.WINDOW + Window.TAGS, 0, Window.LINES * 8)
    own = record.SEGMENTS
    if own == 0:
        return 0
    agent = 0
    while agent < 128:
        race_release_segments(context, own, agent, Race.EVER, 1)
        agent += 1
    fill(own, 0, Segments.BYTES)
    return 0


def race_number(context: Context, cta: Cta) -> int:
    """The index of a CTA; in clusters, the number of the cluster and the rank."""
    if context.CLUSTER_CTAS > 1:
        return cta.CLUSTER.NUMBER << Race.RANK_BITS | cta.RANK
    return cta.INDEX


def race_segment(context: Context, cta: Cta, record: Race, epoch: int) -> int:
    """The number of the segment of accesses with an epoch; 0: there is no room for it."""
    race_again(context, record)
    own = record.SEGMENTS
    agent = epoch & 127
    last = own.LISTS[2 * agent + 1]
    if last and race_segment_at(context, last).EPOCH == epoch:
        return last
    number = context.RACE_SEGMENT_COUNT + 1
    if number >= Segment.MOST:
        return 0
    context.RACE_SEGMENT_COUNT = number
    segment = race_segment_at(context, number)
    segment.CTA = race_number(context, cta)
    segment.EPOCH = epoch
    segment.RELEASED = 0
    segment.NEXT = 0
    if own.LISTS[2 * agent]:
        race_segment_at(context, last).NEXT = number
    else:
        own.LISTS[2 * agent] = number
    own.LISTS[2 * agent + 1] = number
    return number
