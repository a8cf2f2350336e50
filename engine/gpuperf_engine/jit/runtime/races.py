"""Runtime of generated code: what orders accesses of memory, and the races that were found.

Written in the subset of ``compile_python`` and compiled, never run as Python. ``Race`` says how it lies in memory.

The order is that of vector clocks (Flanagan and Freund, "FastTrack", PLDI 2009). Agents are warps, whose lanes are taken to be in
order, and asynchronous copies. A time passes where an agent releases something; the stamp of an access is agent and time. Each word
has the stamps of its last writer and of up to two readers. A barrier of all warps orders all that came before: then the base
of all warps is raised, which one comparison tells. All else is in the clocks: barriers of some warps, mbarriers, groups of copies; and
fences, atomics and flags, of which one clock of the CTA keeps what was released, whatever the flag.

``races_shared`` holds the accesses of shared memory against these clocks, ``races_global`` those of
global memory.

Where CTAs may wait for one another, releases to other CTAs are numbered. A warp knows the last one that it has acquired, whatever the
flag, as the time of one more agent; a segment, which is what an agent accesses between two of its releases, the first one that
covers it.
"""

from __future__ import annotations

from ..ir.abi import Cluster, Context, Cta, Line, Race, Segment, Segments, State, Wait
from .compile_python import copy, fill, load8, load32, load64, store32, store64, unsigned_less


def race_me(record: int, warp: int) -> int:
    """The record of a warp of a CTA."""
    return load64(record + Race.WARPS) + warp * load64(record + Race.WARP)


def race_clock(record: int, number: int) -> int:
    """A clock of a CTA."""
    return record + Race.CLOCKS + number * load64(record + Race.CLOCK_BYTES)


def race_begin(context: int, cta: int) -> int:
    """A CTA starts: nothing of it has been accessed."""
    record = load64(cta + Cta.RACE_ROOM)
    store64(cta + Cta.RACES, record)
    if record == 0:
        return 0
    warps = load64(context + Context.WARPS)
    if load64(record + Race.NOW) == 0:
        race_name(record, warps)
    store64(record + Race.SLOTS, 0)
    store64(record + Race.RANK, load64(cta + Cta.RANK))
    race_all(record, warps)
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
        race_begin_far(record, warps)
    return 0


def race_forget(record: int, warps: int) -> int:
    """Times begin anew."""
    fill(load64(record + Race.PLANES), 0, load64(record + Race.PLANE) * Race.PLANES_COUNT)
    fill(record + Race.CLOCKS, 0, load64(record + Race.ROOM))
    store64(record + Race.SLOTS, 0)
    store64(record + Race.NOW, 0)
    return race_name(record, warps)


def race_name(record: int, warps: int) -> int:
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


def race_more(record: int) -> int:
    """Something is done asynchronously: from now on there are agents that are no warps, in all CTAs of the cluster."""
    if load64(record + Race.AGENTS) == 128:
        return 0
    store64(record + Race.AGENTS, 128)
    cluster = load64(load64(record + Race.CTA) + Cta.CLUSTER)
    rank = 0
    while cluster and rank < load64(cluster + Cluster.SIZE):
        store64(load64(load64(cluster + Cluster.PEERS + rank * 8) + Cta.RACES) + Race.AGENTS, 128)
        rank += 1
    return 0


def race_together(context: int, cluster: int) -> int:
    """The CTAs of a cluster have started: of one another they know what they did before."""
    rank = 0
    while rank < load64(cluster + Cluster.SIZE):
        record = load64(load64(cluster + Cluster.PEERS + rank * 8) + Cta.RACES)
        if record == 0 or load64(record + Race.STEP) == 1:
            return 0
        store64(record + Race.MET, 0)
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


def race_all(record: int, warps: int) -> int:
    """All warps have met: what they have done comes before what they will do."""
    step = load64(record + Race.STEP)
    now = load64(record + Race.NOW) + step
    race_share(record, warps, 32 * 4, load64(record + Race.AGENTS) * 4)
    if step > 1:
        if load64(record + Race.MET):
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
    if twin and (load64(record + Race.FENCED_PROXY) or (step > 1 and load64(record + Race.MET))):
        race_share(record, warps, twin, twin + load64(record + Race.AGENTS) * 4)
        race_share_peers(record, warps, twin)
    store64(record + Race.FENCED_PROXY, 0)
    store64(record + Race.MET, 0)
    store64(record + Race.NOW, now)
    warp = 0
    while warp < warps:
        me = race_me(record, warp)
        store64(me + Race.STAMP, now << 8 | warp)
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
            race_agree(place, warps, size)
            race_agree(place + 4, warps, size)
        place += 8
    return 0


