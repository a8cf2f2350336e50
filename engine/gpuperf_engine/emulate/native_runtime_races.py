"""Runtime of generated code: what orders accesses of memory, and the races that were found. PYTEST_DONT_REWRITE

Written in the subset of ``native_script`` and compiled, never run as Python. ``Race`` says how it lies in memory.

The order is that of vector clocks (Flanagan and Freund, "FastTrack", PLDI 2009). Agents are warps, whose lanes are taken to be in
order, and asynchronous copies. A time passes where an agent releases something; the stamp of an access is agent and time. Each word
has the stamps of its last writer and of up to two readers. A barrier of all warps orders all that came before: then the base
of all warps is raised, which one comparison tells. All else is in the clocks: barriers of some warps, mbarriers, groups of copies; and
fences, atomics and flags, of which one clock of the CTA keeps what was released, whatever the flag.

``native_runtime_races_shared`` holds the accesses of shared memory against these clocks, ``native_runtime_races_global`` those of
global memory against one another.
"""

from __future__ import annotations

from .native_layout import Context, Cta, Race, State, Wait
from .native_script import (
    fill,
    load8,
    load32,
    load64,
    store32,
    store64,
)


def race_begin(context: int, cta: int) -> int:
    """A CTA starts: nothing of it has been accessed."""
    record = load64(cta + Cta.RACE_ROOM)
    store64(cta + Cta.RACES, record)
    if record == 0:
        return 0
    store64(record + Race.SLOTS, 0)
    race_all(record, load64(context + Context.WARPS))
    now = load64(record + Race.NOW)
    warp = 0
    while warp < load64(context + Context.WARPS):
        me = record + Race.WARPS + warp * Race.WARP
        store64(me + Race.FENCED, 0)
        store64(me + Race.READ, 0)
        store64(me + Race.COPIES, 0)
        store64(me + Race.GROUPS, 0)
        store64(me + Race.PRODUCTS, 0)
        agent = 32
        while agent < load64(record + Race.AGENTS):
            store32(me + Race.CLOCK + agent * 4, Race.ASYNCHRONOUS | now)
            agent += 1
        warp += 1
    return 0


def race_all(record: int, warps: int) -> int:
    """All warps have met: what they have done comes before what they will do."""
    now = load64(record + Race.NOW) + 1
    agent = 32
    while agent < load64(record + Race.AGENTS):
        most = 0
        warp = 0
        while warp < warps:
            time = load32(record + Race.WARPS + warp * Race.WARP + Race.CLOCK + agent * 4)
            if time > most:
                most = time
            warp += 1
        warp = 0
        while warp < warps:
            store32(record + Race.WARPS + warp * Race.WARP + Race.CLOCK + agent * 4, most)
            warp += 1
        agent += 1
    if now > Race.LATE:
        fill(load64(record + Race.PLANES), 0, load64(record + Race.PLANE) * Race.PLANES_COUNT)
        fill(record + Race.EVERYTHING, 0, Race.BYTES - Race.EVERYTHING)
        store64(record + Race.SLOTS, 0)
        now = 1
    store64(record + Race.NOW, now)
    warp = 0
    while warp < warps:
        me = record + Race.WARPS + warp * Race.WARP
        store64(me + Race.STAMP, now << 8 | warp)
        store64(me + Race.BASE, now << 8)
        warp += 1
    return 0


def race_tick(record: int) -> int:
    """Another time."""
    now = load64(record + Race.NOW) + 1
    if now > Race.LAST:
        # of a CTA that goes on for ever without a barrier of all its warps no more is checked
        now = Race.LAST
    store64(record + Race.NOW, now)
    return now


def race_send(record: int, me: int, clock: int) -> int:
    """A warp releases what it knows to a clock."""
    stamp = load64(me + Race.STAMP)
    base = (load64(me + Race.BASE) >> 8) - 1
    agent = 0
    while agent < load64(record + Race.AGENTS):
        time = load32(me + Race.CLOCK + agent * 4)
        if agent < 32 and time < base:
            time = base
        if agent == stamp & 127:
            time = stamp >> 8
        if time > load32(clock + agent * 4):
            store32(clock + agent * 4, time)
        agent += 1
    store64(me + Race.STAMP, race_tick(record) << 8 | (stamp & 127))
    return 0


