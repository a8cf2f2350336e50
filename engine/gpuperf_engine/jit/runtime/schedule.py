"""Runtime of generated code: CTAs, warps and time slices, and barriers of the common kind.

Written in the subset of ``compile_python`` and compiled, never run as Python.
"""

from __future__ import annotations

from ..ir.abi import UNWRITTEN, Barrier, Cluster, Context, Cta, State
from ..ir.codes import EXIT_CODE, Event, Status, Wait
from ..ir.race_records import RaceWarp
from .cluster import place_in_cluster
from .diverged_barriers import arrive_diverged, arrive_lanes, release_lanes
from .intrinsics import bits_count, call, fill, load32, store64, trailing_zeros
from .races.barriers import race_arrive, race_barrier, race_begin, race_cluster, race_complete_cluster
from .races.clocks import race_me
from .waiting_paths import settle


def begin(context: Context, cta: Cta, index: int) -> int:
    """Initialise a CTA: unwritten shared memory, all warps at the entry."""
    wide = context.NCTAID[0]
    tall = context.NCTAID[1]
    cta.INDEX = index
    cta.X = index % wide
    cta.Y = index // wide % tall
    cta.Z = index // (wide * tall)
    if context.CLUSTER_CTAS:
        place_in_cluster(context, cta, index)
    shared = cta.SHARED
    size = context.SHARED_BYTES
    if context.WATCH == 2:
        offset = 0
        while offset < size:
            store64(shared + offset, UNWRITTEN | UNWRITTEN << 32)
            offset += 8
    else:
        fill(shared, 0, size)
    if cta.SHARED_SHADOW and cta.MARKED:
        fill(shared + cta.SHARED_SHADOW, 0, size)
        cta.MARKED = 0
    if cta.ACTIVE:
        fill(cta + Cta.BARRIERS, 0, 16 * Barrier.BYTES)
        fill(cta + Cta.LANES, 0, Cta.LANES_BYTES)
        cta.ACTIVE = 0
    warps = context.WARPS
    size = context.STATE_BYTES
    local = context.LOCAL_BYTES * warps * 32
    if local:
        fill(cta.LOCAL, 0, local)
        if cta.LOCAL_SHADOW:
            fill(cta.LOCAL + cta.LOCAL_SHADOW, 0, local)
    cta.LIVE_WARPS = warps
    if cta.TENSOR:
        cta.TENSOR_UNITS = 0
        cta.TENSOR_CLOSED = 0
        fill(cta + Cta.TENSOR_SIZES, 0, 16)
    race_begin(context, cta)
    state = cta.STATES
    warp = 0
    while warp < warps:
        fill(state, 0, State.STACK)
        lanes = 4294967295
        if warp == warps - 1:
            lanes = context.LAST_LANES
        state.MASK = lanes
        state.LIVE = lanes
        state.INDEX = warp
        state.ID = EXIT_CODE
        fill(state + context.ZERO_START, 0, context.ZERO_BYTES)
        parameters = context.PARAMETERS
        fill(state + parameters, 0, size - parameters)
        state = State(state + size)
        warp += 1
    return 0


def release(context: Context, cta: Cta, number: int) -> int:
    """Release the warps that wait at a barrier, if all expected warps have arrived."""
    barrier = Barrier(cta + Cta.BARRIERS + number * Barrier.BYTES)
    expected = barrier.EXPECTED
    if expected == 0:
        expected = cta.LIVE_WARPS
    arrived = barrier.ARRIVED
    if arrived == 0 or arrived < expected:
        return 0
    race_barrier(context, cta, number)
    state = cta.STATES
    warps = context.WARPS
    while warps:
        if state.WAIT == Wait.BARRIER and state.BARRIER_ID == number:
            state.WAIT = Wait.RUNNABLE
            state.BARRIER_ALL = barrier.ALL == 0
            state.BARRIER_ANY = barrier.ANY != 0
            state.BARRIER_COUNT = barrier.COUNT
        state = State(state + context.STATE_BYTES)
        warps -= 1
    fill(barrier, 0, Barrier.BYTES)
    cta.ACTIVE &= ~(1 << number)
    context.PASSED += 1
    return 1


