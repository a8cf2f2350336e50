"""Clusters in flight: CTAs that run together, sweep by sweep (see ``simt.schedule``).

The compiled runtime runs clusters in one call as long as each ends without Python.
"""

from __future__ import annotations

from ..simt.faults import deadlock
from ..simt.schedule import Room, Watch
from .host_arrays import address_of
from .ir.abi import Cluster, Context
from .ir.codes import Status
from .slots import Group, Slot
from .watch import make_watch
from .worker import Worker, in_pieces

__all__ = ["run_clusters"]


class _Clusters:
    """The clusters of one worker."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        #: unused groups, which the worker reuses for its next part of the launch
        self.free = worker.groups

    def group(self) -> Group:
        return self.free.pop() if self.free else self.worker.launch.group()

    def _call(self, name: str, group: Group, *more: int) -> int:
        return self.worker.call(name, address_of(group.record), *more)

    def _settle(self, group: Group, status: int) -> bool:
        """Complete a sweep, with what Python must do for warps. Returns whether the cluster has ended."""
        worker = self.worker
        while status not in (Status.DONE, Status.SLICE_OVER, Status.STUCK, Status.SUSPENDED):
            rank = group.get(Cluster.POSITION)
            slot = group.slots[rank]
            status = worker.proceed(slot, status)
            if not self._call("visited", group, slot.address, status):
                worker.arrive_diverged(slot)
                raise deadlock(item for warp in worker.warps(slot) for item in warp.waiting())
            if status == Status.DONE:
                slot.end()
            group.put(Cluster.POSITION, rank + 1)
            status = self._call("visit_cluster", group)
        if status == Status.STUCK and any([worker.arrive_diverged(slot) for slot in group.left]):
            return False
        if status == Status.STUCK:
            raise deadlock(
                item for slot in group.left for warp in worker.warps(slot) for item in warp.waiting()
            )
        return status == Status.DONE

    def sweep(self, group: Group) -> bool:
        """Run a sweep of a cluster in flight. Returns whether it has ended."""
        return self._settle(group, self._call("visit_cluster", group))

    def start(self, group: Group, number: int) -> bool:
        """Run the first sweep of a cluster. Returns whether it has ended."""
        self._call("begin_cluster", group, number)
        return self.sweep(group)

    def start_until_it_asks(self, group: Group, number: int) -> bool:
        """The same in a launch whose CTAs cancel others: its first sweeps."""
        self.worker.follow(number + 1)
        return self.worker.until_it_asks(lambda: self.start(group, number), lambda: self.sweep(group))

    def run(self, group: Group, first: int, last: int) -> tuple[int, bool]:
        """Run clusters from ``first`` on, until ``last`` or until one does not end. Returns its number, and whether all ended."""
        return in_pieces(
            lambda start, stop: self._call("run_clusters", group, start, stop),
            lambda status: self._settle(group, status),
            first,
            last,
        )


def run_clusters(worker: Worker, following: int, count: int) -> None:
    """Clusters ``following … count − 1`` on the deterministic schedule: sweeps over a window of resident CTAs; one cluster at a time
    in order-free programs."""
    launch, clusters = worker.launch, _Clusters(worker)
    alone, size = launch.program.order_free, launch.plan.cluster_ctas
    room = Room(size, size) if alone else Room(launch.plan.resident, launch.plan.most_resident)
    window: list[Group] = []
    watch: Watch[Slot] | None = None
    cancels = launch.cancels
    if cancels:
        worker.follow(following)
    while window or following < count:
        passed = worker.get(Context.PASSED)
        held = sum(len(group.left) for group in window)
        progress = False
        left: list[Group] = []
        for group in window:
            before = group.get(Cluster.LEFT)
            (clusters.free if clusters.sweep(group) else left).append(group)
            progress = progress or group.get(Cluster.LEFT) < before
        following = worker.following if cancels else following
        while held + size <= room.resident and following < count:
            group = clusters.group()
            if cancels:
                ended = clusters.start_until_it_asks(group, following)
                following = worker.following
            elif alone and not left:
                number, ended = clusters.run(group, following, count)
                progress = progress or ended or number > following
                following = count if ended else number + 1
            else:
                ended = clusters.start(group, following)
                following += 1
            progress = progress or group.get(Cluster.LEFT) < size
            held += size
            (clusters.free if ended else left).append(group)
        window = left
        room.waiting = following < count
        progress = progress or worker.get(Context.PASSED) > passed
        if window and watch is None:
            watch = make_watch(worker, room.grow)
        if watch is not None:
            watch.after(progress, [slot for group in window for slot in group.left])
