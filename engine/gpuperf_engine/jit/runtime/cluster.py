"""Runtime of generated code: clusters of CTAs that run together.

Written in the subset of ``compile_python`` and compiled, never run as Python. A sweep visits each CTA of the cluster that has not
ended, in order of rank.
"""

from __future__ import annotations

from ...isa.rules import Noted
from ..ir.abi import Cluster, Context, Cta, Presence, State, Status, Wait
from .compile_python import load32, load64, store64, unsigned_less
from .races import race_renew, race_together
from .schedule import begin, visit


def place_in_cluster(context: int, cta: int, number: int) -> int:
    """Coordinates of the CTA of that number, and of its cluster: CTAs are numbered cluster by cluster."""
    size = load64(context + Context.CLUSTER_CTAS)
    cluster = number // size
    rank = number % size
    store64(cta + Cta.RANK, rank)
    store64(cta + Cta.WINDOW, rank << 24)
    axis = 0
    while axis < 3:
        clusters = load32(context + Context.CLUSTERS + axis * 4)
        inner = load32(context + Context.CLUSTER_SHAPE + axis * 4)
        store64(cta + Cta.CLUSTERID + axis * 8, cluster % clusters)
        store64(cta + Cta.WITHIN + axis * 8, rank % inner)
        store64(cta + Cta.X + axis * 8, cluster % clusters * inner + rank % inner)
        cluster = cluster // clusters
        rank = rank // inner
        axis += 1
    row = load64(cta + Cta.Y) + load64(cta + Cta.Z) * load32(context + Context.NCTAID + 4)
    store64(cta + Cta.INDEX, load64(cta + Cta.X) + row * load32(context + Context.NCTAID))
    return 0


def breach(context: int, cta: int, rule: int, site: int, lane: int, address: int) -> int:
    """A lane breaks a rule: 1 if that is an error, else it is noted. Of each instruction the first breach in the CTA that comes first
    is kept, whoever runs which CTAs."""
    if (load64(context + Context.STRICT) >> rule) & 1:
        return 1
    table = load64(context + Context.NOTED)
    count = load64(table)
    record = table + 8
    last = record + count * Noted.BYTES
    while record < last:
        if load64(record) == rule and load64(record + 8) == site:
            break
        record += Noted.BYTES
    if record == last:
        if count == Noted.MOST:
            return 0
        store64(table, count + 1)
    elif load64(record + 16) <= load64(cta + Cta.INDEX):
        return 0
    store64(record, rule)
    store64(record + 8, site)
    store64(record + 16, load64(cta + Cta.INDEX))
    store64(record + 24, load32(load64(context + Context.STATE) + State.INDEX))
    store64(record + 32, lane)
    store64(record + 40, address)
    return 0


def cluster_cta(context: int, cta: int, site: int, lane: int, address: int, arrives: int) -> int:
    """The record of the CTA whose shared memory an address of the shared window lies in, if that CTA is one of the same cluster and
    lets it be reached; else 0. ``address`` is that of ``.shared::cluster``: rank and offset; ``arrives``: at an mbarrier."""
    cluster = load64(cta + Cta.CLUSTER)
    rank = (address >> 24) - load64(cta + Cta.RANK)
    if rank == 0:
        return cta
    rank = address >> 24
    if cluster == 0 or not unsigned_less(rank, load64(cluster + Cluster.SIZE)):
        return 0
    peer = load64(cluster + Cluster.PEERS + rank * 8)
    presence = load64(peer + Cta.PRESENCE)
    if presence == Presence.RUNNING:
        return peer
    if presence == Presence.WAITING:
        if breach(context, cta, Noted.NOT_STARTED, site, lane, address):
            return 0
        return peer
    if arrives and breach(context, cta, Noted.ARRIVAL, site, lane, address) == 0:
        return peer
    return 0