def race_take(record: int, me: int, warps: int, clock: int) -> int:
    """A warp acquires what a clock knows."""
    own = load64(me + Race.STAMP) & 127
    base = load64(me + Race.BASE) >> 8
    least = Race.LAST
    agent = 0
    while agent < load64(record + Race.AGENTS):
        time = load32(clock + agent * 4)
        if time > load32(me + Race.CLOCK + agent * 4):
            store32(me + Race.CLOCK + agent * 4, time)
        time = load32(me + Race.CLOCK + agent * 4)
        if agent < warps and agent != own and time < least:
            least = time
        agent += 1
    if warps > 1 and least >= base:
        store64(me + Race.BASE, (least + 1) << 8)
    return 0


def race_meet(context: int, cta: int, number: int) -> int:
    """The warps that wait at a barrier of the CTA go on together."""
    record = load64(cta + Cta.RACES)
    if record == 0:
        return 0
    warps = load64(context + Context.WARPS)
    size = load64(context + Context.STATE_BYTES)
    first = load64(cta + Cta.STATES)
    waiting = 0
    warp = 0
    while warp < warps:
        state = first + warp * size
        if load32(state + State.WAIT) == Wait.BARRIER and load32(state + State.BARRIER_ID) == number:
            waiting += 1
        warp += 1
    if waiting == load64(cta + Cta.LIVE_WARPS):
        return race_all(record, warps)
    clock = record + Race.BARRIERS + number * 512
    turn = 0
    while turn < 2:
        warp = 0
        while warp < warps:
            state = first + warp * size
            if load32(state + State.WAIT) == Wait.BARRIER and load32(state + State.BARRIER_ID) == number:
                me = record + Race.WARPS + warp * Race.WARP
                if turn:
                    race_take(record, me, warps, clock)
                else:
                    race_send(record, me, clock)
            warp += 1
        turn += 1
    return 0


def race_arrive(context: int, cta: int, state: int, number: int) -> int:
    """A warp announces itself at a barrier, and does not wait."""
    record = load64(cta + Cta.RACES)
    if record:
        me = record + Race.WARPS + load32(state + State.INDEX) * Race.WARP
        race_send(record, me, record + Race.BARRIERS + number * 512)
    return 0


def race_cluster(context: int, cta: int, state: int, arrives: int) -> int:
    """A warp arrives at the barrier of the cluster, or goes on behind it."""
    record = load64(cta + Cta.RACES)
    if record:
        me = record + Race.WARPS + load32(state + State.INDEX) * Race.WARP
        if arrives:
            race_send(record, me, record + Race.MEETING)
        else:
            race_take(record, me, load64(context + Context.WARPS), record + Race.MEETING)
    return 0


def races_settle(context: int, cta: int) -> int:
    """Threads have met at a barrier that Python keeps."""
    record = load64(cta + Cta.RACES)
    if record:
        race_all(record, load64(context + Context.WARPS))
    return 0


def race_fence(context: int, cta: int, state: int) -> int:
    """``fence`` and ``membar``: what came before is released by the flags that follow; what flags said before is acquired."""
    record = load64(cta + Cta.RACES)
    if record == 0:
        return 0
    me = record + Race.WARPS + load32(state + State.INDEX) * Race.WARP
    if load64(me + Race.READ):
        race_take(record, me, load64(context + Context.WARPS), record + Race.EVERYTHING)
    race_send(record, me, me + Race.FENCE)
    store64(me + Race.FENCED, 1)
    return 0


def race_flag(context: int, cta: int, state: int, site: int, how: int) -> int:
    """An atomic, or a load or store that is ``volatile``, ``relaxed`` or stronger. ``how``: 4 writes, 8 reads."""
    record = load64(cta + Cta.RACES)
    if record == 0:
        return 0
    me = record + Race.WARPS + load32(state + State.INDEX) * Race.WARP
    flags = load8(load64(context + Context.RACE_SITES) + site)
    if how & 4:
        if flags & Race.RELEASES:
            race_send(record, me, record + Race.EVERYTHING)
        elif load64(me + Race.FENCED):
            agent = 0
            while agent < load64(record + Race.AGENTS):
                time = load32(me + Race.FENCE + agent * 4)
                if time > load32(record + Race.EVERYTHING + agent * 4):
                    store32(record + Race.EVERYTHING + agent * 4, time)
                agent += 1
    if how & 8:
        store64(me + Race.READ, 1)
        if flags & Race.ACQUIRES:
            race_take(record, me, load64(context + Context.WARPS), record + Race.EVERYTHING)
    return 0


