"""Thread block clusters: their shape, the order in which their CTAs start, and their shared memory.

Manual: "Cluster Dimension Directives", ``mapa``, ``%cluster_ctarank``; CUDA programming guide, "Thread Block Clusters". CTAs are
numbered cluster by cluster, and within a cluster by rank; without clusters by their linear index. The shared memory of the CTA of
rank r is at offset ``r << RANK_SHIFT`` of the shared window, as on hardware.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import LaunchError
from ..isa.effects import MATRIX_LOAD, MATRIX_STORE, MBARRIER
from ..isa.spaces import RANK_SHIFT
from ..isa.targets import sm_number
from ..ptx.module import Function
from ..ptx.syntax import Instruction, Register
from .launch import MAX_GRID, Dim3, LaunchPlan, dim3
from .program import Program

__all__ = [
    "BROKEN",
    "ENDED",
    "MOST_CTAS",
    "PORTABLE_CTAS",
    "RUNNING",
    "WAITING",
    "ClusterBarrier",
    "broken_rule",
    "check_cluster",
    "cluster_remark",
    "coordinates_of",
    "peer_of",
    "reaches_peers",
    "refused_address",
    "waits_for_cluster",
]

#: the maximum number of CTAs per cluster on every GPU with clusters, and with the attribute for non-portable sizes
PORTABLE_CTAS, MOST_CTAS = 8, 16
_LIMITS: Dim3 = (MOST_CTAS, MOST_CTAS, MOST_CTAS)
_FIRST_TARGET = 90
#: states of a CTA of a cluster: not visited yet, started, ended
WAITING, RUNNING, ENDED = range(3)


def check_cluster(kernel: Function, grid: Dim3, cluster: object) -> tuple[Dim3, Dim3, bool]:
    """Grid and cluster as three-tuples, and whether the launch or the kernel names the cluster's shape.

    ``cluster``: an int, a tuple of up to three, or ``None`` for that of ``.reqnctapercluster``, else one CTA. Raises ``LaunchError``.
    """
    required = None if kernel.cluster is None else _full(kernel.cluster)
    shape = (1, 1, 1) if cluster is None else dim3(cluster, "cluster", _LIMITS)
    if required is not None and cluster is not None and shape != required:
        raise LaunchError(
            f"cluster {shape} for kernel {kernel.name!r}",
            span=kernel.span,
            hint=f".reqnctapercluster requires {required}: omit cluster=, or write cluster={required}",
        )
    shape = required or shape
    size = math.prod(shape)
    if cluster is None and required is None and ".explicitcluster" in kernel.directives:
        raise LaunchError(
            f"kernel {kernel.name!r} must be launched with a cluster",
            span=kernel.span,
            hint=".explicitcluster: name its shape at launch, as cluster=2 or cluster=(2, 1, 1)",
        )
    if size > 1 and sm_number(kernel.module.target) < _FIRST_TARGET:
        raise LaunchError(
            f"cluster {shape} for kernel {kernel.name!r} of target {kernel.module.target}",
            span=kernel.span,
            hint="clusters need sm_90 or higher: compile the kernel for it",
        )
    most = next(
        (int(text.split()[1]) for text in kernel.directives if text.startswith(".maxclusterrank ")),
        MOST_CTAS,
    )
    if size > min(most, MOST_CTAS):
        raise LaunchError(
            f"cluster {shape} has {size:,} blocks",
            span=kernel.span,
            hint=f".maxclusterrank of kernel {kernel.name!r} allows {most:,} blocks per cluster"
            if most < MOST_CTAS
            else f"a cluster has at most {MOST_CTAS} blocks ({PORTABLE_CTAS} on every GPU)",
        )
    if ".blocksareclusters" in kernel.directives:
        x, y, z = (count * one for count, one in zip(grid, shape))
        grid = dim3((x, y, z), "grid (in clusters, by .blocksareclusters)", MAX_GRID)
    if any(count % one for count, one in zip(grid, shape)):
        raise LaunchError(
            f"grid {grid} is not a multiple of cluster {shape}",
            span=kernel.span,
            hint="a grid consists of whole clusters along each axis",
        )
    return grid, shape, cluster is not None or required is not None


def cluster_remark(kernel: Function, cluster: Dim3) -> tuple[str, ...]:
    """A note about clusters that are larger than the portable size."""
    size = math.prod(cluster)
    if size <= PORTABLE_CTAS:
        return ()
    return (
        f"{kernel.span}: clusters of {size} blocks are not portable: {kernel.name!r} needs "
        "cudaFuncAttributeNonPortableClusterSizeAllowed, and a GPU that can place them",
    )


def _full(shape: Sequence[int]) -> Dim3:
    x, y, z = (*shape, 1, 1)[:3]
    return x, y, z


def coordinates_of(plan: LaunchPlan, number: int) -> tuple[Dim3, Dim3, Dim3, int]:
    """``%ctaid``, ``%clusterid``, ``%cluster_ctaid`` and ``%cluster_ctarank`` of a CTA by its number."""
    cluster, rank = divmod(number, plan.cluster_ctas)
    own = _coordinates(cluster, plan.clusters)
    within = _coordinates(rank, plan.cluster)
    x, y, z = (each * size + inner for each, size, inner in zip(own, plan.cluster, within))
    return (x, y, z), own, within, rank


def _coordinates(number: int, sizes: Dim3) -> Dim3:
    return number % sizes[0], number // sizes[0] % sizes[1], number // (sizes[0] * sizes[1])


def peer_of(plan: LaunchPlan, cta: int, rank: int) -> Dim3:
    """``%ctaid`` of the CTA of that rank in the cluster of the CTA with a linear index."""
    own = _coordinates(cta, plan.grid)
    within = _coordinates(rank, plan.cluster)
    x, y, z = (corner // size * size + inner for corner, size, inner in zip(own, plan.cluster, within))
    return x, y, z


def rank_of(plan: LaunchPlan, cta: int) -> int:
    """``%cluster_ctarank`` of the CTA with a linear index."""
    x, y, z = (coordinate % size for coordinate, size in zip(_coordinates(cta, plan.grid), plan.cluster))
    return x + plan.cluster[0] * (y + plan.cluster[1] * z)


def refused_address(
    plan: LaunchPlan, cta: int, address: int, remote: bool, states: Sequence[int], arrives: bool = False
) -> tuple[str, str] | None:
    """Why a CTA of a cluster cannot access an address of the shared window, and a hint; ``None`` if the address is beyond the end of
    accessible shared memory. ``remote``: the access may leave the CTA; ``arrives``: it is an arrival at an mbarrier; ``states`` are
    those of the cluster's CTAs, by rank."""
    rank, own = address >> RANK_SHIFT, rank_of(plan, cta)
    if rank == own:
        return None
    if rank >= plan.cluster_ctas:
        return (
            f"rank {rank} is not among the {plan.cluster_ctas} blocks of the cluster",
            f"ranks go from 0 to {plan.cluster_ctas - 1} (%cluster_nctarank - 1)",
        )
    what = f"block {peer_of(plan, cta, rank)}, rank {rank} of the cluster"
    if not remote:
        return (
            f"it lies in the shared memory of {what}",
            ".shared and .shared::cta reach the block's own memory; write .shared::cluster, or use a generic address",
        )
    rule = broken_rule(states[rank], arrives)
    if rule is None:
        return None
    reason, remedy = BROKEN[rule]
    return f"{what}, {reason} [{rule}]", remedy


