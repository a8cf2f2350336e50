"""Runtime of generated code: how CTAs begin, and what their barriers order.

A barrier of all warps raises the base of all of them; barriers of some warps, and those of clusters, have clocks. For these see
``races_clocks``.
"""

from __future__ import annotations

from ..ir.abi import Cluster, Context, Cta, Race, State, Wait
from .compile_python import copy, fill, load32, load64, store32, store64
from .races_blocks import race_begin_blocks
from .races_clocks import (
    race_acquire,
    race_clock,
    race_fenced,
    race_join_clocks,
    race_me,
    race_release,
    race_shared,
)


def race_begin(context: int, cta: int) -> int:
    """A CTA starts: nothing of it has been accessed."""
    record = load64(cta + Cta.RACE_ROOM)
    store64(cta + Cta.RACES, record)
    if record == 0:
        return 0
    warps = load64(context + Context.WARPS)
    if load64(record + Race.NOW) == 0:
        race_lay_out(record, warps)
    store64(record + Race.SLOTS, 0)
    store64(record + Race.RANK, load64(cta + Cta.RANK))
    race_barrier_of_all(record, warps)
    now = load64(record + Race.NOW)
    warp = 0
    while warp < warps:
        me = race_me(record, warp)
        store64(me + Race.FENCED, 0)
        store64(me + Race.READ, 0)
        store64(me + Race.COPIES, 0)
        store64(me + Race.GROUPS, 0)
        store64(me + Race.PRODUCTS, 0)
        store64(me + Race.BULK, 0)
        store64(me + Race.BULK_GROUPS, 0)
        twin = me + Race.CLOCK + load64(record + Race.TWIN)
        agent = 32
        while agent < load64(record + Race.AGENTS):
            store32(me + Race.CLOCK + agent * 4, Race.ASYNCHRONOUS | now)
            store32(twin + agent * 4, Race.ASYNCHRONOUS | now)
            agent += 1
        agent = 0
        while agent < 32 and load64(record + Race.TWIN):
            store32(twin + agent * 4, now - load64(record + Race.STEP))
            agent += 1
        store32(me + Race.CLOCK + Race.OF_OTHERS * 4, 1)
        warp += 1
    store64(record + Race.AGAIN, 0)
    if load64(context + Context.RACE_SEGMENTS):
        race_begin_blocks(record, warps)
    return 0


def race_forget(record: int, warps: int) -> int:
    """Times begin anew."""
    fill(load64(record + Race.PLANES), 0, load64(record + Race.PLANE) * Race.PLANES_COUNT)
    fill(record + Race.CLOCKS, 0, load64(record + Race.ROOM))
    store64(record + Race.SLOTS, 0)
    store64(record + Race.NOW, 0)
    return race_lay_out(record, warps)


def race_lay_out(record: int, warps: int) -> int:
    """What the records of warps always hold."""
    warp = 0
    while warp < warps:
        me = race_me(record, warp)
        store64(me + Race.RECORD, record)
        store64(me + Race.MASK, (load64(record + Race.STEP) - 1) << 8 | 127)
        warp += 1
    return 0


def race_renew(context: int, cluster: int) -> int:
    """Before the CTAs of a cluster start: times begin anew if it is late for one of them."""
    size = load64(cluster + Cluster.SIZE)
    late = 0
    rank = 0
    while rank < 2 * size:
        record = load64(load64(cluster + Cluster.PEERS + rank % size * 8) + Cta.RACE_ROOM)
        if record == 0:
            return 0
        if late:
            race_forget(record, load64(context + Context.WARPS))
        late = late or load64(record + Race.NOW) > Race.LATE
        rank += 1
    return 0


def race_begin_cluster(context: int, cluster: int) -> int:
    """The CTAs of a cluster have started: of one another they know what they did before."""
    rank = 0
    while rank < load64(cluster + Cluster.SIZE):
        record = load64(load64(cluster + Cluster.PEERS + rank * 8) + Cta.RACES)
        if record == 0 or load64(record + Race.STEP) == 1:
            return 0
        store64(record + Race.JOINED_PEER, 0)
        peer = 0
        while peer < load64(cluster + Cluster.SIZE):
            other = load64(load64(cluster + Cluster.PEERS + peer * 8) + Cta.RACES)
            turn = peer ^ rank
            time = Race.ASYNCHRONOUS | (load64(other + Race.NOW) - load64(record + Race.STEP)) | turn
            warp = 0
            while turn and warp < load64(context + Context.WARPS):
                clock = race_me(record, warp) + Race.CLOCK + turn * Race.PEER
                agent = 0
                while agent < load64(record + Race.AGENTS):
                    store32(clock + agent * 4, time)
                    store32(clock + load64(record + Race.TWIN) + agent * 4, time)
                    agent += 1
                warp += 1
            peer += 1
        rank += 1
    return 0


