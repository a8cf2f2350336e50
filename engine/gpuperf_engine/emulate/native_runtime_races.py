"""Runtime of generated code: accesses of shared memory, and of global memory by several CTAs, that nothing orders. PYTEST_DONT_REWRITE

Written in the subset of ``native_script`` and compiled, never run as Python. ``Race`` says how it lies in memory.

The order is that of vector clocks (Flanagan and Freund, "FastTrack", PLDI 2009). Agents are warps, whose lanes are taken to be in
order, and asynchronous copies. A time passes where an agent releases something; the stamp of an access is agent and time. Each word
has the stamps of its last writer and of up to two readers. A barrier of all warps orders all that came before: then the base
of all warps is raised, which one comparison tells. All else is in the clocks: barriers of some warps, mbarriers, groups of copies; and
fences, atomics and flags, of which one clock of the CTA keeps what was released, whatever the flag.

Global memory is checked where no CTA can wait for another one, so that nothing orders them. Each line of it has slots: a CTA with the
bytes that it loaded and stored.
"""

from __future__ import annotations

from .native_layout import Context, Cta, Race, State, Wait
from .native_script import (
    compare_swap,
    fill,
    load8,
    load16,
    load32,
    load64,
    store16,
    store32,
    store64,
    trailing_zeros,
    unsigned_less,
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


def race_same(context: int, cta: int, place: int, done: int, size: int) -> int:
    """Whether a lane stores what is there already: bytes of its access from ``done`` on."""
    value = load64(context + Context.RACE_VALUE)
    width = load64(context + Context.RACE_WIDTH)
    if value == 0:
        return 0
    host = load64(cta + Cta.SHARED) + place
    index = 0
    while index < size:
        at = done + index
        if load8(host + index) != load8(value + at // width * width * 32 + at % width):
            return 0
        index += 1
    return 1


def race_against(
    context: int, cta: int, me: int, cell: int, plane: int, stamp: int, info: int, place: int, kind: int
) -> int:
    """Whether an access has a race with the one whose stamp is in a cell; a race that is not one of two stores is noted."""
    last = load32(cell)
    if last == stamp & 4294967295 or race_known(me, last) or (stamp & last & Race.STRONG):
        return 0
    behind = load32(cell + plane)
    if behind & info & 480 == 0:
        return 0
    if kind != Race.WAW:
        race_found(context, cta, behind, info, place, kind)
    return 1


def race_word(
    context: int, cta: int, record: int, me: int, stamp: int, info: int, start: int, done: int, size: int, writes: int
) -> int:  # fmt: skip
    """One lane accesses bytes of a word."""
    plane = load64(record + Race.PLANE)
    cell = load64(record + Race.PLANES) + (start & -4)
    kind = Race.RAW
    if writes:
        kind = Race.WAW
    behind = load32(cell + plane)
    if race_against(context, cta, me, cell, plane, stamp, info, start, kind) and writes:
        plain = (stamp | load32(cell)) & Race.STRONG == 0
        if not plain or race_same(context, cta, start, done, size) == 0:
            race_found(context, cta, behind, info, start, kind)
    if writes:
        race_against(context, cta, me, cell + Race.READER * plane, plane, stamp, info, start, Race.WAR)
        race_against(context, cta, me, cell + Race.OTHER * plane, plane, stamp, info, start, Race.WAR)
        if load32(cell) == stamp & 4294967295:
            info = info | (behind & 480)
        store32(cell, stamp)
        store32(cell + plane, info)
        return 0
    cell += Race.READER * plane
    last = load32(cell)
    if last != stamp & 4294967295 and race_known(me, last) == 0:
        cell += 2 * plane
        last = load32(cell)
    if last == stamp & 4294967295:
        info = info | (load32(cell + plane) & 480)
    store32(cell, stamp)
    store32(cell + plane, info)
    return 0


def race_words(
    context: int, cta: int, record: int, me: int, stamp: int, info: int, place: int, size: int, writes: int
) -> int:  # fmt: skip
    """As ``race_word`` for whole words; what has no race is known by one comparison if the word before had the same stamps."""
    plane = load64(record + Race.PLANE)
    first = load64(record + Race.PLANES) + place
    base = load64(me + Race.BASE)
    if size == 16 and race_four(me, stamp, info, first, plane, base, writes):
        return 0
    written = stamp
    done = 0
    while done < size:
        cell = first + done
        bad = 0
        last = load32(cell)
        if last >= base and last != written and stamp & last & Race.STRONG == 0:
            written = last
            bad = race_known(me, last) == 0
        one = load32(cell + Race.READER * plane)
        if writes and one >= base:
            # where it is earlier, so is the other one
            if stamp & one & Race.STRONG == 0:
                bad = bad | (race_known(me, one) == 0)
            one = load32(cell + Race.OTHER * plane)
            if one >= base and stamp & one & Race.STRONG == 0:
                bad = bad | (race_known(me, one) == 0)
        if bad:
            race_word(context, cta, record, me, stamp, info, place + done, done, 4, writes)
            written = stamp
        elif writes:
            store32(cell, stamp)
            store32(cell + plane, info)
        elif one != stamp:
            cell += Race.READER * plane
            if one >= base and race_known(me, one) == 0:
                cell += 2 * plane
            store32(cell, stamp)
            store32(cell + plane, info)
        done += 4
    return 0


def race_four(me: int, stamp: int, info: int, cell: int, plane: int, base: int, writes: int) -> int:
    """Four words that have the same stamps: whether they have no race, and if so, noted."""
    four = load64(cell)
    last = four & 4294967295
    if four != load64(cell + 8) or four >> 32 != last:
        return 0
    if last >= base and last != stamp and stamp & last & Race.STRONG == 0 and race_known(me, last) == 0:
        return 0
    four = load64(cell + Race.READER * plane)
    last = four & 4294967295
    if four != load64(cell + Race.READER * plane + 8) or four >> 32 != last:
        return 0
    if writes:
        if last >= base:
            return 0
    elif last == stamp:
        return 1
    else:
        cell += Race.READER * plane
        if last >= base and race_known(me, last) == 0:
            cell += 2 * plane
    four = stamp | stamp << 32
    store64(cell, four)
    store64(cell + 8, four)
    four = info | info << 32
    store64(cell + plane, four)
    store64(cell + plane + 8, four)
    return 1


def race_at(context: int, cta: int, state: int, site: int, lane: int, place: int, size: int, how: int) -> int:
    """One lane accesses shared memory of its CTA. ``how``: 4 writes, 8 reads."""
    flags = load8(load64(context + Context.RACE_SITES) + site)
    record = load64(cta + Cta.RACES)
    if flags & Race.CHECKED == 0 or record == 0 or load64(record + Race.NOW) == Race.LAST:
        return 0
    warp = load32(state + State.INDEX)
    me = record + Race.WARPS + warp * Race.WARP
    stamp = load64(me + Race.STAMP)
    if load64(context + Context.RACE_AGENT):
        stamp = load64(context + Context.RACE_AGENT)
    if flags & Race.IS_STRONG:
        stamp = stamp | Race.STRONG
    info = site << 14 | warp << 9 | lane
    done = 0
    if size == 4 and place & 3 == 0 and flags == Race.CHECKED | Race.IS_STRONG and load64(me + Race.READ):
        # an atomic among atomics
        base = load64(me + Race.BASE)
        plane = load64(record + Race.PLANE)
        cell = load64(record + Race.PLANES) + place
        last = load32(cell)
        unread = load32(cell + Race.READER * plane) < base and load64(me + Race.FENCED) == 0
        if unread and (last < base or last & Race.STRONG) and how & 4:
            store32(cell, stamp)
            store32(cell + plane, info | 480)
            return 0
    if (place | size) & 3 == 0:
        race_words(context, cta, record, me, stamp & 4294967295, info | 480, place, size, how & 4)
        done = size
    while done < size:
        start = place + done
        part = 4 - (start & 3)
        if part > size - done:
            part = size - done
        bits = ((1 << part) - 1) << (start & 3)
        race_word(context, cta, record, me, stamp, info | bits << 5, start, done, part, how & 4)
        done += part
    # most atomics order nothing
    plain = flags == Race.CHECKED | Race.IS_STRONG and load64(me + Race.READ) and not load64(me + Race.FENCED)
    if flags & Race.IS_STRONG and plain == 0:
        race_flag(context, cta, state, site, how)
    return 0


def race_lanes(
    context: int, site: int, mask: int, addresses: int, values: int, width: int, size: int, how: int
) -> int:
    """Accesses of shared memory lane by lane; ``values`` are what is stored, element e of lane l at ``values[e · 32 + l]``."""
    cta = load64(context + Context.CTA)
    state = load64(context + Context.STATE)
    store64(context + Context.RACE_WIDTH, width)
    while mask:
        lane = trailing_zeros(mask)
        mask = mask & (mask - 1)
        if values:
            store64(context + Context.RACE_VALUE, values + lane * width)
        race_at(context, cta, state, site, lane, load64(addresses + lane * 8), size, how)
    store64(context + Context.RACE_VALUE, 0)
    return 0


def race_row(
    context: int, site: int, mask: int, first: int, values: int, width: int, size: int, how: int
) -> int:
    """Accesses of global memory by lanes side by side; ``first`` is the address of lane 0. ``values`` as in ``race_lanes``."""
    lines = load64(context + Context.RACE_LINES)
    from_ = load64(context + Context.RACE_FROM)
    span = load64(context + Context.RACE_SPAN)
    locks = load64(context + Context.RACE_LOCKS)
    oldest = load64(context + Context.RACE_FIRST) << 1
    stamp = race_stamp(context, site)
    info = site << 14 | load32(load64(context + Context.STATE) + State.INDEX) << 9
    power = trailing_zeros(size)
    while mask:
        lane = trailing_zeros(mask)
        lanes = trailing_zeros(~(mask >> lane))
        mask = mask & ~(((1 << lanes) - 1) << lane)
        start = first + lane * size
        end = start + lanes * size
        while start < end:
            offset = start & (Race.LINE_BYTES - 1)
            part = Race.LINE_BYTES - offset
            if part > end - start:
                part = end - start
            place = start - from_
            cell = lines + (place >> Race.LINE_BITS) * (Race.SLOT * Race.SLOTS_COUNT)
            if not unsigned_less(place, span) or lines == 0:
                return 0
            known = 0
            if locks == 0 and load32(cell + Race.SLOT) < oldest:
                known = load32(cell)
                if known < oldest:
                    known = stamp
                    store32(cell, stamp)
                    store64(cell + Race.STORED, 0)
                    store64(cell + Race.LOADED, 0)
            if known == stamp:
                # no other CTA has been here
                bytes_ = -1
                if part < Race.LINE_BYTES:
                    bytes_ = ((1 << part) - 1) << offset
                shape = offset | power << Race.POWER | (part - 1) << Race.LENGTH
                race_kept(cell, info | lane, shape, bytes_, how)
            else:
                race_line(context, site, lane, start, part, values, width, size, how)
            start += part
            lane += part >> power
    return 0


def race_stamp(context: int, site: int) -> int:
    """Of accesses of global memory by the CTA that runs."""
    number = load64(context + Context.RACE_FIRST) + load64(load64(context + Context.CTA) + Cta.INDEX)
    if load8(load64(context + Context.RACE_SITES) + site) & Race.IS_STRONG:
        return number << 1 | 1
    return number << 1


def race_kept(slot: int, info: int, shape: int, mask: int, how: int) -> int:
    """Note an access in the slot of its CTA; one that goes on where the last one of its warp and instruction ended is one with it."""
    at = slot + Race.LOADED_AT
    by = slot + Race.LOADED_BY
    plane = slot + Race.LOADED
    if how & 4:
        at = slot + Race.STORED_AT
        by = slot + Race.STORED_BY
        plane = slot + Race.STORED
    known = load64(plane)
    if known and (load32(by) ^ info) < 32:
        last = load16(at)
        end = (last & (Race.LINE_BYTES - 1)) + (last >> Race.LENGTH) + 1
        if end == shape & (Race.LINE_BYTES - 1) and ((last ^ shape) >> Race.POWER & 7) == 0:
            store16(at, last + (((shape >> Race.LENGTH) + 1) << Race.LENGTH))
            store64(plane, known | mask)
            return 0
    store16(at, shape)
    store32(by, info)
    store64(plane, known | mask)
    return 0


def race_anywhere(
    context: int, site: int, mask: int, addresses: int, values: int, width: int, size: int, how: int
) -> int:
    """As ``race_row``, of lanes at any addresses."""
    while mask:
        lane = trailing_zeros(mask)
        mask = mask & (mask - 1)
        start = load64(addresses + lane * 8)
        end = start + size
        after = lane + 1
        while mask >> after & 1 and end & (Race.LINE_BYTES - 1) and load64(addresses + after * 8) == end:
            mask = mask & (mask - 1)
            end += size
            after += 1
        # a place that all lanes load from
        while how & 4 == 0 and mask and load64(addresses + trailing_zeros(mask) * 8) == start:
            mask = mask & (mask - 1)
        race_line(context, site, lane, start, end - start, values, width, size, how)
    return 0


def race_alone(context: int, site: int, lane: int, address: int, size: int, how: int) -> int:
    """As ``race_row``, of one lane."""
    width = load64(context + Context.RACE_WIDTH)
    values = load64(context + Context.RACE_VALUE)
    if values:
        values -= lane * width
    return race_line(context, site, lane, address, size, values, width, size, how)


def race_line(
    context: int, site: int, lane: int, start: int, part: int, values: int, width: int, size: int, how: int
) -> int:
    """Lanes from ``lane`` on access ``part`` bytes within a line."""
    place = start - load64(context + Context.RACE_FROM)
    lines = load64(context + Context.RACE_LINES)
    if lines == 0 or not unsigned_less(place, load64(context + Context.RACE_SPAN)):
        return 0
    if part > Race.LINE_BYTES - (place & (Race.LINE_BYTES - 1)):
        return 0
    line = place >> Race.LINE_BITS
    cell = lines + line * (Race.SLOT * Race.SLOTS_COUNT)
    locks = load64(context + Context.RACE_LOCKS)
    if locks:
        locks += line & (Race.LOCKS - 1)
        while compare_swap(locks, 0, 1):
            continue
    race_slots(context, site, lane, cell, start, part, values, width, size, how)
    if locks:
        compare_swap(locks, 1, 0)
    return 0


def race_slots(
    context: int,
    site: int,
    lane: int,
    cell: int,
    start: int,
    part: int,
    values: int,
    width: int,
    size: int,
    how: int,
) -> int:
    """Hold an access against those of other CTAs to its line, and note it there."""
    oldest = load64(context + Context.RACE_FIRST) << 1
    stamp = race_stamp(context, site)
    offset = start & (Race.LINE_BYTES - 1)
    mask = -1
    if part < Race.LINE_BYTES:
        mask = ((1 << part) - 1) << offset
    info = site << 14 | load32(load64(context + Context.STATE) + State.INDEX) << 9 | lane
    shape = offset | trailing_zeros(size) << Race.POWER | (part - 1) << Race.LENGTH
    own = 0
    slot = cell
    end = cell + Race.SLOT * Race.SLOTS_COUNT
    while slot < end:
        other = load32(slot)
        if other < oldest:
            break
        if other == stamp:
            own = slot
        elif other >> 1 != stamp >> 1 and other & stamp & 1 == 0:
            met = mask & load64(slot + Race.STORED)
            if met and how & 4 == 0:
                race_met(context, slot, met, stamp, info, shape, start, Race.RAW)
            elif met and race_differs(context, lane, met, other | stamp, start, values, width, size):
                race_met(context, slot, met, stamp, info, shape, start, Race.WAW)
            met = mask & load64(slot + Race.LOADED)
            if met and how & 4:
                race_met(context, slot, met, stamp, info, shape, start, Race.WAR)
        slot += Race.SLOT
    if own == 0:
        if slot == end:
            slot = race_room(cell, stamp, how)
            if slot == 0:
                return 0
        own = slot
        store32(own, stamp)
        store64(own + Race.STORED, 0)
        store64(own + Race.LOADED, 0)
    race_kept(own, info, shape, mask, how)
    return 0


def race_room(cell: int, stamp: int, how: int) -> int:
    """Whose slot is taken over where a line has none left; 0: that of nobody. CTAs that only load go first; the first one stays."""
    turn = 0
    while turn < Race.SLOTS_COUNT - 1:
        slot = cell + (1 + ((stamp >> 1) + turn) % (Race.SLOTS_COUNT - 1)) * Race.SLOT
        if load64(slot + Race.STORED) == 0:
            return slot
        turn += 1
    if how & 4:
        return cell + (1 + (stamp >> 1) % (Race.SLOTS_COUNT - 1)) * Race.SLOT
    return 0


def race_differs(
    context: int, first: int, met: int, stamps: int, start: int, values: int, width: int, size: int
) -> int:
    """Whether a store of lanes from ``first`` on changes any of some bytes of a line. An atomic does; of other instructions than
    stores nobody knows, and so they are not told."""
    if stamps & 1:
        return 1
    if values == 0:
        return 0
    line = start & (0 - Race.LINE_BYTES)
    while met:
        byte = trailing_zeros(met)
        met = met & (met - 1)
        place = line + byte - start
        lane = first + place // size
        within = place % size
        at = within // width * width * 32 + lane * width + within % width
        if load8(line + byte + load64(context + Context.ARENA)) != load8(values + at):
            return 1
    return 0


def race_met(
    context: int, slot: int, met: int, stamp: int, info: int, shape: int, start: int, kind: int
) -> int:
    """An access has a race with those of a slot, in some bytes. The CTA with the lower number is told first, whichever ran first."""
    first = load64(context + Context.RACE_FIRST)
    before = load32(slot + Race.STORED_BY)
    behind = load16(slot + Race.STORED_AT)
    if kind == Race.WAR:
        before = load32(slot + Race.LOADED_BY)
        behind = load16(slot + Race.LOADED_AT)
    length = (behind >> Race.LENGTH) + 1
    last = -1
    if length < Race.LINE_BYTES:
        last = ((1 << length) - 1) << (behind & (Race.LINE_BYTES - 1))
    far = Race.FAR
    if met & last:
        met = met & last
    else:
        far = Race.FAR | Race.NEAR_BY
    byte = trailing_zeros(met)
    place = (start & (0 - Race.LINE_BYTES)) + byte
    other = (load32(slot) >> 1) - first
    number = (stamp >> 1) - first
    before = race_lane(before, behind, byte)
    after = race_lane(info, shape, byte)
    if other < number:
        return race_noted(context, other, number, before, after, place, far | kind)
    if kind != Race.WAW:
        kind = Race.RAW + Race.WAR - kind
    return race_noted(context, number, other, after, before, place, far | kind)


def race_lane(info: int, shape: int, byte: int) -> int:
    """What is behind a stamp, with the lane that accesses one byte of the line."""
    begins = shape & (Race.LINE_BYTES - 1)
    if byte >= begins:
        lane = (info & 31) + ((byte - begins) >> (shape >> Race.POWER & 7))
        if lane < 32:
            return (info & -32) | lane
    return info
