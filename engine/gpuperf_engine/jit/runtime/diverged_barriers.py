"""Runtime of generated code: barriers of CTAs and clusters at which warps may be diverged.

Written in the subset of ``compile_python`` and compiled, never run as Python. Lanes are counted as ``simt.barriers.Barriers`` and
``simt.clusters.ClusterBarrier`` do; the scheduler checks barriers for completion whenever a warp stops.
"""

from __future__ import annotations

from ...isa.rules import Noted
from ...simt.stack_entries import PENDING, WAIT
from ..ir.abi import Barrier, Cluster, Context, Cta, State
from ..ir.codes import (
    AREA_SHIFT,
    PLACE_SHIFT,
    REFUSED,
    RETURN_CODE,
    TERMINATOR,
    BarrierResult,
    Event,
    Reason,
    Status,
    Wait,
)
from .cluster import breach
from .intrinsics import bits_count, fill, load32, store32, trailing_zeros
from .races.barriers import race_cluster, race_complete_cluster, races_settle
from .stack_entries import choose, entry_at
from .waiting_paths import push_waiting, settle_waits, settled, tell_lanes, waits_for


def arrive_lanes(context: Context, cta: Cta, state: State) -> int:
    """The running path arrives at a barrier; returns a result of ``settle``."""
    # one entry more, at most
    if context.ENTRIES <= state.DEPTH:
        return Status.EVENT + 8
    kind = state.BARRIER_KIND
    lanes = state.MASK
    apart = state.LIVE & ~lanes
    waits = arrive_at(context, cta, state, lanes)
    if waits == REFUSED:
        return Status.EVENT + 8
    if waits == 0:
        if apart:
            return 0
        return Status.STOPPED + 8
    if apart == 0:
        state.WAIT = Wait.BARRIER
        if kind == 4:
            state.WAIT = Wait.CLUSTER
        return Status.STOPPED + 8
    push_waiting(state, state.PC - RETURN_CODE, reason_of(kind))
    tell_lanes(state, lanes, state.BARRIER_ID)
    choose(context, state)
    return settled(state, 0)


def reason_of(kind: int) -> int:
    """Return the ``Reason`` of paths that wait at a barrier of a ``State.BARRIER_KIND``."""
    if kind == 4:
        return Reason.CLUSTER
    return Reason.BARRIER


def arrive_at(context: Context, cta: Cta, state: State, lanes: int) -> int:
    """Lanes of a warp arrive at the barrier in its header. Returns whether they must wait, or ``REFUSED`` with the event set."""
    kind = state.BARRIER_KIND
    if kind < 3:
        count_arrival(cta, state, lanes, state.LIVE & ~lanes)
        return kind != 1
    arrived = state.CLUSTER_ARRIVED
    passed = state.CLUSTER_PASSED
    # after an arrival, a lane must wait before it arrives again, and vice versa
    wrong = lanes & (arrived | passed)
    waits = 0
    if kind == 4:
        wrong = lanes & ~(arrived | passed)
        waits = lanes & arrived
    if wrong:
        state.EVENT = Event.CLUSTER_ORDER
        return REFUSED
    arrive_at_cluster(context, cta, state, kind, lanes)
    return waits


def arrive_diverged(context: Context, cta: Cta) -> int:
    """When nothing of a CTA can continue, lanes at aligned barriers arrive without the rest of their warps. Returns 0 if there are
    none, 1 if they arrived, or a status of ``proceed`` if that is an error."""
    context.CTA = cta
    state = cta.STATES
    warp = 0
    some = 0
    while warp < context.WARPS:
        if state.LIVE and waits_for(state, Reason.ALIGNED):
            context.STATE = state
            some = 1
            if arrive_diverged_warp(context, cta, state):
                cta.POSITION = warp
                cta.RAN = 1
                return Status.EVENT + 8
        state = State(state + context.STATE_BYTES)
        warp += 1
    if cta.ACTIVE >> 16:
        release_lanes(context, cta)
    return some


