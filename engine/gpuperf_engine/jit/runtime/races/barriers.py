"""Runtime of generated code: the start of CTAs, and the order that their barriers establish.

A barrier of all warps raises the base of every warp. Barriers of some warps, and those of clusters, have vector clocks; see
``races.clocks``.
"""

from __future__ import annotations

from ...ir.abi import Cluster, Context, Cta, State
from ...ir.codes import Wait
from ...ir.race_records import Race, RaceClock, RaceWarp
from ..intrinsics import copy, fill, load32, load64, store32
from .blocks import race_begin_blocks
from .clocks import (
    race_acquire,
    race_clock,
    race_fenced,
    race_join_clocks,
    race_known,
    race_me,
    race_release,
    race_shared,
    race_twin,
)


def race_begin(context: Context, cta: Cta) -> int:
    """A CTA starts: reset its records."""
    record = cta.RACE_ROOM
    cta.RACES = record
    if record == 0:
        return 0
    warps = context.WARPS
    if record.NOW == 0:
        race_lay_out(record, warps)
    record.SLOTS = 0
    record.BULK_AGENTS = 0
    record.RANK = cta.RANK
    race_barrier_of_all(record, warps)
    now = record.NOW
    warp = 0
    while warp < warps:
        me = race_me(record, warp)
        me.FENCED = 0
        me.READ = 0
        me.COPIES = 0
        me.GROUPS = 0
        me.PRODUCTS = 0
        me.BULK = 0
        me.BULK_GROUPS = 0
        me.BULK_AGENT = 0
        twin = race_twin(record, race_known(me))
        agent = 32
        while agent < record.AGENTS:
            me.CLOCK[agent] = Race.ASYNCHRONOUS | now
            twin.TIMES[agent] = Race.ASYNCHRONOUS | now
            agent += 1
        agent = 0
        while agent < 32 and record.TWIN:
            twin.TIMES[agent] = now - record.STEP
            agent += 1
        me.CLOCK[Race.OF_OTHERS] = 1
        warp += 1
    record.AGAIN = 0
    record.OLDEST = 0
    if context.RACE_SEGMENTS:
        race_begin_blocks(record, warps)
    return 0


def race_forget(record: Race, warps: int) -> int:
    """Times restart: clear the shadows and clocks of a CTA."""
    fill(record.PLANES, 0, record.PLANE * Race.PLANES_COUNT)
    fill(record + Race.CLOCKS, 0, record.ROOM)
    record.SLOTS = 0
    record.NOW = 0
    return race_lay_out(record, warps)


def race_lay_out(record: Race, warps: int) -> int:
    """Set the fields of warp records that never change."""
    warp = 0
    while warp < warps:
        me = race_me(record, warp)
        me.RECORD = record
        me.MASK = (record.STEP - 1) << 8 | 127
        warp += 1
    return 0


def race_renew(context: Context, cluster: Cluster) -> int:
    """Before the CTAs of a cluster start: times restart in all of them if they are near the limit in one of them."""
    size = cluster.SIZE
    late = 0
    rank = 0
    while rank < 2 * size:
        record = cluster.PEERS[rank % size].RACE_ROOM
        if record == 0:
            return 0
        if late:
            race_forget(record, context.WARPS)
        late = late or record.NOW > Race.LATE
        rank += 1
    return 0


def race_begin_cluster(context: Context, cluster: Cluster) -> int:
    """The CTAs of a cluster have started: what each has done so far happens before what the others do."""
    rank = 0
    while rank < cluster.SIZE:
        record = cluster.PEERS[rank].RACES
        if record == 0 or record.STEP == 1:
            return 0
        record.JOINED_PEER = 0
        peer = 0
        while peer < cluster.SIZE:
            other = cluster.PEERS[peer].RACES
            turn = peer ^ rank
            time = Race.ASYNCHRONOUS | (other.NOW - record.STEP) | turn
            warp = 0
            while turn and warp < context.WARPS:
                clock = RaceClock(race_known(race_me(record, warp)) + turn * Race.PEER)
                agent = 0
                while agent < record.AGENTS:
                    clock.TIMES[agent] = time
                    race_twin(record, clock).TIMES[agent] = time
                    agent += 1
                warp += 1
            peer += 1
        rank += 1
    return 0