def arrive(context: Context, cta: Cta, state: State) -> int:
    """Record the arrival of a warp at a barrier, with its predicate; the warp waits unless it only arrives (``.arrive``)."""
    if state.BARRIER_KIND >= 3:
        return at_cluster(context, cta.CLUSTER, state)
    number = state.BARRIER_ID
    barrier = Barrier(cta + Cta.BARRIERS + number * Barrier.BYTES)
    if state.BARRIER_KIND != 1:
        state.WAIT = Wait.BARRIER
    else:
        race_arrive(context, cta, state, number)
    cta.ACTIVE |= 1 << number
    barrier.ARRIVED += 1
    barrier.EXPECTED = state.BARRIER_WARPS
    holds = state.BARRIER_LANES
    missing = state.LIVE & ~holds & 4294967295
    barrier.ALL += bits_count(missing)
    barrier.ANY += bits_count(holds)
    barrier.COUNT += bits_count(holds)
    return release(context, cta, number)


def at_cluster(context: Context, cluster: Cluster, state: State) -> int:
    """A warp at the barrier of the cluster: it arrives, or waits unless the barrier at which it arrived is complete."""
    cta = context.CTA
    kind = state.BARRIER_KIND
    if kind != 4:
        race_cluster(context, cta, state, kind)
        state.CLUSTER = 1
        cluster.ARRIVED += 1
        return release_cluster(context, cluster)
    if state.CLUSTER == 1:
        state.WAIT = Wait.CLUSTER
    else:
        race_cluster(context, cta, state, 4)
        state.CLUSTER = 0
    return 0


def release_cluster(context: Context, cluster: Cluster) -> int:
    """If all warps have arrived at the barrier of the cluster, release those that wait; for the others, it is complete."""
    arrived = cluster.ARRIVED
    if arrived == 0 or arrived < cluster.LIVE:
        return 0
    race_complete_cluster(cluster)
    rank = 0
    while rank < cluster.SIZE:
        cta = cluster.PEERS[rank]
        state = cta.STATES
        warps = context.WARPS
        while warps:
            if state.CLUSTER == 1:
                state.CLUSTER = 2
            if state.WAIT == Wait.CLUSTER:
                race_cluster(context, cta, state, 4)
                state.WAIT = Wait.RUNNABLE
                state.CLUSTER = 0
            state = State(state + context.STATE_BYTES)
            warps -= 1
        rank += 1
    cluster.ARRIVED = 0
    context.PASSED += 1
    return 1


def ended(context: Context, cta: Cta, state: State) -> int:
    """Record the end of a warp: barriers of all warps expect one less."""
    cluster = cta.CLUSTER
    if cluster:
        if state.CLUSTER == 1:
            cluster.ARRIVED -= 1
        state.CLUSTER = 0
        cluster.LIVE -= 1
        release_cluster(context, cluster)
    cta.LIVE_WARPS -= 1
    waiting = cta.ACTIVE & 65535
    while waiting:
        release(context, cta, trailing_zeros(waiting))
        waiting = waiting & (waiting - 1)
    return 0


def warpgroup_complete(context: Context, state: State, field: int) -> int:
    """Whether the other warps of the warpgroup have reached the count that the warp waits for, in that field of their states."""
    index = state.INDEX
    size = context.STATE_BYTES
    wanted = state.WANTED
    other = index & 4294967292
    last = other + 4
    if last > context.WARPS:
        last = context.WARPS
    state = State(state + (other - index) * size)
    while other < last:
        if load32(state + field) < wanted:
            return 0
        state = State(state + size)
        other += 1
    return 1


def visit(context: Context, cta: Cta) -> int:
    """Run a scheduling round: every warp of the CTA runs until it ends, waits, or its quantum expires."""
    warps = context.WARPS
    state = cta.STATES
    while warps:
        if state.WAIT == Wait.SLICE_OVER:
            state.WAIT = Wait.RUNNABLE
        state.QUANTUM = context.QUANTUM >> state.SLICE_SHIFT
        state = State(state + context.STATE_BYTES)
        warps -= 1
    cta.POSITION = 0
    cta.RAN = 0
    return proceed(context, cta)


def stopped(context: Context, cta: Cta, state: State, status: int) -> int:
    """Record why a warp stopped; returns 0 if it needs Python."""
    if status == Status.DONE:
        state.WAIT = Wait.DONE
        ended(context, cta, state)
    elif status == Status.BARRIER:
        arrive(context, cta, state)
    elif status == Status.SLICE_OVER:
        state.WAIT = Wait.SLICE_OVER
    elif status == Status.SUSPENDED:
        state.WAIT = Wait.SUSPENDED
        state.SEEN = cta.PHASES
    elif status == Status.WARPGROUP:
        state.WAIT = Wait.WARPGROUP
    elif status == Status.GATHERS:
        state.WAIT = Wait.GATHERS
    elif status != Status.STOPPED:
        return 0
    state.BEGAN = 0
    return 1