def race_barrier_of_all(record: int, warps: int) -> int:
    """A barrier of all warps: what they have done happens before what they will do."""
    step = load64(record + Race.STEP)
    now = load64(record + Race.NOW) + step
    race_share(record, warps, 32 * 4, load64(record + Race.AGENTS) * 4)
    if step > 1:
        if load64(record + Race.JOINED_PEER):
            race_share_peers(record, warps, 0)
        if now > Race.LAST:
            now = Race.LAST
    elif now > Race.LATE:
        others = load32(race_me(record, 0) + Race.CLOCK + Race.OF_OTHERS * 4)
        race_forget(record, warps)
        warp = 0
        while load64(record + Race.SEGMENTS) and warp < warps:
            store32(race_me(record, warp) + Race.CLOCK + Race.OF_OTHERS * 4, others)
            warp += 1
        store64(record + Race.AGAIN, 1)
        now = 1
    twin = load64(record + Race.TWIN)
    if twin and (load64(record + Race.FENCED_PROXY) or (step > 1 and load64(record + Race.JOINED_PEER))):
        race_share(record, warps, twin, twin + load64(record + Race.AGENTS) * 4)
        race_share_peers(record, warps, twin)
    store64(record + Race.FENCED_PROXY, 0)
    store64(record + Race.JOINED_PEER, 0)
    store64(record + Race.NOW, now)
    warp = 0
    while warp < warps:
        me = race_me(record, warp)
        store64(me + Race.EPOCH, now << 8 | warp)
        store64(me + Race.BASE, now << 8)
        warp += 1
    return 0


def race_share(record: int, warps: int, first: int, last: int) -> int:
    """All warps know of some agents what one of them knows."""
    size = load64(record + Race.WARP)
    place = load64(record + Race.WARPS) + first + Race.CLOCK
    end = place + last - first
    while place < end:
        # of most agents nobody knows anything new
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
    """The clocks of all warps have the latest of their times."""
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


def race_share_peers(record: int, warps: int, start: int) -> int:
    """As ``race_share``, of the agents of other CTAs."""
    rank = 1
    while rank < load64(record + Race.STEP):
        first = start + rank * Race.PEER
        race_share(record, warps, first, first + load64(record + Race.AGENTS) * 4)
        rank += 1
    return 0


def race_barrier(context: int, cta: int, number: int) -> int:
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
        return race_barrier_of_all(record, warps)
    clock = race_clock(record, number)
    going = 0
    while going < 2:
        warp = 0
        while warp < warps:
            state = first + warp * size
            if load32(state + State.WAIT) == Wait.BARRIER and load32(state + State.BARRIER_ID) == number:
                me = race_me(record, warp)
                if going:
                    race_acquire(record, me, warps, clock, 0)
                else:
                    race_release(record, me, clock, 0)
            warp += 1
        going += 1
    return 0


def race_arrive(context: int, cta: int, state: int, number: int) -> int:
    """A warp announces itself at a barrier, and does not wait."""
    record = load64(cta + Cta.RACES)
    if record:
        me = race_me(record, load32(state + State.INDEX))
        race_release(record, me, race_clock(record, number), 0)
    return 0


def race_cluster(context: int, cta: int, state: int, kind: int) -> int:
    """A warp arrives at the barrier of the cluster, or goes on behind it. ``kind`` as ``State.BARRIER_KIND``."""
    record = load64(cta + Cta.RACES)
    if record == 0:
        return 0
    me = race_me(record, load32(state + State.INDEX))
    shared = race_shared(cta)
    rank = load64(record + Race.RANK)
    if kind == 3:
        race_release(record, me, race_clock(shared, Race.CLUSTER_BARRIER), rank)
    elif kind == 4:
        race_acquire(
            record, me, load64(context + Context.WARPS), race_clock(shared, Race.CLUSTER_COMPLETE), rank
        )
    elif load64(me + Race.FENCED) & 2:
        race_join_clocks(record, race_clock(shared, Race.CLUSTER_BARRIER), race_fenced(record, me), rank)
    return 0


def race_complete_cluster(cluster: int) -> int:
    """The barrier of the cluster is complete: those that arrive from now on are not waited for."""
    record = load64(load64(cluster + Cluster.PEERS) + Cta.RACES)
    if record:
        size = load64(record + Race.CLOCK_BYTES)
        copy(race_clock(record, Race.CLUSTER_COMPLETE), race_clock(record, Race.CLUSTER_BARRIER), size)
    return 0


def races_settle(context: int, cta: int) -> int:
    """Threads have met at a barrier at which warps may be diverged."""
    record = load64(cta + Cta.RACES)
    if record:
        race_barrier_of_all(record, load64(context + Context.WARPS))
    return 0