def race_groups(context: int, cta: int, state: int, kind: int, left: int) -> int:
    """``cp.async.commit_group`` (kind 0), ``wait_group`` for all groups but the last ``left`` ones (1), ``wait_all`` (2)."""
    record = load64(cta + Cta.RACES)
    if record == 0:
        return 0
    warp = load32(state + State.INDEX)
    me = record + Race.WARPS + warp * Race.WARP
    count = load64(me + Race.GROUPS)
    if load64(me + Race.COPIES) == 0:
        store64(me + Race.COPIES, race_tick(record))
    time = load64(me + Race.COPIES)
    if kind == 0:
        store64(me + Race.RING + (count % Race.RING_SIZE) * 8, time)
        store64(me + Race.GROUPS, count + 1)
    elif kind == 1:
        if left >= count or left >= Race.RING_SIZE:
            return 0
        time = load64(me + Race.RING + ((count - left - 1) % Race.RING_SIZE) * 8)
    if kind and load32(me + Race.CLOCK + (Race.OF_COPIES + warp) * 4) < (Race.ASYNCHRONOUS | time):
        store32(me + Race.CLOCK + (Race.OF_COPIES + warp) * 4, Race.ASYNCHRONOUS | time)
    if kind != 1:
        store64(me + Race.COPIES, race_tick(record))
    return 0


def race_copies(context: int, cta: int, state: int) -> int:
    """What follows is done by the ``cp.async`` of a warp, until ``RACE_AGENT`` is 0 again."""
    record = load64(cta + Cta.RACES)
    if record == 0:
        return 0
    warp = load32(state + State.INDEX)
    me = record + Race.WARPS + warp * Race.WARP
    store64(record + Race.AGENTS, 128)
    if load64(me + Race.COPIES) == 0:
        store64(me + Race.COPIES, race_tick(record))
    stamp = (Race.ASYNCHRONOUS | load64(me + Race.COPIES)) << 8 | (Race.OF_COPIES + warp)
    store64(context + Context.RACE_AGENT, stamp)
    return 0


def race_products(context: int, cta: int, state: int) -> int:
    """What follows is done by the ``wgmma`` of a warp, until ``RACE_AGENT`` is 0 again."""
    record = load64(cta + Cta.RACES)
    if record == 0:
        return 0
    warp = load32(state + State.INDEX)
    me = record + Race.WARPS + warp * Race.WARP
    store64(record + Race.AGENTS, 128)
    if load64(me + Race.PRODUCTS) == 0:
        store64(me + Race.PRODUCTS, race_tick(record))
    stamp = (Race.ASYNCHRONOUS | load64(me + Race.PRODUCTS)) << 8 | (Race.OF_PRODUCTS + warp)
    store64(context + Context.RACE_AGENT, stamp)
    return 0


def race_committed(cta: int, state: int) -> int:
    """``wgmma.commit_group``, whose groups ``State.COMMITS`` counts."""
    record = load64(cta + Cta.RACES)
    if record == 0:
        return 0
    me = record + Race.WARPS + load32(state + State.INDEX) * Race.WARP
    place = me + Race.PRODUCTS_RING + (load32(state + State.COMMITS) % Race.RING_SIZE) * 8
    store64(place, load64(me + Race.PRODUCTS))
    store64(me + Race.PRODUCTS, race_tick(record))
    return 0


def race_multiplied(context: int, cta: int, state: int) -> int:
    """A warp has waited for groups of products of its warpgroup."""
    record = load64(cta + Cta.RACES)
    wanted = load32(state + State.WANTED)
    if record == 0 or wanted == 0:
        return 0
    warp = load32(state + State.INDEX)
    me = record + Race.WARPS + warp * Race.WARP
    other = warp & -4
    while other < load64(context + Context.WARPS) and other < (warp | 3) + 1:
        ring = record + Race.WARPS + other * Race.WARP + Race.PRODUCTS_RING
        time = load64(ring + ((wanted - 1) % Race.RING_SIZE) * 8)
        if time:
            time = time | Race.ASYNCHRONOUS
            if load32(me + Race.CLOCK + (Race.OF_PRODUCTS + other) * 4) < time:
                store32(me + Race.CLOCK + (Race.OF_PRODUCTS + other) * 4, time)
        other += 1
    return 0


