"""Runtime of generated code: CTAs, warps and time slices, and barriers of the common kind.

Written in the subset of ``compile_python`` and compiled, never run as Python.
"""

from __future__ import annotations

from ..ir.abi import EXIT_CODE, UNWRITTEN, Barrier, Cluster, Context, Cta, State, Status, Wait
from .cluster import place_in_cluster
from .compile_python import bits_count, call, fill, load32, load64, store32, store64, trailing_zeros
from .races import race_arrive, race_begin, race_cluster, race_go_on, race_me, race_meet
from .stack_entries import settle


def begin(context: int, cta: int, index: int) -> int:
    """Make a CTA ready: clean shared memory, all warps at the entry."""
    wide = load32(context + Context.NCTAID)
    tall = load32(context + Context.NCTAID + 4)
    store64(cta + Cta.INDEX, index)
    store64(cta + Cta.X, index % wide)
    store64(cta + Cta.Y, index // wide % tall)
    store64(cta + Cta.Z, index // (wide * tall))
    if load64(context + Context.CLUSTER_CTAS):
        place_in_cluster(context, cta, index)
    shared = load64(cta + Cta.SHARED)
    size = load64(context + Context.SHARED_BYTES)
    if load64(context + Context.WATCH) == 2:
        place = 0
        while place < size:
            store64(shared + place, UNWRITTEN | UNWRITTEN << 32)
            place += 8
    else:
        fill(shared, 0, size)
    if load64(cta + Cta.SHARED_SHADOW) and load64(cta + Cta.MARKED):
        fill(shared + load64(cta + Cta.SHARED_SHADOW), 0, size)
        store64(cta + Cta.MARKED, 0)
    if load64(cta + Cta.ACTIVE):
        fill(cta + Cta.BARRIERS, 0, 16 * Barrier.BYTES)
        store64(cta + Cta.ACTIVE, 0)
    warps = load64(context + Context.WARPS)
    size = load64(context + Context.STATE_BYTES)
    local = load64(context + Context.LOCAL_BYTES) * warps * 32
    if local:
        fill(load64(cta + Cta.LOCAL), 0, local)
        if load64(cta + Cta.LOCAL_SHADOW):
            fill(load64(cta + Cta.LOCAL) + load64(cta + Cta.LOCAL_SHADOW), 0, local)
    store64(cta + Cta.LIVE_WARPS, warps)
    race_begin(context, cta)
    state = load64(cta + Cta.STATES)
    warp = 0
    while warp < warps:
        fill(state, 0, State.STACK)
        lanes = 4294967295
        if warp == warps - 1:
            lanes = load64(context + Context.LAST_LANES)
        store32(state + State.MASK, lanes)
        store32(state + State.LIVE, lanes)
        store32(state + State.INDEX, warp)
        store32(state + State.ID, EXIT_CODE)
        fill(state + load64(context + Context.ZERO_START), 0, load64(context + Context.ZERO_BYTES))
        parameters = load64(context + Context.PARAMETERS)
        fill(state + parameters, 0, size - parameters)
        state += size
        warp += 1
    return 0


def release(context: int, cta: int, number: int) -> int:
    """Let the warps that wait at a barrier go on, if all that it waits for have arrived."""
    barrier = cta + Cta.BARRIERS + number * Barrier.BYTES
    expected = load64(barrier + Barrier.EXPECTED)
    if expected == 0:
        expected = load64(cta + Cta.LIVE_WARPS)
    arrived = load64(barrier + Barrier.ARRIVED)
    if arrived == 0 or arrived < expected:
        return 0
    race_meet(context, cta, number)
    state = load64(cta + Cta.STATES)
    warps = load64(context + Context.WARPS)
    while warps:
        if load32(state + State.WAIT) == Wait.BARRIER and load32(state + State.BARRIER_ID) == number:
            store32(state + State.WAIT, Wait.RUNNABLE)
            store32(state + State.BARRIER_ALL, load64(barrier + Barrier.ALL) == 0)
            store32(state + State.BARRIER_ANY, load64(barrier + Barrier.ANY) != 0)
            store32(state + State.BARRIER_COUNT, load64(barrier + Barrier.COUNT))
        state += load64(context + Context.STATE_BYTES)
        warps -= 1
    fill(barrier, 0, Barrier.BYTES)
    store64(cta + Cta.ACTIVE, load64(cta + Cta.ACTIVE) & ~(1 << number))
    store64(context + Context.PASSED, load64(context + Context.PASSED) + 1)
    return 1


def arrive(context: int, cta: int, state: int) -> int:
    """A warp at a barrier: note its arrival and predicate; it waits unless it only announces itself."""
    if load32(state + State.BARRIER_KIND) >= 3:
        return at_cluster(context, load64(cta + Cta.CLUSTER), state)
    number = load32(state + State.BARRIER_ID)
    barrier = cta + Cta.BARRIERS + number * Barrier.BYTES
    if load32(state + State.BARRIER_KIND) != 1:
        store32(state + State.WAIT, Wait.BARRIER)
    else:
        race_arrive(context, cta, state, number)
    store64(cta + Cta.ACTIVE, load64(cta + Cta.ACTIVE) | 1 << number)
    store64(barrier + Barrier.ARRIVED, load64(barrier + Barrier.ARRIVED) + 1)
    store64(barrier + Barrier.EXPECTED, load32(state + State.BARRIER_WARPS))
    holds = load32(state + State.BARRIER_LANES)
    missing = load32(state + State.LIVE) & ~holds & 4294967295
    store64(barrier + Barrier.ALL, load64(barrier + Barrier.ALL) + bits_count(missing))
    store64(barrier + Barrier.ANY, load64(barrier + Barrier.ANY) + bits_count(holds))
    store64(barrier + Barrier.COUNT, load64(barrier + Barrier.COUNT) + bits_count(holds))
    return release(context, cta, number)


def at_cluster(context: int, cluster: int, state: int) -> int:
    """A warp at the barrier of the cluster: it arrives, or waits unless the barrier at which it arrived is complete."""
    cta = load64(context + Context.CTA)
    kind = load32(state + State.BARRIER_KIND)
    if kind != 4:
        race_cluster(context, cta, state, kind)
        store32(state + State.CLUSTER, 1)
        store64(cluster + Cluster.ARRIVED, load64(cluster + Cluster.ARRIVED) + 1)
        return release_cluster(context, cluster)
    if load32(state + State.CLUSTER) == 1:
        store32(state + State.WAIT, Wait.CLUSTER)
    else:
        race_cluster(context, cta, state, 4)
        store32(state + State.CLUSTER, 0)
    return 0


def release_cluster(context: int, cluster: int) -> int:
    """Let the warps that wait at the barrier of the cluster go on, if all have arrived; the others will find it complete."""
    arrived = load64(cluster + Cluster.ARRIVED)
    if arrived == 0 or arrived < load64(cluster + Cluster.LIVE):
        return 0
    race_go_on(cluster)
    rank = 0
    while rank < load64(cluster + Cluster.SIZE):
        cta = load64(cluster + Cluster.PEERS + rank * 8)
        state = load64(cta + Cta.STATES)
        warps = load64(context + Context.WARPS)
        while warps:
            if load32(state + State.CLUSTER) == 1:
                store32(state + State.CLUSTER, 2)
            if load32(state + State.WAIT) == Wait.CLUSTER:
                race_cluster(context, cta, state, 4)
                store32(state + State.WAIT, Wait.RUNNABLE)
                store32(state + State.CLUSTER, 0)
            state += load64(context + Context.STATE_BYTES)
            warps -= 1
        rank += 1
    store64(cluster + Cluster.ARRIVED, 0)
    store64(context + Context.PASSED, load64(context + Context.PASSED) + 1)
    return 1


def ended(context: int, cta: int, state: int) -> int:
    """A warp has ended: barriers that wait for all warps wait for one less."""
    cluster = load64(cta + Cta.CLUSTER)
    if cluster:
        if load32(state + State.CLUSTER) == 1:
            store64(cluster + Cluster.ARRIVED, load64(cluster + Cluster.ARRIVED) - 1)
        store32(state + State.CLUSTER, 0)
        store64(cluster + Cluster.LIVE, load64(cluster + Cluster.LIVE) - 1)
        release_cluster(context, cluster)
    store64(cta + Cta.LIVE_WARPS, load64(cta + Cta.LIVE_WARPS) - 1)
    waiting = load64(cta + Cta.ACTIVE) & 65535
    while waiting:
        release(context, cta, trailing_zeros(waiting))
        waiting = waiting & (waiting - 1)
    return 0


def warpgroup_complete(context: int, state: int, field: int) -> int:
    """Whether the other warps of its warpgroup have come to what a warp waits for: by that field of their states."""
    index = load32(state + State.INDEX)
    size = load64(context + Context.STATE_BYTES)
    wanted = load32(state + State.WANTED)
    other = index & 4294967292
    last = other + 4
    if last > load64(context + Context.WARPS):
        last = load64(context + Context.WARPS)
    state += (other - index) * size
    while other < last:
        if load32(state + field) < wanted:
            return 0
        state += size
        other += 1
    return 1


def visit(context: int, cta: int) -> int:
    """Give every warp of the CTA a time slice, and run them until each has ended, waits, or has used it up."""
    warps = load64(context + Context.WARPS)
    state = load64(cta + Cta.STATES)
    while warps:
        if load32(state + State.WAIT) == Wait.SLICE_OVER:
            store32(state + State.WAIT, Wait.RUNNABLE)
        store32(state + State.QUANTUM, load64(context + Context.QUANTUM) >> load32(state + State.SLICE_SHIFT))
        state += load64(context + Context.STATE_BYTES)
        warps -= 1
    store64(cta + Cta.POSITION, 0)
    store64(cta + Cta.RAN, 0)
    return proceed(context, cta)


def proceed(context: int, cta: int) -> int:
    """Go on with a visit: through the warps in index order, again and again. Stops where a warp needs Python; that warp comes next."""
    warps = load64(context + Context.WARPS)
    size = load64(context + Context.STATE_BYTES)
    code = load64(context + Context.WARP_CODE)
    first = load64(cta + Cta.STATES)
    warp = load64(cta + Cta.POSITION)
    ran = load64(cta + Cta.RAN)
    store64(context + Context.CTA, cta)
    store64(context + Context.RACE_WARP, 0)
    races = load64(cta + Cta.RACES)
    while warp < warps or ran:
        if warp >= warps:
            warp = 0
            ran = 0
        state = first + warp * size
        wait = load32(state + State.WAIT)
        if wait == Wait.SUSPENDED and load32(state + State.SEEN) != load64(cta + Cta.PHASES) & 4294967295:
            store32(state + State.WAIT, Wait.RUNNABLE)
            wait = Wait.RUNNABLE
        came = wait == Wait.WARPGROUP and warpgroup_complete(context, state, State.COMMITS)
        if came or (wait == Wait.GATHERS and warpgroup_complete(context, state, State.FENCES)):
            store32(state + State.WAIT, Wait.RUNNABLE)
            wait = Wait.RUNNABLE
        if wait == Wait.RUNNABLE:
            ran = 1
            store64(context + Context.STATE, state)
            if races:
                store64(context + Context.RACE_WARP, race_me(races, warp))
            status = call(code, context, cta, state)
            if status == Status.EVENT:
                found = settle(context, cta, state)
                if found == 0:
                    continue
                status = Status.SLICE_OVER
                if found != 1:
                    status = found - 8
            over = load64(state + State.STEPS) > load64(context + Context.BUDGET)
            if over and (
                status <= Status.SLICE_OVER or status == Status.SUSPENDED or status >= Status.GATHERS
            ):
                store64(cta + Cta.POSITION, warp)
                store64(cta + Cta.RAN, 1)
                return Status.SLICE_OVER + 8
            if status == Status.DONE:
                store32(state + State.WAIT, Wait.DONE)
                ended(context, cta, state)
            elif status == Status.BARRIER:
                arrive(context, cta, state)
            elif status == Status.SLICE_OVER:
                store32(state + State.WAIT, Wait.SLICE_OVER)
            elif status == Status.SUSPENDED:
                store32(state + State.WAIT, Wait.SUSPENDED)
                store32(state + State.SEEN, load64(cta + Cta.PHASES))
            elif status == Status.WARPGROUP:
                store32(state + State.WAIT, Wait.WARPGROUP)
            elif status == Status.GATHERS:
                store32(state + State.WAIT, Wait.GATHERS)
            else:
                store64(cta + Cta.POSITION, warp)
                store64(cta + Cta.RAN, 1)
                return status + 8
            if load64(cta + Cta.ACTIVE) >> 16:
                store64(cta + Cta.POSITION, warp + 1)
                store64(cta + Cta.RAN, 1)
                return Status.DONE + 8
        warp += 1
    if load64(cta + Cta.LIVE_WARPS) == 0:
        return Status.DONE
    warp = 0
    found = Status.BLOCKED
    while warp < warps:
        wait = load32(first + warp * size + State.WAIT)
        if wait == Wait.SLICE_OVER:
            return Status.SLICE_OVER
        if wait == Wait.SUSPENDED or wait == Wait.GATHERS:
            found = Status.SUSPENDED
        warp += 1
    return found


def expire(context: int, cta: int) -> int:
    """Waits on mbarriers, and at fences for a warpgroup, give up; whether there were any."""
    warps = load64(context + Context.WARPS)
    state = load64(cta + Cta.STATES)
    found = 0
    while warps:
        wait = load32(state + State.WAIT)
        if wait == Wait.SUSPENDED or wait == Wait.GATHERS:
            store32(state + State.WAIT, Wait.RUNNABLE)
            store32(state + State.EXPIRED, 1)
            found = 1
        state += load64(context + Context.STATE_BYTES)
        warps -= 1
    return found


def run(context: int, cta: int, first: int, last: int) -> int:
    """CTAs ``first … last − 1``, one after the other, as long as each ends in one visit; gives status + 16 · next index."""
    while first < last:
        begin(context, cta, first)
        status = visit(context, cta)
        if status != Status.DONE:
            return status + 16 * first
        first += 1
    return Status.DONE + 16 * first