def race_agree(place: int, warps: int, size: int) -> int:
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


def race_tick(record: int) -> int:
    """Another time."""
    now = load64(record + Race.NOW) + load64(record + Race.STEP)
    if now > Race.LAST:
        # of a CTA that goes on for ever without a barrier of all its warps no more is checked
        now = Race.LAST
    store64(record + Race.NOW, now)
    return now


def race_join(clock: int, known: int, agents: int, flip: int, put: int, keep: int) -> int:
    """A clock learns what another one knows of as many agents."""
    agent = 0
    while agent < agents:
        to = clock + agent * 4
        from_ = known + agent * 4
        if flip == 0 and load64(from_) == load64(to) and load64(from_ + 8) == load64(to + 8):
            # of most agents there is nothing new
            agent += 4
            continue
        time = ((load32(known + agent * 4) ^ flip) | put) & keep
        old = load32(clock + agent * 4)
        if time < old:
            time = old
        store32(clock + agent * 4, time)
        agent += 1
    return 0


def race_learn(record: int, clock: int, known: int, turn: int) -> int:
    """A clock learns all that another one knows; ``turn``: the ranks of their CTAs, xor."""
    twin = load64(record + Race.TWIN)
    race_copied(record, clock, known, turn)
    if twin:
        race_copied(record, clock + twin, known + twin, turn)
    return 0


def race_copied(record: int, clock: int, known: int, turn: int) -> int:
    """As ``race_learn``, of one of twins. Warps of the own CTA have times of the common kind."""
    agents = load64(record + Race.AGENTS)
    warps = agents
    if agents > 32:
        warps = 32
    rank = 0
    if turn == 0:
        race_join(clock, known, agents, 0, 0, -1)
        rank = 1
    while rank < load64(record + Race.STEP):
        to = clock + (rank ^ turn) * Race.PEER
        from_ = known + rank * Race.PEER
        if turn == 0:
            race_join(to, from_, agents, 0, 0, -1)
        else:
            if rank == 0:
                race_join(to, from_, warps, turn, Race.ASYNCHRONOUS, -1)
            elif rank == turn:
                race_join(to, from_, warps, turn, 0, Race.ASYNCHRONOUS - 1)
            else:
                race_join(to, from_, warps, turn, 0, -1)
            race_join(to + 32 * 4, from_ + 32 * 4, agents - 32, turn, 0, -1)
        rank += 1
    return 0


def race_send(record: int, me: int, clock: int, turn: int) -> int:
    """A warp releases what it knows to a clock; ``turn``: the rank of that clock's CTA xor the own one."""
    race_time(record, me)
    race_learn(record, clock, me + Race.CLOCK, turn)
    return 0


def race_time(record: int, me: int) -> int:
    """The clock of a warp tells all that it knows, itself too; what it does from now on is later."""
    stamp = load64(me + Race.STAMP)
    base = (load64(me + Race.BASE) >> 8) - load64(record + Race.STEP)
    agent = 0
    while agent < 32:
        time = load32(me + Race.CLOCK + agent * 4)
        if time < base:
            time = base
        store32(me + Race.CLOCK + agent * 4, time)
        agent += 1
    store32(me + Race.CLOCK + (stamp & 127) * 4, stamp >> 8)
    store64(me + Race.STAMP, race_tick(record) << 8 | (stamp & 127))
    return 0


def race_proxy(cta: int, state: int) -> int:
    """``fence.proxy.async``: the async proxy sees what comes before. So it does where a warp finds that products or bulk copies are
    complete, which an implicit fence follows."""
    record = load64(cta + Cta.RACES)
    if record == 0 or load64(record + Race.TWIN) == 0:
        return 0
    me = race_me(record, load32(state + State.INDEX))
    race_time(record, me)
    race_copied(record, me + Race.CLOCK + load64(record + Race.TWIN), me + Race.CLOCK, 0)
    store64(record + Race.FENCED_PROXY, 1)
    return 0