def arrive_diverged_warp(context: Context, cta: Cta, state: State) -> int:
    """The paths of a warp that wait at aligned barriers arrive; 1 if that is an error."""
    number = 1
    depth = state.DEPTH
    while number <= depth:
        entry = entry_at(state, number)
        lanes = entry.MASK & state.LIVE
        if entry.KIND == WAIT | Reason.ALIGNED << AREA_SHIFT and lanes:
            block = entry.PLACE
            first = trailing_zeros(lanes)
            elsewhere = state.LIVE & ~lanes
            site = -1 - (block << PLACE_SHIFT | TERMINATOR)
            if breach(context, cta, Noted.ALIGNED_BARRIER, site, first, elsewhere << 32 | lanes):
                state.EVENT = Event.ARRIVES_DIVERGED
                state.PC = block
                state.CULPRITS = lanes
                return 1
            word = state.MEMBERS[first]
            state.BARRIER_ID = word & 255
            state.BARRIER_KIND = word >> 8 & 255
            state.BARRIER_WARPS = word >> 16
            state.BARRIER_LANES = state.HOLDS & lanes
            state.HOLDS &= ~lanes
            waits = arrive_at(context, cta, state, lanes)
            if waits == REFUSED:
                state.PC = block
                state.MASK = lanes
                return 1
            if waits:
                entry.KIND = WAIT | reason_of(state.BARRIER_KIND) << AREA_SHIFT
                tell_lanes(state, lanes, state.BARRIER_ID)
            else:
                entry.KIND = PENDING
                entry.PLACE = RETURN_CODE + block
        number += 1
    state.WAITS = waits_for(state, 0)
    if state.MASK == 0:
        choose(context, state)
        if state.MASK:
            state.WAITS = waits_for(state, 0)
            state.WAIT = Wait.RUNNABLE
        elif state.LIVE:
            settled(state, 0)
    return 0


def settle_again(context: Context, cta: Cta, state: State, stops: int) -> int:
    """Continue after Python executed an exchange of the running warp: returns the result of ``settle_waits``, 0 if the warp
    stopped."""
    answer = settle_waits(context, cta, state, stops)
    if answer == Status.STOPPED + 8:
        if cta.ACTIVE >> 16:
            release_lanes(context, cta)
        return 0
    return answer


def count_arrival(cta: Cta, state: State, lanes: int, apart: int) -> int:
    """Lanes arrive at a barrier of the CTA; ``apart``: the other lanes of their warp that have not exited."""
    number = state.BARRIER_ID
    barrier = Barrier(cta + Cta.BARRIERS + number * Barrier.BYTES)
    cell = cta + Cta.LANES + (number * 32 + state.INDEX) * 8
    threads = 32
    if apart:
        together = load32(cell + 4) | lanes
        threads = bits_count(lanes)
        if together == state.LIVE:
            # the lanes that the warp lacks count too
            threads += 32 - bits_count(together)
            together = 0
        store32(cell + 4, together)
    store32(cell, load32(cell) | lanes)
    barrier.ARRIVED += threads
    barrier.EXPECTED = state.BARRIER_WARPS
    holds = state.BARRIER_LANES & lanes
    barrier.ALL += bits_count(lanes & ~holds)
    barrier.COUNT += bits_count(holds)
    cta.ACTIVE |= 65536 << number
    return 0


def arrive_at_cluster(context: Context, cta: Cta, state: State, kind: int, lanes: int) -> int:
    """Lanes arrive at the barrier of the cluster, or come to wait there."""
    if kind != 4:
        race_cluster(context, cta, state, kind)
        state.CLUSTER_ARRIVED |= lanes
        mark_cluster(cta.CLUSTER, 1)
    elif lanes & state.CLUSTER_ARRIVED == 0:
        race_cluster(context, cta, state, 4)
        state.CLUSTER_PASSED &= ~lanes
    return 0


def mark_cluster(cluster: Cluster, arrived: int) -> int:
    """Record in all CTAs of a cluster whether lanes have arrived at its barrier."""
    rank = 0
    while rank < cluster.SIZE:
        cta = cluster.PEERS[rank]
        active = cta.ACTIVE & ~(1 << 32)
        cta.ACTIVE = active | arrived << 32
        rank += 1
    return 0


def release_lanes(context: Context, cta: Cta) -> int:
    """Release the lanes whose barrier is complete."""
    rest = cta.ACTIVE >> 16 & 65535
    while rest:
        number = trailing_zeros(rest)
        rest = rest & (rest - 1)
        if is_complete(context, cta, number):
            release_barrier(context, cta, number)
    if cta.ACTIVE >> 32:
        complete_cluster(context, cta, cta.CLUSTER)
    return 0


