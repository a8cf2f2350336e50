"""CTAs without clusters: sweeps over a window of resident CTAs (see ``simt.schedule``).

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
    cancels = launch.cancels
    if cancels:
        worker.follow(following)
    while window or following < count:
        passed = worker.get(Context.PASSED)
        resident = places.resident
        room = resident - len(window)
        left: list[Slot] = []
        for slot in window:
            (launch.free if worker.visit(slot) else left).append(slot)
        progress = len(left) < len(window)
        following = worker.following if cancels else following
        limit = min(count, following + room) if resident > 1 or window else count
        while following < limit:
            slot = launch.slot()
            if cancels:
                ended = _start(worker, slot, following)
                progress = progress or ended
                # the CTAs after cancelled ones start instead
                limit = min(count, limit + worker.following - following - 1)
                following = worker.following
            else:
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


def _start(worker: Worker, slot: Slot, index: int) -> bool:
    """Run the first visits of a CTA in a launch whose CTAs cancel others. Returns whether it has ended."""
    worker.follow(index + 1)
    return worker.until_it_asks(lambda: worker.run(slot, index, index + 1)[1], lambda: worker.visit(slot))