def race_take(record: int, me: int, warps: int, clock: int, turn: int) -> int:
    """A warp acquires what a clock knows; ``turn`` as in ``race_send``."""
    own = load64(me + Race.STAMP) & 127
    base = load64(me + Race.BASE) >> 8
    step = load64(record + Race.STEP)
    least = Race.LAST
    race_learn(record, me + Race.CLOCK, clock, turn)
    agent = 0
    while agent < warps:
        time = load32(me + Race.CLOCK + agent * 4)
        if agent != own and time < least:
            least = time
        agent += 1
    if warps > 1 and least >= base:
        store64(me + Race.BASE, (least + step) << 8)
    store64(record + Race.MET, 1)
    return 0


def race_shared(cta: int) -> int:
    """The record of the first CTA of the cluster, or of the CTA itself."""
    cluster = load64(cta + Cta.CLUSTER)
    if cluster:
        cta = load64(cluster + Cluster.PEERS)
    return load64(cta + Cta.RACES)


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
    clock = race_clock(record, number)
    going = 0
    while going < 2:
        warp = 0
        while warp < warps:
            state = first + warp * size
            if load32(state + State.WAIT) == Wait.BARRIER and load32(state + State.BARRIER_ID) == number:
                me = race_me(record, warp)
                if going:
                    race_take(record, me, warps, clock, 0)
                else:
                    race_send(record, me, clock, 0)
            warp += 1
        going += 1
    return 0


def race_arrive(context: int, cta: int, state: int, number: int) -> int:
    """A warp announces itself at a barrier, and does not wait."""
    record = load64(cta + Cta.RACES)
    if record:
        me = race_me(record, load32(state + State.INDEX))
        race_send(record, me, race_clock(record, number), 0)
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
        race_send(record, me, race_clock(shared, Race.MEETING), rank)
    elif kind == 4:
        race_take(record, me, load64(context + Context.WARPS), race_clock(shared, Race.GONE_ON), rank)
    elif load64(me + Race.FENCED) & 2:
        race_learn(record, race_clock(shared, Race.MEETING), race_fenced(record, me), rank)
    return 0


def race_go_on(cluster: int) -> int:
    """The barrier of the cluster is complete: those that arrive from now on are not waited for."""
    record = load64(load64(cluster + Cluster.PEERS) + Cta.RACES)
    if record:
        size = load64(record + Race.CLOCK_BYTES)
        copy(race_clock(record, Race.GONE_ON), race_clock(record, Race.MEETING), size)
    return 0


def races_settle(context: int, cta: int) -> int:
    """Threads have met at a barrier that Python keeps."""
    record = load64(cta + Cta.RACES)
    if record:
        race_all(record, load64(context + Context.WARPS))
    return 0


def race_fenced(record: int, me: int) -> int:
    """The clock of a warp at its last fence."""
    return me + Race.CLOCK + load64(record + Race.CLOCK_BYTES)


def race_acquire(context: int, cta: int, record: int, me: int, narrow: int) -> int:
    """A warp acquires what flags have released; ``narrow``: in its CTA."""
    warps = load64(context + Context.WARPS)
    race_take(record, me, warps, race_clock(record, Race.EVERYTHING), 0)
    if narrow == 0 and load64(record + Race.STEP) > 1:
        clock = race_clock(race_shared(cta), Race.EVERYWHERE)
        race_take(record, me, warps, clock, load64(record + Race.RANK))
    return 0


def race_fence(context: int, cta: int, state: int, narrow: int) -> int:
    """``fence`` and ``membar``: what came before is released by the flags that follow; what flags said before is acquired. ``narrow``:
    their scope is the CTA."""
    record = load64(cta + Cta.RACES)
    if record == 0:
        return 0
    me = race_me(record, load32(state + State.INDEX))
    if load64(me + Race.READ):
        race_acquire(context, cta, record, me, narrow)
    if narrow == 0 and load64(context + Context.RACE_SEGMENTS):
        race_far_fence(context, record, me)
    race_send(record, me, race_fenced(record, me), 0)
    store64(me + Race.FENCED, load64(me + Race.FENCED) | (3 - 2 * narrow))
    return 0