def proceed(context: Context, cta: Cta) -> int:
    """Continue a scheduling round: run the warps in index order, repeatedly. Stops if a warp needs Python; that warp is the next
    one."""
    warps = context.WARPS
    size = context.STATE_BYTES
    code = context.WARP_CODE
    first = cta.STATES
    warp = cta.POSITION
    ran = cta.RAN
    context.CTA = cta
    context.RACE_WARP = RaceWarp(0)
    races = cta.RACES
    while 1:
        if warp >= warps:
            if ran == 0:
                settled = arrive_if_blocked(context, cta)
                if settled != 1:
                    return settled
            warp = 0
            ran = 0
        state = State(first + warp * size)
        wait = state.WAIT
        if wait == Wait.SUSPENDED and state.SEEN != cta.PHASES & 4294967295:
            state.WAIT = Wait.RUNNABLE
            wait = Wait.RUNNABLE
        came = wait == Wait.WARPGROUP and warpgroup_complete(context, state, State.COMMITS)
        if came or (wait == Wait.GATHERS and warpgroup_complete(context, state, State.FENCES)):
            state.WAIT = Wait.RUNNABLE
            wait = Wait.RUNNABLE
        if wait == Wait.RUNNABLE:
            ran = 1
            context.STATE = state
            if state.BEGAN == 0:
                state.BEGAN = cta.PHASES + 1
            if races:
                context.RACE_WARP = race_me(races, warp)
            status = call(code, context, cta, state)
            if status == Status.EVENT:
                if state.EVENT == Event.ARRIVES:
                    settled = arrive_lanes(context, cta, state)
                else:
                    settled = settle(context, cta, state)
                if settled == 0:
                    continue
                status = Status.SLICE_OVER
                if settled != 1:
                    status = settled - 8
            over = state.STEPS > context.BUDGET
            if over and (
                status <= Status.SLICE_OVER or status == Status.SUSPENDED or status >= Status.GATHERS
            ):
                cta.POSITION = warp
                cta.RAN = 1
                return Status.SLICE_OVER + 8
            if stopped(context, cta, state, status) == 0:
                cta.POSITION = warp
                cta.RAN = 1
                return status + 8
            if cta.ACTIVE >> 16:
                release_lanes(context, cta)
        warp += 1
    return 0


def arrive_if_blocked(context: Context, cta: Cta) -> int:
    """When no warp of a CTA can run, lanes at aligned barriers arrive without the rest of their warps: returns 1 if there were any,
    else a status of ``proceed``."""
    status = waiting_status(context, cta)
    if status == Status.BLOCKED and context.BY_LANES and any_warp(context, cta, Wait.CLUSTER) == 0:
        some = arrive_diverged(context, cta)
        if some:
            return some
    return status


def any_warp(context: Context, cta: Cta, wait: int) -> int:
    """Whether a warp of a CTA is in that state between time slices."""
    state = cta.STATES
    warps = context.WARPS
    while warps:
        if state.WAIT == wait:
            return 1
        state = State(state + context.STATE_BYTES)
        warps -= 1
    return 0


def waiting_status(context: Context, cta: Cta) -> int:
    """Return the status of a CTA of which no warp can run now."""
    if cta.LIVE_WARPS == 0:
        return Status.DONE
    state = cta.STATES
    warps = context.WARPS
    settled = Status.BLOCKED
    while warps:
        if state.WAIT == Wait.SLICE_OVER:
            return Status.SLICE_OVER
        if state.WAIT == Wait.SUSPENDED or state.WAIT == Wait.GATHERS:
            settled = Status.SUSPENDED
        state = State(state + context.STATE_BYTES)
        warps -= 1
    return settled


def expire(context: Context, cta: Cta) -> int:
    """Expire waits on mbarriers and at fences for a warpgroup; returns whether there were any."""
    warps = context.WARPS
    state = cta.STATES
    expired = 0
    while warps:
        wait = state.WAIT
        if wait == Wait.SUSPENDED or wait == Wait.GATHERS:
            state.WAIT = Wait.RUNNABLE
            state.EXPIRED = 1
            expired = 1
        state = State(state + context.STATE_BYTES)
        warps -= 1
    return expired


def unsettled(context: Context, cta: Cta, state: State) -> int:
    """Placeholder for the functions of waiting paths until these are loaded. Programs with waiting paths load them first, so a call of
    this one is an error, which Python reports."""
    return Status.EVENT + 8


def run(context: Context, cta: Cta, first: int, last: int) -> int:
    """Run CTAs ``first … last − 1``, one after the other, as long as each ends in one round; returns status + 16 · next index."""
    while first < last:
        begin(context, cta, first)
        status = visit(context, cta)
        if status != Status.DONE:
            return status + 16 * first
        first += 1
    return Status.DONE + 16 * first