def race_mbarrier(record: int, address: int) -> int:
    """The record of an mbarrier of the CTA; beyond ``MOST_MBARRIERS`` the last one is shared."""
    slot = 0
    count = load64(record + Race.SLOTS)
    while slot < count:
        found = record + Race.MBARRIERS + slot * Race.MBARRIER
        if load64(found) == address:
            return found
        slot += 1
    if count < Race.MOST_MBARRIERS:
        store64(record + Race.SLOTS, count + 1)
        found = record + Race.MBARRIERS + count * Race.MBARRIER
        store64(found, address)
    return found


def race_bulk(context: int, cta: int, address: int) -> int:
    """What follows is done by a bulk or tensor copy that tells the mbarrier at an address of the CTA's shared memory, until
    ``RACE_AGENT`` is 0 again."""
    record = load64(cta + Cta.RACES)
    if record == 0:
        return 0
    store64(record + Race.AGENTS, 128)
    if address >> 32:
        address -= load64(context + Context.SHARED_WINDOW)
    found = race_mbarrier(record, address)
    agent = Race.OF_MBARRIERS + (found - record - Race.MBARRIERS) // Race.MBARRIER
    time = Race.ASYNCHRONOUS | race_tick(record)
    store32(found + Race.ARRIVING + agent * 4, time)
    store64(context + Context.RACE_AGENT, time << 8 | agent)
    return 0


def race_told(context: int, cta: int, address: int, copies: int) -> int:
    """The running warp arrives at an mbarrier, or tells it of bytes; ``copies``: when its ``cp.async`` are complete."""
    record = load64(cta + Cta.RACES)
    if record == 0:
        return 0
    warp = load32(load64(context + Context.STATE) + State.INDEX)
    me = record + Race.WARPS + warp * Race.WARP
    found = race_mbarrier(record, address)
    race_send(record, me, found + Race.ARRIVING)
    if copies and load64(me + Race.COPIES):
        store32(
            found + Race.ARRIVING + (Race.OF_COPIES + warp) * 4, Race.ASYNCHRONOUS | load64(me + Race.COPIES)
        )
        store64(me + Race.COPIES, race_tick(record))
    return 0


def race_phase(cta: int, address: int) -> int:
    """A phase of an mbarrier is complete."""
    record = load64(cta + Cta.RACES)
    if record == 0:
        return 0
    found = race_mbarrier(record, address)
    agent = 0
    while agent < load64(record + Race.AGENTS):
        store32(found + Race.DONE + agent * 4, load32(found + Race.ARRIVING + agent * 4))
        agent += 1
    return 0


def race_waited(context: int, cta: int, address: int) -> int:
    """The running warp has found a phase complete."""
    record = load64(cta + Cta.RACES)
    if record == 0:
        return 0
    me = record + Race.WARPS + load32(load64(context + Context.STATE) + State.INDEX) * Race.WARP
    return race_take(record, me, load64(context + Context.WARPS), race_mbarrier(record, address) + Race.DONE)


def race_known(me: int, stamp: int) -> int:
    """Whether what has a stamp comes before what the warp does now."""
    if stamp < load64(me + Race.BASE) or stamp & 127 == load64(me + Race.STAMP) & 127:
        return 1
    return load32(me + Race.CLOCK + (stamp & 127) * 4) >= stamp >> 8


def race_found(context: int, cta: int, before: int, after: int, place: int, kind: int) -> int:
    """Note two accesses of a CTA."""
    number = load64(cta + Cta.INDEX)
    return race_noted(context, number, number, before, after, place, kind)


def race_noted(
    context: int, number: int, other: int, before: int, after: int, place: int, kind: int
) -> int:  # fmt: skip
    """Note accesses of two CTAs. Of those of the same instructions the ones of the first CTAs are kept, and of these the first."""
    table = load64(context + Context.RACES_FOUND)
    key = (before >> 14) << 32 | (after >> 14) << 8 | kind
    count = load64(table)
    row = table + 8
    end = row + count * (8 * Race.COLUMNS)
    while row < end and load64(row) != key:
        row += 8 * Race.COLUMNS
    if row == end:
        if count == Race.MOST_FOUND:
            return 0
        store64(table, count + 1)
        store64(row, key)
        store64(row + 40, 0)
    known = load64(row + 8)
    if load64(row + 40) == 0 or number < known or (number == known and other < load64(row + 48)):
        store64(row + 8, number)
        store64(row + 48, other)
        store64(row + 16, before)
        store64(row + 24, after)
        store64(row + 32, place)
    store64(row + 40, load64(row + 40) + 1)
    return 0