def race_flag(context: int, site: int, how: int) -> int:
    """An atomic, or a load or store that is ``volatile``, ``relaxed`` or stronger. ``how``: 4 writes, 8 reads."""
    me = load64(context + Context.RACE_WARP)
    if me == 0:
        return 0
    record = load64(me + Race.RECORD)
    cta = load64(record + Race.CTA)
    flags = load8(load64(context + Context.RACE_SITES) + site)
    narrow = flags & Race.NARROW
    far = 0
    if narrow == 0 and load64(record + Race.STEP) > 1:
        far = race_clock(race_shared(cta), Race.EVERYWHERE)
    if how & 4:
        if flags & Race.RELEASES:
            race_send(record, me, race_clock(record, Race.EVERYTHING), 0)
            if far:
                race_send(record, me, far, load64(record + Race.RANK))
        elif load64(me + Race.FENCED):
            race_learn(record, race_clock(record, Race.EVERYTHING), race_fenced(record, me), 0)
            if far and load64(me + Race.FENCED) & 2:
                race_learn(record, far, race_fenced(record, me), load64(record + Race.RANK))
    if how & 8:
        store64(me + Race.READ, 1)
        if flags & Race.ACQUIRES:
            race_acquire(context, cta, record, me, narrow)
    if narrow == 0 and load64(context + Context.RACE_SEGMENTS):
        race_far_flag(context, record, me, flags, how)
    return 0


def race_begin_far(record: int, warps: int) -> int:
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


def race_far_fence(context: int, record: int, me: int) -> int:
    """As ``race_fence``, of what is ordered among CTAs."""
    own = load64(record + Race.SEGMENTS)
    race_informed(context, record, me)
    store32(own + Segments.PENDING, 1)
    store32(own + Segments.FENCES + (load64(me + Race.STAMP) & 31) * 4, load64(me + Race.STAMP))
    return 0


def race_informed(context: int, record: int, me: int) -> int:
    """A warp acquires what had been released to other CTAs when it, or a warp of which it knows that, last read a flag. (A fence after
    the read of another thread is enough where fences are ``fence.sc``, as ``membar`` is.)"""
    own = load64(record + Race.SEGMENTS)
    clock = me + Race.CLOCK + Race.OF_OTHERS * 4
    warp = 0
    while warp < load64(context + Context.WARPS):
        number = load32(own + Segments.READS + warp * 4)
        if number > load32(clock) and race_known(me, load32(own + Segments.READ_AT + warp * 4)):
            store32(clock, number)
        warp += 1
    return 0


def race_published(context: int, record: int, me: int) -> int:
    """A warp writes a flag: what came before its last fence, and before those of warps of which it knows that, is released to other
    CTAs."""
    own = load64(record + Race.SEGMENTS)
    warps = load64(context + Context.WARPS)
    left = 0
    found = 0
    warp = 0
    while warp < warps:
        stamp = load32(own + Segments.FENCES + warp * 4)
        if stamp and race_known(me, stamp):
            store32(own + Segments.FENCES + warp * 4, 0)
            found = 1
            agent = 0
            while agent < load64(record + Race.AGENTS):
                time = load32(race_fenced(record, race_me(record, warp)) + agent * 4)
                if time > load32(own + Segments.RELEASED + agent * 4):
                    store32(own + Segments.RELEASED + agent * 4, time)
                agent += 1
        elif stamp:
            left = 1
        warp += 1
    store32(own + Segments.PENDING, left)
    if found:
        race_numbered(context, record)
    return 0


def race_numbered(context: int, record: int) -> int:
    """Another release to other CTAs."""
    own = load64(record + Race.SEGMENTS)
    number = load64(context + Context.RACE_RELEASES) + 1
    store64(context + Context.RACE_RELEASES, number)
    agent = 0
    while agent < load64(record + Race.AGENTS):
        race_let_go(context, own + agent * 8, load32(own + Segments.RELEASED + agent * 4), number)
        agent += 1
    return 0


def race_far_flag(context: int, record: int, me: int, flags: int, how: int) -> int:
    """As ``race_flag``, of what is ordered among CTAs."""
    own = load64(record + Race.SEGMENTS)
    warp = load64(me + Race.STAMP) & 31
    race_again(context, record)
    if how & 8:
        store32(own + Segments.READS + warp * 4, load64(context + Context.RACE_RELEASES))
        store32(own + Segments.READ_AT + warp * 4, load64(me + Race.STAMP))
        if flags & Race.ACQUIRES:
            race_informed(context, record, me)
    if how & 4 == 0:
        return 0
    if load32(own + Segments.PENDING):
        race_published(context, record, me)
    if flags & Race.RELEASES:
        race_time(record, me)
        race_copied(record, own + Segments.RELEASED, me + Race.CLOCK, 0)
        race_numbered(context, record)
    return 0