def race_barrier_of_all(record: Race, warps: int) -> int:
    """A barrier of all warps: everything before it happens before everything after it."""
    step = record.STEP
    now = record.NOW + step
    race_share(record, warps, 32 * 4, record.AGENTS * 4)
    if record.SEGMENTS and record.AGENTS <= 32:
        race_share(record, warps, (Race.OF_OTHERS - 1) * 4, (Race.OF_OTHERS + 1) * 4)
    if step > 1:
        if record.JOINED_PEER:
            race_share_peers(record, warps, 0)
        if now > Race.LAST:
            now = Race.LAST
    elif now > Race.LATE:
        others = race_me(record, 0).CLOCK[Race.OF_OTHERS]
        race_forget(record, warps)
        warp = 0
        while record.SEGMENTS and warp < warps:
            race_me(record, warp).CLOCK[Race.OF_OTHERS] = others
            warp += 1
        record.AGAIN = 1
        now = 1
    twin = record.TWIN
    if twin and (record.FENCED_PROXY or (step > 1 and record.JOINED_PEER)):
        race_share(record, warps, twin, twin + record.AGENTS * 4)
        race_share_peers(record, warps, twin)
    record.FENCED_PROXY = 0
    record.JOINED_PEER = 0
    record.NOW = now
    warp = 0
    while warp < warps:
        me = race_me(record, warp)
        me.EPOCH = now << 8 | warp
        me.BASE = now << 8
        warp += 1
    return 0


def race_share(record: Race, warps: int, first: int, last: int) -> int:
    """Give all warps the latest time of some agents that any warp's clock has."""
    size = record.WARP
    place = record.WARPS + first + RaceWarp.CLOCK
    end = place + last - first
    while place < end:
        # the times of most agents are equal in all clocks
        two = load64(place)
        warp = 1
        while warp < warps and load64(place + warp * size) == two:
            warp += 1
        if warp < warps:
            race_share_latest(place, warps, size)
            race_share_latest(place + 4, warps, size)
        place += 8
    return 0


def race_share_latest(place: int, warps: int, size: int) -> int:
    """Set one time in the clocks of all warps to the latest of them."""
    most = 0
    end = place + warps * size
    at = place
    while at < end:
        time = load32(at)
        if time > most:
            most = time
        at += size
    while place < end:
        store32(place, most)
        place += size
    return 0


def race_share_peers(record: Race, warps: int, start: int) -> int:
    """As ``race_share``, for the agents of other CTAs."""
    rank = 1
    while rank < record.STEP:
        first = start + rank * Race.PEER
        race_share(record, warps, first, first + record.AGENTS * 4)
        rank += 1
    return 0


def race_barrier(context: Context, cta: Cta, number: int) -> int:
    """The warps that wait at a barrier of the CTA continue: each releases to the barrier's clock, then each acquires it."""
    record = cta.RACES
    if record == 0:
        return 0
    warps = context.WARPS
    size = context.STATE_BYTES
    first = cta.STATES
    waiting = 0
    warp = 0
    while warp < warps:
        state = State(first + warp * size)
        if state.WAIT == Wait.BARRIER and state.BARRIER_ID == number:
            waiting += 1
        warp += 1
    if waiting == cta.LIVE_WARPS:
        return race_barrier_of_all(record, warps)
    clock = race_clock(record, number)
    going = 0
    while going < 2:
        warp = 0
        while warp < warps:
            state = State(first + warp * size)
            if state.WAIT == Wait.BARRIER and state.BARRIER_ID == number:
                me = race_me(record, warp)
                if going:
                    race_acquire(record, me, warps, clock, 0)
                else:
                    race_release(record, me, clock, 0)
            warp += 1
        going += 1
    return 0


def race_arrive(context: Context, cta: Cta, state: State, number: int) -> int:
    """A warp arrives at a barrier without waiting (``bar.arrive``)."""
    record = cta.RACES
    if record:
        me = race_me(record, state.INDEX)
        race_release(record, me, race_clock(record, number), 0)
    return 0


def race_cluster(context: Context, cta: Cta, state: State, kind: int) -> int:
    """A warp arrives at the barrier of the cluster, or continues after it. ``kind`` as in ``State.BARRIER_KIND``."""
    record = cta.RACES
    if record == 0:
        return 0
    me = race_me(record, state.INDEX)
    shared = race_shared(cta)
    rank = record.RANK
    if kind == 3:
        race_release(record, me, race_clock(shared, Race.CLUSTER_BARRIER), rank)
    elif kind == 4:
        race_acquire(record, me, context.WARPS, race_clock(shared, Race.CLUSTER_COMPLETE), rank)
    elif me.FENCED & 2:
        race_join_clocks(record, race_clock(shared, Race.CLUSTER_BARRIER), race_fenced(record, me), rank)
    return 0


def race_complete_cluster(cluster: Cluster) -> int:
    """The barrier of the cluster is complete: warps that wait for it acquire only the arrivals so far."""
    record = cluster.PEERS[0].RACES
    if record:
        size = record.CLOCK_BYTES
        copy(race_clock(record, Race.CLUSTER_COMPLETE), race_clock(record, Race.CLUSTER_BARRIER), size)
    return 0


def races_settle(context: Context, cta: Cta) -> int:
    """All threads have arrived at a barrier at which warps may be diverged."""
    record = cta.RACES
    if record:
        race_barrier_of_all(record, context.WARPS)
    return 0