def begin_cluster(context: int, cluster: int, number: int) -> int:
    """Make all CTAs of a cluster ready."""
    size = load64(cluster + Cluster.SIZE)
    store64(cluster + Cluster.LEFT, size)
    store64(cluster + Cluster.POSITION, 0)
    store64(cluster + Cluster.LIVE, size * load64(context + Context.WARPS))
    store64(cluster + Cluster.ARRIVED, 0)
    race_renew(context, cluster)
    rank = 0
    while rank < size:
        cta = load64(cluster + Cluster.PEERS + rank * 8)
        store64(cta + Cta.PRESENCE, Presence.WAITING)
        begin(context, cta, number * size + rank)
        rank += 1
    race_together(context, cluster)
    return 0


def any_warp(context: int, cta: int, one: int, other: int) -> int:
    """Whether a warp of a CTA is in one of two states between time slices."""
    state = load64(cta + Cta.STATES)
    warps = load64(context + Context.WARPS)
    while warps:
        if load32(state + State.WAIT) == one or load32(state + State.WAIT) == other:
            return 1
        state += load64(context + Context.STATE_BYTES)
        warps -= 1
    return 0


def visited(context: int, cluster: int, cta: int, status: int) -> int:
    """Note the end of the visit of a CTA; 0 if it has not come to its end, or the CTA can never go on."""
    if status == Status.DONE:
        store64(cta + Cta.PRESENCE, Presence.ENDED)
        store64(cluster + Cluster.LEFT, load64(cluster + Cluster.LEFT) - 1)
        return 1
    if status == Status.SLICE_OVER or status == Status.SUSPENDED:
        return 1
    return status == Status.BLOCKED and any_warp(context, cta, Wait.CLUSTER, Wait.CLUSTER)


def visit_cluster(context: int, cluster: int) -> int:
    """The rest of a sweep: from the CTA at ``POSITION`` on. Stops with the status of a CTA whose visit does not come to its end by
    itself, then the one at ``POSITION``. Else gives DONE, SLICE_OVER, SUSPENDED where only waits on mbarriers are left, or STUCK where
    none of the CTAs can go on."""
    rank = load64(cluster + Cluster.POSITION)
    while rank < load64(cluster + Cluster.SIZE):
        cta = load64(cluster + Cluster.PEERS + rank * 8)
        if load64(cta + Cta.PRESENCE) != Presence.ENDED:
            store64(cta + Cta.PRESENCE, Presence.RUNNING)
            status = visit(context, cta)
            if visited(context, cluster, cta, status) == 0:
                store64(cluster + Cluster.POSITION, rank)
                return status
        rank += 1
    store64(cluster + Cluster.POSITION, 0)
    if load64(cluster + Cluster.LEFT) == 0:
        return Status.DONE
    rank = 0
    found = Status.STUCK
    while rank < load64(cluster + Cluster.SIZE):
        cta = load64(cluster + Cluster.PEERS + rank * 8)
        if load64(cta + Cta.PRESENCE) != Presence.ENDED:
            if any_warp(context, cta, Wait.RUNNABLE, Wait.SLICE_OVER):
                return Status.SLICE_OVER
            if any_warp(context, cta, Wait.SUSPENDED, Wait.GATHERS):
                found = Status.SUSPENDED
        rank += 1
    return found


def run_clusters(context: int, cluster: int, first: int, last: int) -> int:
    """Clusters ``first … last − 1``, one after the other, as long as each comes to its end by sweeps in each of which a CTA ends or a
    barrier completes; gives status + 16 · next number."""
    while first < last:
        begin_cluster(context, cluster, first)
        status = Status.SLICE_OVER
        while status != Status.DONE:
            before = load64(context + Context.PASSED) - load64(cluster + Cluster.LEFT)
            status = visit_cluster(context, cluster)
            same = before == load64(context + Context.PASSED) - load64(cluster + Cluster.LEFT)
            going = status == Status.SLICE_OVER or status == Status.SUSPENDED
            if status != Status.DONE and (not going or same):
                return status + 16 * first
        first += 1
    return Status.DONE + 16 * first