def race_let_go(context: int, list_: int, time: int, number: int) -> int:
    """Segments of an agent up to a time have been released."""
    table = load64(context + Context.RACE_SEGMENTS)
    segment = load32(list_)
    while segment and load32(table + segment * Segment.BYTES + Segment.STAMP) >> 8 <= time:
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
        race_let_go(context, own + agent * 8, Race.EVER, 1)
        agent += 1
    fill(own, 0, Segments.BYTES)
    return 0


def race_segment(context: int, cta: int, record: int, stamp: int) -> int:
    """The segment of accesses that have a stamp; 0: there is no room for it."""
    table = load64(context + Context.RACE_SEGMENTS)
    race_again(context, record)
    list_ = load64(record + Race.SEGMENTS) + (stamp & 127) * 8
    last = load32(list_ + 4)
    if last and load32(table + last * Segment.BYTES + Segment.STAMP) == stamp:
        return last
    number = load64(context + Context.RACE_SEGMENT_COUNT) + 1
    if number >= Segment.MOST:
        return 0
    store64(context + Context.RACE_SEGMENT_COUNT, number)
    place = table + number * Segment.BYTES
    store32(place + Segment.CTA, load64(cta + Cta.INDEX))
    store32(place + Segment.STAMP, stamp)
    store32(place + Segment.RELEASED, 0)
    store32(place + Segment.NEXT, 0)
    if load32(list_):
        store32(table + last * Segment.BYTES + Segment.NEXT, number)
    else:
        store32(list_, number)
    store32(list_ + 4, number)
    return number


def race_groups(context: int, cta: int, state: int, kind: int, left: int) -> int:
    """``cp.async.commit_group`` (kind 0), ``wait_group`` for all groups but the last ``left`` ones (1), ``wait_all`` (2)."""
    record = load64(cta + Cta.RACES)
    if record == 0:
        return 0
    warp = load32(state + State.INDEX)
    me = race_me(record, warp)
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


def race_copies(context: int) -> int:
    """What follows is done by the ``cp.async`` of the running warp, until ``RACE_AGENT`` is 0 again."""
    me = load64(context + Context.RACE_WARP)
    if me == 0:
        return 0
    record = load64(me + Race.RECORD)
    warp = load64(me + Race.STAMP) & 31
    race_more(record)
    if load64(me + Race.COPIES) == 0:
        store64(me + Race.COPIES, race_tick(record))
    stamp = (Race.ASYNCHRONOUS | load64(me + Race.COPIES)) << 8 | (Race.OF_COPIES + warp)
    store64(context + Context.RACE_AGENT, load64(record + Race.RANK) << 32 | stamp)
    return 0


def race_source(context: int) -> int:
    """What follows is read by a bulk or tensor copy of the open group of the running warp, until ``RACE_AGENT`` is 0 again."""
    me = load64(context + Context.RACE_WARP)
    if me == 0:
        return 0
    record = load64(me + Race.RECORD)
    race_more(record)
    if load64(me + Race.BULK) == 0:
        store64(me + Race.BULK, race_tick(record))
    agent = Race.OF_COPIES + (load64(me + Race.STAMP) & 31)
    stamp = (Race.ASYNCHRONOUS | load64(me + Race.BULK)) << 8 | agent
    store64(context + Context.RACE_AGENT, load64(record + Race.RANK) << 32 | stamp)
    return 0


