"""Runtime of generated code: the scheduler of clusters.

Written in the subset of ``compile_python`` and compiled, never run as Python. A sweep runs one scheduling round of each CTA of the
cluster that has not ended, in order of rank.
"""

from __future__ import annotations

from ..ir.abi import Cluster, Context, Cta, Presence
from ..ir.codes import Status, Wait
from .races.barriers import race_begin_cluster, race_renew
from .schedule import any_warp, begin, visit


def begin_cluster(context: Context, cluster: Cluster, number: int) -> int:
    """Initialise all CTAs of a cluster."""
    size = cluster.SIZE
    cluster.NUMBER = number
    cluster.LEFT = size
    cluster.POSITION = 0
    cluster.LIVE = size * context.WARPS
    cluster.ARRIVED = 0
    race_renew(context, cluster)
    rank = 0
    while rank < size:
        cta = cluster.PEERS[rank]
        cta.PRESENCE = Presence.WAITING
        begin(context, cta, number * size + rank)
        rank += 1
    race_begin_cluster(context, cluster)
    return 0


def visited(context: Context, cluster: Cluster, cta: Cta, status: int) -> int:
    """Record the end of a CTA's scheduling round; returns 0 if the round has not ended, or the CTA can never continue."""
    if status == Status.DONE:
        cta.PRESENCE = Presence.ENDED
        cluster.LEFT -= 1
        return 1
    if status == Status.SLICE_OVER or status == Status.SUSPENDED:
        return 1
    return status == Status.BLOCKED and any_warp(context, cta, Wait.CLUSTER)


def visit_cluster(context: Context, cluster: Cluster) -> int:
    """Run the rest of a sweep, from the CTA at ``POSITION``. If the round of a CTA needs Python, stops with its status and the CTA
    at ``POSITION``. Else returns DONE, SLICE_OVER, SUSPENDED if all CTAs wait and some wait on mbarriers, or STUCK if none of the
    CTAs can continue."""
    rank = cluster.POSITION
    while rank < cluster.SIZE:
        cta = cluster.PEERS[rank]
        if cta.PRESENCE != Presence.ENDED:
            cta.PRESENCE = Presence.RUNNING
            status = visit(context, cta)
            if visited(context, cluster, cta, status) == 0:
                cluster.POSITION = rank
                return status
        rank += 1
    cluster.POSITION = 0
    if cluster.LEFT == 0:
        return Status.DONE
    rank = 0
    result = Status.STUCK
    while rank < cluster.SIZE:
        cta = cluster.PEERS[rank]
        if cta.PRESENCE != Presence.ENDED:
            if any_warp(context, cta, Wait.RUNNABLE) or any_warp(context, cta, Wait.SLICE_OVER):
                return Status.SLICE_OVER
            if any_warp(context, cta, Wait.SUSPENDED) or any_warp(context, cta, Wait.GATHERS):
                result = Status.SUSPENDED
        rank += 1
    return result


def run_clusters(context: Context, cluster: Cluster, first: int, last: int) -> int:
    """Run clusters ``first … last − 1``, one after the other, as long as in each sweep a CTA ends or a barrier completes; returns
    status + 16 · next number."""
    while first < last:
        begin_cluster(context, cluster, first)
        status = Status.SLICE_OVER
        while status != Status.DONE:
            before = context.PASSED - cluster.LEFT
            status = visit_cluster(context, cluster)
            same = before == context.PASSED - cluster.LEFT
            going = status == Status.SLICE_OVER or status == Status.SUSPENDED
            if status != Status.DONE and (not going or same):
                return status + 16 * first
        first += 1
    return Status.DONE + 16 * first
