"""The reference backend: every value is a NumPy array over the lanes of a warp. Slow, readable, always available.

It executes the program block by block under the rules of ``simt.stack`` and ``simt.schedule``; memory and counters are the same as
with the LLVM backend.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ..errors import Deadlock
from ..isa.types import scalar_type
from ..memory.arena import Memory
from ..simt.atomic_targets import AtomicTargets, has_global_atomics, hottest_of
from ..simt.barriers import Barriers
from ..simt.clusters import WAITING, ClusterBarrier, coordinates_of
from ..simt.counters import SITE_COLUMNS, Observation
from ..simt.faults import name_cancelled
from ..simt.launch import Dim3, LaunchPlan
from ..simt.program import Program
from ..simt.rule_breaches import first_breaches
from ..simt.schedule import Cluster, Cta, Pending, Room, cancels_others, run_ctas
from ..simt.thread_counters import columns_of, make_table
from .blocks import prepare
from .regions import Arena, Region
from .value_recorder import ValueRecorder
from .values import LaneValue
from .warp import Counters, LanesCluster, LanesCta, ReferenceWarp

__all__ = ["ReferenceBackend"]

_U32 = scalar_type("u32")


class ReferenceBackend:
    """Runs programs on NumPy arrays."""

    def run(self, program: Program, plan: LaunchPlan, memory: Memory, observe: frozenset[str]) -> Observation:
        """Run a launch on the memory. Raises the errors of the kernel; see ``api.Device.launch``."""
        counters = _counters(program, plan, observe)
        if "accesses" in observe:
            counters.values = ValueRecorder(program, memory)
        if "memory" in observe and program.once(has_global_atomics):
            counters.targets = AtomicTargets()
        blocks = prepare(program, plan)
        arena = Arena(memory)
        tids = [_tid(plan, warp) for warp in range(plan.warps_per_cta)]

        size = plan.cluster_ctas
        pending = Pending(
            len(plan.kept) if plan.only_kept else plan.ctas // size, cancels_others(program, plan)
        )

        def start(position: int) -> Cluster:
            shared_by = LanesCluster([], [WAITING] * size, ClusterBarrier(), pending)
            number = plan.kept[position] if plan.only_kept else position
            ctas = [start_cta(size * number + rank, shared_by) for rank in range(size)]
            return Cluster(ctas, shared_by.barrier, shared_by.states)

        def start_cta(number: int, cluster: LanesCluster) -> Cta:
            coordinates, own_cluster, within, rank = coordinates_of(plan, number)
            wide, tall, _ = plan.grid
            index = coordinates[0] + wide * (coordinates[1] + tall * coordinates[2])
            shared, barriers = Region.fresh(plan.shared_bytes), Barriers()
            own = LanesCta(
                index, _coordinates(coordinates), program, plan, blocks, arena, shared, barriers, counters,
                cluster, rank, _coordinates(own_cluster), _coordinates(within),
            )  # fmt: skip
            cluster.members.append(own)
            warps = [ReferenceWarp(own, warp, _lanes(plan, warp), tid) for warp, tid in enumerate(tids)]
            return Cta(warps, barriers, lambda: (shared.bytes.tobytes(),))

        with np.errstate(all="ignore"):
            room = Room(size, size) if program.order_free else Room(plan.resident, plan.most_resident)
            try:
                run_ctas(pending, room, start, lambda: _written(memory), plan.launcher)
            except Deadlock as error:
                name_cancelled(error, size * pending.cancelled)
                raise
        return replace(
            _observation(counters),
            remarks=_race_remark(program, plan),
            cancelled=size * pending.cancelled,
        )


def _coordinates(coordinates: Dim3) -> tuple[LaneValue, ...]:
    return tuple(LaneValue(np.array([number], np.uint32), _U32) for number in (*coordinates, 0))


def _lanes(plan: LaunchPlan, warp: int) -> int:
    return (1 << min(32, plan.threads_per_cta - 32 * warp)) - 1


def _tid(plan: LaunchPlan, warp: int) -> tuple[LaneValue, ...]:
    number = np.arange(32 * warp, 32 * warp + 32)
    wide, tall, _ = plan.block
    parts = (number % wide, number // wide % tall, number // (wide * tall), np.zeros(32))
    return tuple(LaneValue(part.astype(np.uint32), _U32) for part in parts)


def _written(memory: Memory) -> Iterator[bytes]:
    for allocation in memory.allocations:
        if allocation.kind == "global":
            yield memory.view(allocation).tobytes()
    yield memory.heap_bytes.tobytes()


def _counters(program: Program, plan: LaunchPlan, observe: frozenset[str]) -> Counters:
    blocks = len(program.blocks)
    sites = [[0] * len(SITE_COLUMNS) for _ in program.sites] if "memory" in observe else None
    return Counters(
        [0] * blocks, [0] * blocks, [0] * blocks, [0] * blocks, [0] * len(program.predicated), sites, {}, [], {},
        make_table(program, plan) if "threads" in observe else None, columns_of(program),
    )  # fmt: skip


def _observation(counters: Counters) -> Observation:
    sites = None
    if counters.sites is not None:
        sites = np.array(counters.sites, np.int64).reshape(len(counters.sites), len(SITE_COLUMNS))
    return Observation(
        np.array(counters.block_warps, np.int64),
        np.array(counters.block_lanes, np.int64),
        np.array(counters.divergent, np.int64),
        np.array(counters.taken, np.int64),
        np.array(counters.predicated, np.int64),
        sites,
        frozenset(counters.blank),
        counters.beyond,
        counters.blank,
        hottest=hottest_of([] if counters.targets is None else [counters.targets.table]),
        breaches=first_breaches(counters.breaches),
        threads=counters.threads,
        tensor_work=dict(counters.tensor_work),
        values=None if counters.values is None else counters.values.records(counters.blank),
    )


def _race_remark(program: Program, plan: LaunchPlan) -> tuple[str, ...]:
    """A remark if the launch is to detect races, which only the LLVM backend does."""
    if not plan.races or (plan.shared_bytes == 0 and plan.ctas == 1):
        return ()
    kernel = program.kernel
    return (f"{kernel.span}: {kernel.name!r}: races are detected on the backend 'llvm' only",)