def race_bulk_groups(cta: int, state: int, waits: int, left: int) -> int:
    """``cp.async.bulk.commit_group``, or (``waits``) ``wait_group`` for all groups but the last ``left`` ones: these have read
    their sources, with ``.read`` and without. Groups of all threads of a warp are counted together: a wait is for no less than it
    says."""
    record = load64(cta + Cta.RACES)
    if record == 0:
        return 0
    warp = load32(state + State.INDEX)
    me = race_me(record, warp)
    count = load64(me + Race.BULK_GROUPS)
    if waits == 0:
        time = load64(me + Race.BULK)
        if time == 0 and count:
            time = load64(me + Race.BULK_RING + ((count - 1) % Race.RING_SIZE) * 8)
        store64(me + Race.BULK_RING + (count % Race.RING_SIZE) * 8, time)
        store64(me + Race.BULK_GROUPS, count + 1)
        store64(me + Race.BULK, 0)
        return 0
    if left >= count or left >= Race.RING_SIZE:
        return 0
    time = load64(me + Race.BULK_RING + ((count - left - 1) % Race.RING_SIZE) * 8)
    if time and load32(me + Race.CLOCK + (Race.OF_COPIES + warp) * 4) < (Race.ASYNCHRONOUS | time):
        store32(me + Race.CLOCK + (Race.OF_COPIES + warp) * 4, Race.ASYNCHRONOUS | time)
    return 0


def race_products(context: int) -> int:
    """What follows is done by the ``wgmma`` of the running warp, until ``RACE_AGENT`` is 0 again."""
    me = load64(context + Context.RACE_WARP)
    if me == 0:
        return 0
    record = load64(me + Race.RECORD)
    warp = load64(me + Race.STAMP) & 31
    race_more(record)
    if load64(me + Race.PRODUCTS) == 0:
        store64(me + Race.PRODUCTS, race_tick(record))
    stamp = (Race.ASYNCHRONOUS | load64(me + Race.PRODUCTS)) << 8 | (Race.OF_PRODUCTS + warp)
    store64(context + Context.RACE_AGENT, load64(record + Race.RANK) << 32 | stamp)
    return 0


def race_committed(cta: int, state: int) -> int:
    """``wgmma.commit_group``, whose groups ``State.COMMITS`` counts."""
    record = load64(cta + Cta.RACES)
    if record == 0:
        return 0
    me = race_me(record, load32(state + State.INDEX))
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
    me = race_me(record, warp)
    other = warp & -4
    while other < load64(context + Context.WARPS) and other < (warp | 3) + 1:
        ring = race_me(record, other) + Race.PRODUCTS_RING
        time = load64(ring + ((wanted - 1) % Race.RING_SIZE) * 8)
        if time:
            time = time | Race.ASYNCHRONOUS
            if load32(me + Race.CLOCK + (Race.OF_PRODUCTS + other) * 4) < time:
                store32(me + Race.CLOCK + (Race.OF_PRODUCTS + other) * 4, time)
        other += 1
    return race_proxy(cta, state)


def race_mbarrier(record: int, address: int) -> int:
    """The record of an mbarrier of the CTA; beyond ``MOST_MBARRIERS`` the last one is shared."""
    slot = 0
    count = load64(record + Race.SLOTS)
    while slot < count:
        found = load64(record + Race.MBARRIERS) + slot * load64(record + Race.MBARRIER)
        if load64(found) == address:
            return found
        slot += 1
    if count < Race.MOST_MBARRIERS:
        store64(record + Race.SLOTS, count + 1)
        found = load64(record + Race.MBARRIERS) + count * load64(record + Race.MBARRIER)
        store64(found, address)
        # what an earlier CTA had acquired of others is not known to this one
        store32(found + Race.ARRIVING + Race.OF_OTHERS * 4, 0)
        store32(race_done(record, found) + Race.OF_OTHERS * 4, 0)
    return found


def race_done(record: int, found: int) -> int:
    """The clock of the completed phases of an mbarrier."""
    return found + Race.ARRIVING + load64(record + Race.CLOCK_BYTES)


def race_bulk(context: int, cta: int, address: int) -> int:
    """What follows is done by a bulk or tensor copy that tells the mbarrier at an address, as ``reach`` takes it, until
    ``RACE_AGENT`` is 0 again."""
    cluster = load64(cta + Cta.CLUSTER)
    if load64(cta + Cta.RACES) == 0 or address >> 32:
        return 0
    if cluster:
        address = (address + load64(cta + Cta.WINDOW)) & 4294967295
        if not unsigned_less(address >> 24, load64(cluster + Cluster.SIZE)):
            return 0
        cta = load64(cluster + Cluster.PEERS + (address >> 24) * 8)
        address = address & 16777215
    record = load64(cta + Cta.RACES)
    race_more(record)
    found = race_mbarrier(record, address)
    agent = Race.OF_MBARRIERS + (found - load64(record + Race.MBARRIERS)) // load64(record + Race.MBARRIER)
    time = Race.ASYNCHRONOUS | race_tick(record)
    store32(found + Race.ARRIVING + agent * 4, time)
    store64(context + Context.RACE_AGENT, load64(record + Race.RANK) << 32 | time << 8 | agent)
    return 0


