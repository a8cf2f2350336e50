"""Runtime of generated code: the position of a CTA in its cluster, and accesses to shared memory of the others.

Written in the subset of ``compile_python`` and compiled, never run as Python.
"""

from __future__ import annotations

from ...isa.rules import Noted
from ..ir.abi import Breach, Breaches, Context, Cta, Presence
from .intrinsics import unsigned_less


def place_in_cluster(context: Context, cta: Cta, number: int) -> int:
    """Set the coordinates of the CTA of that number, and of its cluster; CTAs are numbered cluster by cluster."""
    size = context.CLUSTER_CTAS
    cluster = number // size
    rank = number % size
    cta.RANK = rank
    cta.WINDOW = rank << 24
    axis = 0
    while axis < 3:
        clusters = context.CLUSTERS[axis]
        inner = context.CLUSTER_SHAPE[axis]
        cta.CLUSTERID[axis] = cluster % clusters
        cta.WITHIN[axis] = rank % inner
        cta.INDICES[axis] = cluster % clusters * inner + rank % inner
        cluster = cluster // clusters
        rank = rank // inner
        axis += 1
    row = cta.Y + cta.Z * context.NCTAID[1]
    cta.INDEX = cta.X + row * context.NCTAID[0]
    return 0


def breach(context: Context, cta: Cta, rule: int, site: int, lane: int, address: int) -> int:
    """Record that a lane breaks a rule; returns 1 if that is an error. Of each instruction, the record is the first breach in the
    lowest CTA, whichever host threads run the CTAs."""
    if (context.STRICT >> rule) & 1:
        return 1
    table = context.NOTED
    count = table.COUNT
    record = Breach(table + Breaches.BYTES)
    last = record + count * Noted.BYTES
    while record < last:
        if record.RULE == rule and record.SITE == site:
            break
        record = Breach(record + Noted.BYTES)
    if record == last:
        if count == Noted.MOST:
            return 0
        table.COUNT = count + 1
    elif record.CTA <= cta.INDEX:
        return 0
    record.RULE = rule
    record.SITE = site
    record.CTA = cta.INDEX
    record.WARP = context.STATE.INDEX
    record.LANE = lane
    record.ADDRESS = address
    return 0


def cluster_cta(context: Context, cta: Cta, site: int, lane: int, address: int, arrives: int) -> Cta:
    """Return the CTA whose shared memory contains an address of the shared window, if it is in the same cluster and may be accessed
    now; else 0. ``address`` is that of ``.shared::cluster``: rank and offset; ``arrives``: the access arrives at an mbarrier."""
    cluster = cta.CLUSTER
    rank = (address >> 24) - cta.RANK
    if rank == 0:
        return cta
    rank = address >> 24
    if cluster == 0 or not unsigned_less(rank, cluster.SIZE):
        return Cta(0)
    peer = cluster.PEERS[rank]
    presence = peer.PRESENCE
    if presence == Presence.RUNNING:
        return peer
    if presence == Presence.WAITING:
        if breach(context, cta, Noted.NOT_STARTED, site, lane, address):
            return Cta(0)
        return peer
    if arrives and breach(context, cta, Noted.ARRIVAL, site, lane, address) == 0:
        return peer
    return Cta(0)
