"""CTAs that run by themselves: sweeps over a window of resident CTAs (see ``simt.schedule``).

The compiled runtime runs CTAs in one call as long as each ends in its first visit.
"""

from __future__ import annotations

from ..simt.schedule import Room, Watch
from .ir.abi import Context
from .slots import Slot
from .watch import make_watch
from .worker import Worker

__all__ = ["run_sweeps"]


def run_sweeps(worker: Worker, following: int, count: int) -> None:
    """CTAs ``following … count − 1`` on the deterministic schedule, in index order; one at a time in order-free programs."""
    launch = worker.launch
    places = (
        Room(1, 1) if launch.program.order_free else Room(launch.plan.resident, launch.plan.most_resident)
    )
    window: list[Slot] = []
    watch: Watch[Slot] | None = None
    while window or following < count:
        passed = worker.get(Context.PASSED)
        resident = places.resident
        room = resident - len(window)
        left: list[Slot] = []
        for slot in window:
            (launch.free if worker.visit(slot) else left).append(slot)
        progress = len(left) < len(window)
        limit = min(count, following + room) if resident > 1 or window else count
        while following < limit:
            slot = launch.slot()
            index, ended = worker.run(slot, following, limit)
            progress = progress or ended or index > following
            following = limit if ended else index + 1
            (launch.free if ended else left).append(slot)
            if not ended and resident == 1:
                break
        window = left
        places.waiting = following < count
        progress = progress or worker.get(Context.PASSED) > passed
        if window and watch is None:
            watch = make_watch(worker, places.grow)
        if watch is not None:
            watch.after(progress, window)