def race_told(context: int, cta: int, address: int, copies: int, completes: int) -> int:
    """The running warp arrives at an mbarrier of a CTA, or tells it of bytes; ``copies``: when its ``cp.async`` are complete. An
    implicit proxy fence follows a copy that is complete (``completes``)."""
    theirs = load64(cta + Cta.RACES)
    if theirs == 0:
        return 0
    me = load64(context + Context.RACE_WARP)
    record = load64(me + Race.RECORD)
    turn = load64(record + Race.RANK) ^ load64(theirs + Race.RANK)
    clock = race_mbarrier(theirs, address) + Race.ARRIVING
    if load64(context + Context.RACE_TOLD) == clock:
        return 0
    store64(context + Context.RACE_TOLD, clock)
    race_send(record, me, clock, turn)
    twin = load64(record + Race.TWIN)
    if twin and completes:
        race_copied(record, clock + twin, me + Race.CLOCK, turn)
    if copies and load64(me + Race.COPIES):
        agent = turn << 8 | Race.OF_COPIES | (load64(me + Race.STAMP) & 127)
        store32(clock + agent * 4, (Race.ASYNCHRONOUS | load64(me + Race.COPIES)) ^ turn)
        store64(me + Race.COPIES, race_tick(record))
    return 0


def race_phase(cta: int, address: int) -> int:
    """A phase of an mbarrier is complete."""
    record = load64(cta + Cta.RACES)
    if record == 0:
        return 0
    found = race_mbarrier(record, address)
    size = load64(record + Race.CLOCK_BYTES)
    if load64(record + Race.STEP) == 1 and load64(record + Race.TWIN) == 0:
        size = load64(record + Race.AGENTS) * 4
    copy(race_done(record, found), found + Race.ARRIVING, size)
    return 0


def race_waited(context: int, cta: int, address: int) -> int:
    """The running warp has found a phase of an mbarrier of a CTA complete."""
    theirs = load64(cta + Cta.RACES)
    if theirs == 0:
        return 0
    me = load64(context + Context.RACE_WARP)
    record = load64(me + Race.RECORD)
    turn = load64(record + Race.RANK) ^ load64(theirs + Race.RANK)
    clock = race_done(theirs, race_mbarrier(theirs, address))
    return race_take(record, me, load64(context + Context.WARPS), clock, turn)


def race_known(me: int, stamp: int) -> int:
    """Whether what has a stamp comes before what the warp does now."""
    turn = load64(me + Race.TURN)
    if turn:
        # the stamp is one in the memory of another CTA
        stamp = stamp ^ turn << 8
        if stamp & 127 < 32:
            stamp = stamp | Race.ASYNCHRONOUS << 8
            if stamp & load64(me + Race.MASK) < 32:
                stamp = stamp ^ Race.ASYNCHRONOUS << 8
    agent = stamp & load64(me + Race.MASK)
    if stamp < load64(me + Race.BASE) or agent == load64(me + Race.STAMP) & 127:
        return 1
    return load32(me + Race.CLOCK + agent * 4) >= stamp >> 8


def race_found(context: int, cta: int, before: int, after: int, place: int, kind: int) -> int:
    """Note two accesses of the shared memory of a CTA."""
    number = load64(cta + Cta.INDEX)
    cluster = load64(cta + Cta.CLUSTER)
    if cluster == 0:
        return race_noted(context, number, number, before, after, place, kind)
    rank = load64(cta + Cta.RANK)
    first = load64(cluster + Cluster.PEERS + (rank ^ before >> 28) * 8)
    second = load64(cluster + Cluster.PEERS + (rank ^ after >> 28) * 8)
    place = place | (number + 1) << 32
    before = before & Race.BEHIND
    after = after & Race.BEHIND
    return race_noted(
        context, load64(first + Cta.INDEX), load64(second + Cta.INDEX), before, after, place, kind
    )


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