def is_complete(context: Context, cta: Cta, number: int) -> int:
    """Whether all threads that a barrier of the CTA expects have arrived."""
    barrier = Barrier(cta + Cta.BARRIERS + number * Barrier.BYTES)
    expected = barrier.EXPECTED
    if expected:
        return barrier.ARRIVED >= 32 * expected
    warp = 0
    state = cta.STATES
    while warp < context.WARPS:
        if state.LIVE & ~load32(cta + Cta.LANES + (number * 32 + warp) * 8):
            return 0
        state = State(state + context.STATE_BYTES)
        warp += 1
    return 1


def release_barrier(context: Context, cta: Cta, number: int) -> int:
    """Complete a barrier of the CTA: reset it and release its lanes."""
    barrier = Barrier(cta + Cta.BARRIERS + number * Barrier.BYTES)
    count = barrier.COUNT
    word = count
    if count:
        word = word | BarrierResult.ANY
    if barrier.ALL == 0:
        word = word | BarrierResult.ALL
    context.PASSED += 1
    races_settle(context, cta)
    state = cta.STATES
    warps = context.WARPS
    while warps:
        mask = state.MASK
        if mask and state.WAIT == Wait.BARRIER:
            if state.BARRIER_ID == number:
                tell_lanes(state, mask, word)
                state.WAIT = Wait.RUNNABLE
        else:
            release_paths(context, state, Reason.BARRIER, number, word)
        state = State(state + context.STATE_BYTES)
        warps -= 1
    fill(barrier, 0, Barrier.BYTES)
    fill(cta + Cta.LANES + number * 256, 0, 256)
    cta.ACTIVE &= ~(65536 << number)
    return 0


def release_paths(context: Context, state: State, reason: int, number: int, word: int) -> int:
    """Make the paths of a warp that wait for a reason at the numbered barrier ready; returns their lanes."""
    depth = state.DEPTH
    released = 0
    while depth:
        entry = entry_at(state, depth)
        lanes = entry.MASK
        if entry.KIND == WAIT | reason << AREA_SHIFT and lanes:
            there = state.MEMBERS[trailing_zeros(lanes)]
            if reason == Reason.CLUSTER or there == number:
                entry.PLACE += RETURN_CODE
                entry.KIND = PENDING
                tell_lanes(state, lanes, word)
                released = released | lanes
        depth -= 1
    state.WAITS = waits_for(state, 0)
    if released and state.MASK == 0:
        choose(context, state)
        wait = state.WAIT
        if state.MASK and (wait == Wait.BARRIER or wait == Wait.CLUSTER or wait == Wait.ALIGNED):
            state.WAIT = Wait.RUNNABLE
    return released


def complete_cluster(context: Context, cta: Cta, cluster: Cluster) -> int:
    """If all lanes have arrived at the barrier of the cluster, release those that wait; for the others, it is complete."""
    if cluster_lacks(context, cluster):
        return 0
    race_complete_cluster(cluster)
    rank = 0
    while rank < cluster.SIZE:
        peer = cluster.PEERS[rank]
        # selecting a path restores registers from the areas of its CTA
        context.CTA = peer
        state = peer.STATES
        warps = context.WARPS
        while warps:
            pass_cluster(context, peer, state)
            state = State(state + context.STATE_BYTES)
            warps -= 1
        rank += 1
    context.CTA = cta
    mark_cluster(cluster, 0)
    context.PASSED += 1
    return 0


def pass_cluster(context: Context, cta: Cta, state: State) -> int:
    """Update a warp after the barrier of the cluster completed."""
    passed = state.CLUSTER_PASSED | state.CLUSTER_ARRIVED
    state.CLUSTER_ARRIVED = 0
    mask = state.MASK
    released = 0
    if mask and state.WAIT == Wait.CLUSTER:
        state.WAIT = Wait.RUNNABLE
        released = mask
    else:
        released = release_paths(context, state, Reason.CLUSTER, 0, 0)
    if released:
        race_cluster(context, cta, state, 4)
    state.CLUSTER_PASSED = passed & ~released
    return 0


def cluster_lacks(context: Context, cluster: Cluster) -> int:
    """Whether some lane that has not exited has not arrived at the barrier of the cluster, or all lanes have exited."""
    lives = 0
    rank = 0
    while rank < cluster.SIZE:
        state = cluster.PEERS[rank].STATES
        warps = context.WARPS
        while warps:
            if state.LIVE & ~state.CLUSTER_ARRIVED:
                return 1
            lives = lives | state.LIVE
            state = State(state + context.STATE_BYTES)
            warps -= 1
        rank += 1
    return lives == 0