_END = (
    "has ended, and its shared memory with it",
    "a block must not end before the others of its cluster are done with its shared memory: "
    "barrier.cluster.arrive and .wait (cluster.sync()) before the end",
)
#: message and hint of violations of rules about the shared memory of another CTA
BROKEN = {
    "peer-ended": _END,
    "arrival-at-ended-block": _END,
    "peer-not-started": (
        "may not have started",
        "let all blocks of the cluster start first: barrier.cluster.arrive and .wait (cluster.sync()) before the access",
    ),
}


def broken_rule(state: int, arrives: bool) -> str | None:
    """The rule that an access to the shared memory of another CTA in that state violates; ``arrives``: an arrival at an mbarrier."""
    if state == WAITING:
        return "peer-not-started"
    if state == ENDED:
        return "arrival-at-ended-block" if arrives else "peer-ended"
    return None


def reaches_peers(instruction: Instruction) -> bool:
    """Whether it may access the shared memory of other CTAs of the cluster: ``.shared::cluster`` and generic accesses."""
    if instruction.form.modifier("multicast") == "multicast::cluster::all":
        return True
    space = instruction.form.modifier("space") or instruction.form.modifier("dst")
    if space:
        return space == "shared::cluster"
    if instruction.effect is MBARRIER:
        # operations that return the object's state, init and inval only accept objects of the own CTA
        remote = instruction.form.modifiers.keys() & {"sem", "mbarrier::arrive::one"}
        return bool(remote) and not any(isinstance(item, Register) for item in instruction.operands[:1])
    return instruction.effect.per_lane or instruction.effect in (MATRIX_LOAD, MATRIX_STORE)


