"""Clusters in flight: CTAs that run together, sweep by sweep (see ``simt.schedule``).

The compiled runtime runs clusters by itself as long as each comes to its end without Python; here is what happens around that.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..simt.faults import deadlock
from .ir.abi import Cluster, Context, Cta, Presence, Status

if TYPE_CHECKING:
    from .launch import Launch, Slot, Worker

__all__ = ["Group", "run_clusters"]

_NEEDS_PYTHON = 8
#: seconds of compiled code at a time
_PIECE = 0.1


@dataclass(eq=False)
class Group:
    """Room for one cluster in flight: its record, and the slots of its CTAs by rank."""

    record: NDArray[np.uint8]
    slots: list[Slot]

    def get(self, offset: int) -> int:
        """A field of the record."""
        return int(struct.unpack_from("<q", self.record, offset)[0])

    def put(self, offset: int, value: int) -> None:
        """Set a field of the record."""
        struct.pack_into("<q", self.record, offset, value)

    @property
    def left(self) -> list[Slot]:
        """The slots of CTAs that have not ended."""
        return [slot for slot, state in zip(self.slots, self.states) if state != Presence.ENDED]

    @property
    def states(self) -> list[int]:
        """Where each CTA is: ``Presence``."""
        return [slot.get(Cta.PRESENCE) for slot in self.slots]


def make_group(launch: Launch) -> Group:
    """Room for a cluster."""
    slots = [launch.slot() for _ in range(launch.plan.cluster_ctas)]
    made = Group(launch.aligned(Cluster.BYTES), slots)
    made.put(Cluster.SIZE, len(slots))
    for rank, slot in enumerate(slots):
        made.put(Cluster.PEERS + 8 * rank, int(slot.record.ctypes.data))
        slot.put(Cta.CLUSTER, int(made.record.ctypes.data))
        slot.group = made
    return made


class _Clusters:
    """The clusters of one worker."""

    def __init__(self, launch: Launch, worker: Worker) -> None:
        self.launch, self.worker = launch, worker
        self.context = int(worker.context.ctypes.data)
        #: groups not in use, which stay with the worker for its next part of the launch
        self.free = worker.groups
        self.size = launch.plan.cluster_ctas

    def group(self) -> Group:
        return self.free.pop() if self.free else make_group(self.launch)

    def _call(self, name: str, group: Group, *more: int) -> int:
        function: Callable[..., int] = self.launch.functions[name]
        return function(self.context, int(group.record.ctypes.data), *more)

    def settle(self, group: Group, status: int) -> bool:
        """Bring a sweep to its end, with what Python must do for warps. Returns whether the cluster has ended."""
        proceed: Callable[..., int] = self.launch.functions["proceed"]
        while status not in (Status.DONE, Status.SLICE_OVER, Status.STUCK, Status.SUSPENDED):
            rank = group.get(Cluster.POSITION)
            slot = group.slots[rank]
            record = int(slot.record.ctypes.data)
            while status >= _NEEDS_PYTHON:
                self.worker.attend(slot, status - _NEEDS_PYTHON)
                status = proceed(self.context, record)
            if not self._call("visited", group, record, status):
                raise deadlock(item for warp in self.worker.warps(slot) for item in warp.where())
            if status == Status.DONE:
                slot.end()
            group.put(Cluster.POSITION, rank + 1)
            status = self._call("visit_cluster", group)
        if status == Status.STUCK:
            raise deadlock(
                item for slot in group.left for warp in self.worker.warps(slot) for item in warp.where()
            )
        return status == Status.DONE

    def sweep(self, group: Group) -> bool:
        """A sweep of a cluster in flight; whether it has ended."""
        return self.settle(group, self._call("visit_cluster", group))

    def start(self, group: Group, number: int) -> bool:
        """The first sweep of a cluster; whether it has ended."""
        self._call("begin_cluster", group, number)
        return self.sweep(group)

    def run(self, group: Group, first: int, last: int) -> tuple[int, bool]:
        """Clusters from ``first`` on, until ``last`` or until one does not come to its end: its number, and whether all ended."""
        some = 32
        while first < last:
            # in pieces, so that an interrupt from the keyboard is seen
            begun = time.perf_counter()
            found = self._call("run_clusters", group, first, min(last, first + some))
            some = some * 2 if time.perf_counter() - begun < _PIECE else some
            status, number = found & 15, found >> 4
            if status != Status.DONE and not self.settle(group, status):
                return number, False
            first = number if status == Status.DONE else number + 1
        return last, True


def run_clusters(launch: Launch, worker: Worker, following: int, count: int) -> None:
    """Clusters ``following … count − 1`` on the deterministic schedule: sweeps over a window of resident CTAs; one cluster at a time
    in order-free programs."""
    alone = launch.program.order_free
    clusters = _Clusters(launch, worker)
    room = clusters.size if alone else launch.plan.resident
    window: list[Group] = []
    watch = launch.watch(worker)
    while window or following < count:
        passed = worker.get(Context.PASSED)
        held = sum(len(group.left) for group in window)
        progress = False
        left: list[Group] = []
        for group in window:
            before = group.get(Cluster.LEFT)
            (clusters.free if clusters.sweep(group) else left).append(group)
            progress = progress or group.get(Cluster.LEFT) < before
        while held + clusters.size <= room and following < count:
            group = clusters.group()
            if alone and not left:
                number, ended = clusters.run(group, following, count)
                progress = progress or ended or number > following
                following = count if ended else number + 1
            else:
                ended = clusters.start(group, following)
                following += 1
            progress = progress or group.get(Cluster.LEFT) < clusters.size
            held += clusters.size
            (clusters.free if ended else left).append(group)
        window = left
        progress = progress or worker.get(Context.PASSED) > passed
        watch.after(progress, [slot for group in window for slot in group.left])