def waits_for_cluster(program: Program) -> bool:
    """Whether a program has cluster barriers."""
    return any(
        block.kind == "barrier" and block.terminator is not None and block.terminator.form.modifier("cluster")
        for block in program.blocks
    )


@dataclass(slots=True)
class _Arrivals:
    """One warp's lanes that have arrived at the incomplete barrier, lanes that have not waited yet at the completed one, and lanes
    that wait."""

    arrived: int = 0
    passed: int = 0
    waiting: int = 0


@dataclass(slots=True)
class ClusterBarrier:
    """The barrier of one cluster (manual: ``barrier.cluster``). Warps are ``(rank, index)``, lanes the bits of an ``int``.

    It completes when all live threads of the cluster have arrived. Waiting threads then continue, and others continue immediately when
    they reach the wait. Each thread must alternate arriving and waiting.
    """

    warps: dict[tuple[int, int], _Arrivals] = field(default_factory=dict)

    def arrive(self, warp: tuple[int, int], lanes: int) -> bool:
        """Lanes arrive. Returns ``False`` if one of them has already arrived and not waited since."""
        own = self.warps.setdefault(warp, _Arrivals())
        if lanes & (own.arrived | own.passed):
            return False
        own.arrived |= lanes
        return True

    def wait(self, warp: tuple[int, int], lanes: int) -> bool | None:
        """Lanes wait. Returns whether the barrier at which they arrived is complete, so that they continue. ``None`` if one of them
        has not arrived."""
        own = self.warps.setdefault(warp, _Arrivals())
        if lanes & ~(own.arrived | own.passed):
            return None
        if lanes & own.arrived:
            own.waiting |= lanes
            return False
        own.passed &= ~lanes
        return True

    def waits(self, rank: int) -> bool:
        """Whether lanes of a CTA wait at the barrier."""
        return any(own.waiting for (rank_, _), own in self.warps.items() if rank_ == rank)

    def complete(self, live: Mapping[tuple[int, int], int]) -> dict[tuple[int, int], int] | None:
        """Complete the barrier if all live lanes have arrived, and return the lanes that continue, by warp; ``None`` otherwise."""
        arrived = {warp: own.arrived & live.get(warp, 0) for warp, own in self.warps.items()}
        if not any(arrived.values()) or any(lanes & ~arrived.get(warp, 0) for warp, lanes in live.items()):
            return None
        released = {}
        for warp, own in self.warps.items():
            own.passed |= own.arrived
            own.arrived = 0
            if own.waiting:
                released[warp] = own.waiting & live.get(warp, 0)
                own.passed &= ~own.waiting
                own.waiting = 0
        return released

    def state(self) -> Iterator[tuple[object, ...]]:
        """The state, for comparing."""
        for warp, own in sorted(self.warps.items()):
            yield warp, own.arrived, own.passed, own.waiting
