"""The schedule of CTAs, warps and time slices, and how a launch that cannot end is found out.

The schedule is a fixed function of the program and its input, the same for both backends:

* A *window* of CTAs is resident: at the start of every *sweep*, the next CTAs in index order take the places of those that ended,
  behind those that are there. A sweep visits the resident CTAs in that order.
  When they can only go on if others do that have not started (below), twice as many become resident.
* A *visit* gives every warp of the CTA a time slice with a quantum of ``QUANTUM``, then goes through its warps in index order,
  again and again, and runs each that neither waits nor has used up its time slice, until none is left. A warp that comes to a CTA
  barrier, ``bar.arrive`` included, stops until all others have had the chance to run; one whose barrier completes goes on with the
  rest of its time slice.
* A back edge takes its block's ``back_edge_cost`` off the quantum: 64 in loops that may wait for other threads, else 1. It is
  charged when the running path goes over it, and 1 for a call of a recursive function. Of a divergent branch, the path is charged
  for the edge that it takes itself; a divergent ``brx.idx`` is charged once if any of its lanes goes over a back edge. When the
  quantum is used up the time slice is over, after the move; in a loop that may wait, the warp switches to another path as well
  (``stack``). Time slices of warps that yield are shorter (``stack.Yielding.slice_shift``).
* Whenever a warp stops, at its end too, the warp instructions that it has executed are held against ``max_instructions``.

With clusters whole clusters are resident: the next one comes in where there is room for all its CTAs, which then start in order of
rank. A warp that waits at the cluster's barrier goes on once the visit of another CTA completes it.

A CTA or cluster starts when it is visited for the first time. Until then it may be cancelled (``clusterlaunchcontrol.try_cancel``):
each request takes the next one in launch order that has not started, and fails where there is none, and in cooperative launches. So
that the resident ones get others in turn, the time slice of the warp that asks ends at its next back edge; and one that starts is
visited again, before the next one starts, as long as a barrier or phase of it completes in the visit and it has not asked.

A warp suspended at a wait on an mbarrier goes on, with the rest of its time slice, when a phase of an mbarrier of its CTA has
completed, and waits again if it was another. Only when all warps of all resident CTAs wait, and some of them so, do those waits
give up, in the next sweep: they answer that the phase is not complete; where other lanes of the warp wait for those that asked,
the time slice ends at the next back edge, so that they can go on. When they have given up ``GIVES_UP`` times in a row, and no CTA
has ended and no barrier or phase completed meanwhile, that is a deadlock.

A warp that waits for others of its warpgroup (``wgmma.fence``) or their products (``wgmma.wait_group``) goes on, with the rest of
its time slice, when it is the next one in index order after they have come. At ``wgmma.fence`` it gives up as at an mbarrier.

A CTA whose warps all wait, none of them at an mbarrier, can never go on, unless one of them waits for its cluster: then it is the
cluster whose CTAs all wait. If lanes of these wait at an aligned barrier for the rest of their warp, they arrive without it
(``stack.SimtStack.arrive_diverged``). Else that is a deadlock, as are lanes of one warp that wait for lanes of the same warp that
never come.
A livelock is found by comparing: after 1, 2, 4, 8 … sweeps in which no CTA ended and no barrier or phase completed, a digest of
everything that decides how the launch goes on is taken, of registers those that may still be read (``live_registers``); if it is
that of the time before, the launch runs in circles. Then waits on mbarriers give up, once for each such state; then lanes at aligned
barriers arrive without the rest of their warps, as they do where waits that have given up ``ARRIVE_AFTER`` times in a row are all
that is left; then warps whose lanes wait at reconvergence points for lanes that spin are made to yield
(``stack.SimtStack.force_yield``); if there is none, more CTAs become resident (``Room``), as many as may be on a GPU; if there are
none, it is an error. What ends as a deadlock by waits that give up lets more become resident as well.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, Protocol, TypeVar

from .barriers import Barriers
from .clusters import ENDED, RUNNING, ClusterBarrier
from .faults import Waiting, deadlock, livelock
from .launch import LaunchPlan
from .program import Program

__all__ = [
    "QUANTUM",
    "Cluster",
    "Cta",
    "Pending",
    "Room",
    "Standing",
    "Status",
    "WarpRunner",
    "Watch",
    "cancels_others",
    "run_ctas",
]

#: what the back edges of one time slice may cost
QUANTUM = 1 << 12
#: times that all waits give up, one after the other, before that is a deadlock: loops that count, or look at the clock, never come
#: to a state again
GIVES_UP = 1000
#: times after which lanes at aligned barriers arrive without the rest of their warps
ARRIVE_AFTER = 2


class Status(Enum):
    """Why a warp stopped."""

    READY = "ready"  # came to a barrier and may go on when the others have run
    SUSPENDED = "suspended"  # waits for a phase of an mbarrier, and no other lanes can run
    GATHERS = "gathers"  # waits for the warps of its warpgroup before a product, and no other lanes can run
    WARPGROUP = "warpgroup"  # waits for products of its warpgroup, and no other lanes can run
    WAITS = "waits"  # some of its lanes wait at a CTA barrier, and no other lanes can run
    SLICE_OVER = "slice over"
    DONE = "done"


#: statuses of a warp that may go on when others of its warpgroup have come, and of one that may give up
_GROUPS = (Status.GATHERS, Status.WARPGROUP)
_GIVES_UP = (Status.SUSPENDED, Status.GATHERS)


class Standing(Enum):
    """Where a CTA is between two visits."""

    RUNS = "runs"  # a warp can go on
    WAITS = "waits"  # none can, and none is suspended
    STUCK = "stuck"  # none can, and some are suspended at mbarriers


class WarpRunner(Protocol):
    """One warp, as the schedule runs it."""

    @property
    def live(self) -> int:
        """Lanes that have not exited."""

    def begin_slice(self, quantum: int) -> None:
        """A new time slice begins."""

    def resume(self) -> Status:
        """Run until the warp must stop. Lanes that come to a barrier have been entered in the CTA's ``Barriers``."""

    def release(self, lanes: int, true: int, false: int) -> None:
        """A barrier let these lanes go; so many lanes arrived with a true and a false predicate."""

    def expire(self) -> None:
        """The wait on an mbarrier at which it is suspended gives up."""

    def is_complete(self) -> bool:
        """Whether the warps of its warpgroup have come to what it waits for."""

    def arrive_diverged(self) -> bool:
        """Its lanes at aligned barriers arrive there without the rest of the warp. Returns whether there were any."""

    @property
    def runs(self) -> bool:
        """Whether a path of it can run."""

    def force_yield(self) -> bool:
        """The launch runs in circles: the warp yields from now on. Returns whether that may help."""

    def state(self) -> Iterable[bytes]:
        """Everything that decides how the warp goes on, memory aside."""

    def where(self) -> Iterable[Waiting]:
        """Where its lanes are or wait."""


class Cluster:
    """CTAs that run together, by rank, with the barrier of all; ``states`` says which have started and ended."""

    def __init__(self, ctas: Sequence[Cta], barrier: ClusterBarrier, states: list[int]) -> None:
        self.ctas = ctas
        self.barrier = barrier
        self.states = states
        for rank, cta in enumerate(ctas):
            cta.cluster, cta.rank = self, rank

    @property
    def left(self) -> list[Cta]:
        """Those that have not ended."""
        return [cta for cta, state in zip(self.ctas, self.states) if state != ENDED]

    def visit(self) -> None:
        """One visit of each CTA. Raises ``Deadlock`` if none of them can ever go on."""
        for rank, cta in enumerate(self.ctas):
            if self.states[rank] != ENDED:
                self.states[rank] = RUNNING
                if cta.visit():
                    self.states[rank] = ENDED
        if not self.left or any(cta.standing is not Standing.WAITS for cta in self.left):
            return
        if not any([cta.arrive_diverged() for cta in self.left]):
            raise deadlock(
                item for cta in self.left for warp in cta.warps if warp.live for item in warp.where()
            )

    def release(self) -> bool:
        """Whether the barrier completes now: then let its threads go."""
        if not self.barrier.warps:
            return False
        live = {
            (rank, index): warp.live
            for rank, cta in enumerate(self.ctas)
            for index, warp in enumerate(cta.warps)
            if warp.live
        }
        released = self.barrier.complete(live)
        for (rank, index), lanes in (released or {}).items():
            self.ctas[rank].go_on(index, lanes)
        return released is not None


class Cta:
    """A resident CTA: its warps, barriers, and memory that is its own (for the digest)."""

    def __init__(
        self, warps: Sequence[WarpRunner], barriers: Barriers, memory: Callable[[], Iterable[bytes]]
    ) -> None:
        self.warps = warps
        self.barriers = barriers
        self.memory = memory
        self.cluster: Cluster | None = None
        self.rank = 0
        self.statuses = [Status.READY] * len(warps)
        self._seen = [0] * len(warps)
        #: barriers completed so far
        self.passed = 0

    def visit(self) -> bool:
        """One visit. Returns whether the CTA has finished. Raises ``Deadlock`` if none of its warps can ever go on."""
        for index, warp in enumerate(self.warps):
            warp.begin_slice(QUANTUM)
            if self.statuses[index] is Status.SLICE_OVER:
                self.statuses[index] = Status.READY
        while True:
            while any(map(self._can_run, range(len(self.warps)))):
                for index, warp in enumerate(self.warps):
                    if self._can_run(index):
                        self.statuses[index] = warp.resume()
                        self._seen[index] = self.barriers.phases
                        self._release()
            if any(status in self.statuses for status in (Status.SLICE_OVER, *_GIVES_UP)):
                return False
            if Status.WAITS not in self.statuses and Status.WARPGROUP not in self.statuses:
                return True
            if self.cluster is not None and self.cluster.barrier.waits(self.rank):
                return False
            if not self.arrive_diverged():
                raise deadlock(item for warp in self.warps if warp.live for item in warp.where())

    def arrive_diverged(self) -> bool:
        """Lanes at aligned barriers arrive without the rest of their warps; whether there were any."""
        some = False
        for index, warp in enumerate(self.warps):
            if warp.live and warp.arrive_diverged():
                some = True
                if warp.runs and self.statuses[index] is Status.WAITS:
                    self.statuses[index] = Status.READY
        if some:
            self._release()
        return some

    def _can_run(self, index: int) -> bool:
        """Whether a warp is ready, or has stopped for a phase of an mbarrier or products that are complete now."""
        status = self.statuses[index]
        if status is Status.SUSPENDED:
            return self._seen[index] != self.barriers.phases
        return status is Status.READY or (status in _GROUPS and self.warps[index].is_complete())

    @property
    def standing(self) -> Standing:
        """Whether one of its warps can go on by itself."""
        if Status.SLICE_OVER in self.statuses or any(map(self._can_run, range(len(self.warps)))):
            return Standing.RUNS
        return Standing.STUCK if any(status in self.statuses for status in _GIVES_UP) else Standing.WAITS

    @property
    def progress(self) -> int:
        """Barriers and phases of mbarriers completed so far."""
        return self.passed + self.barriers.phases

    def expire(self) -> bool:
        """Waits on mbarriers, and at fences for a warpgroup, give up; whether there were any."""
        suspended = [index for index, status in enumerate(self.statuses) if status in _GIVES_UP]
        for index in suspended:
            self.statuses[index] = Status.READY
            self.warps[index].expire()
        return bool(suspended)

    def go_on(self, index: int, lanes: int) -> None:
        """The cluster's barrier lets lanes of a warp go."""
        if lanes:
            self.warps[index].release(lanes, 0, 0)
        if self.statuses[index] is Status.WAITS:
            self.statuses[index] = Status.READY

    def _release(self) -> None:
        live = {index: warp.live for index, warp in enumerate(self.warps) if warp.live}
        for completed in self.barriers.complete(live):
            self.passed += 1
            for index, lanes in completed.waiting.items():
                self.warps[index].release(lanes, completed.true, completed.false)
                if self.statuses[index] is Status.WAITS:
                    self.statuses[index] = Status.READY
        if self.cluster is not None and self.cluster.release():
            self.passed += 1


_Resident = TypeVar("_Resident")


@dataclass
class Room:
    """How many CTAs are ``resident`` at once: of a launch whose resident CTAs wait for others, up to ``most``. ``waiting``: whether
    there are others, which have not started."""

    resident: int
    most: int
    waiting: bool = False

    def grow(self) -> bool:
        """Whether more may become resident, which they then do."""
        if not self.waiting or self.resident >= self.most:
            return False
        self.resident = min(self.most, 2 * self.resident)
        return True


def cancels_others(program: Program, plan: LaunchPlan) -> bool:
    """Whether CTAs of a launch may cancel those that have not started: all of a cooperative launch start together."""
    return program.cancels and not plan.cooperative


@dataclass
class Pending:
    """The clusters of a launch that have not started, in launch order: from ``following`` on, of ``count``. ``cancels``: those that
    run may cancel them."""

    count: int
    cancels: bool = False
    following: int = 0
    #: how many will never start
    cancelled: int = 0
    #: how often one was asked for
    asked: int = 0

    def __bool__(self) -> bool:
        return self.following < self.count

    def take(self) -> int:
        """The next one, which starts."""
        self.following += 1
        return self.following - 1

    def cancel(self) -> int | None:
        """The next one, which never starts; ``None`` if there is none that may be cancelled."""
        self.asked += 1
        if not self or not self.cancels:
            return None
        self.cancelled += 1
        return self.take()


class Watch(Generic[_Resident]):
    """Finds out after each sweep whether a launch can still end. Both backends use it, each with its own kind of resident CTAs.

    ``digest`` is of everything that decides how the launch goes on; ``standing`` is that of each CTA; ``expire`` lets waits on
    mbarriers give up, ``arrive_diverged`` lanes at aligned barriers arrive, ``force_yield`` is that of the warps: all say whether it
    may help; ``where`` lists who waits; ``grow`` lets more CTAs become resident, if there are more.
    """

    def __init__(
        self,
        digest: Callable[[Sequence[_Resident]], bytes],
        standing: Callable[[_Resident], Standing],
        expire: Callable[[_Resident], bool],
        arrive_diverged: Callable[[_Resident], bool],
        force_yield: Callable[[_Resident], bool],
        where: Callable[[_Resident], Iterable[Waiting]],
        grow: Callable[[], bool],
    ) -> None:
        self.digest, self.standing, self.expire, self.where, self.grow = digest, standing, expire, where, grow
        self.arrive_diverged, self.force_yield = arrive_diverged, force_yield
        self._quiet = 0
        #: sweeps without progress after which waits gave up
        self._gave_up = 0
        self._last = b""
        self._given_up: set[bytes] = set()
        #: whether a warp was ever at an mbarrier
        self._waits = False
        #: sweeps left to find a warp at an mbarrier, for the message, of a launch that runs in circles
        self._doomed = 0

    def after(self, progress: bool, window: Sequence[_Resident]) -> None:
        """``progress``: a CTA ended, or a barrier or phase completed. Raises ``Deadlock``."""
        if progress:
            self._quiet = self._gave_up = 0
            return
        standings = [self.standing(cta) for cta in window]
        stuck = Standing.STUCK in standings
        self._waits = self._waits or stuck
        if self._doomed:
            self._doomed -= 1
            if stuck or not self._doomed:
                raise (deadlock if stuck else livelock)(item for cta in window for item in self.where(cta))
            return
        self._quiet += 1
        if self._quiet & (self._quiet - 1) == 0:
            digest = self.digest(window)
            if self._quiet > 1 and digest == self._last:
                helps = digest not in self._given_up and any([self.expire(cta) for cta in window])
                if helps:
                    self._given_up.add(digest)
                if helps or self._arrive_diverged(window) or any([self.force_yield(cta) for cta in window]):
                    self._quiet = 0
                elif self.grow():
                    self._quiet = self._gave_up = 0
                elif stuck or not self._waits:
                    raise (deadlock if stuck else livelock)(
                        item for cta in window for item in self.where(cta)
                    )
                else:
                    self._doomed = 3
                return
            self._last = digest
        if stuck and Standing.RUNS not in standings:
            self._gave_up += 1
            if self._gave_up == ARRIVE_AFTER and self._arrive_diverged(window):
                return
            if self._gave_up > GIVES_UP and self.grow():
                self._quiet = self._gave_up = 0
                return
            if self._gave_up > GIVES_UP:
                raise deadlock(item for cta in window for item in self.where(cta))
            for cta in window:
                self.expire(cta)

    def _arrive_diverged(self, window: Sequence[_Resident]) -> bool:
        return any([self.arrive_diverged(cta) for cta in window])


def _force_yield(cta: Cta) -> bool:
    return any([warp.force_yield() for warp in cta.warps if warp.live])


def _where(cta: Cta) -> Iterable[Waiting]:
    return (item for warp in cta.warps if warp.live for item in warp.where())


def run_ctas(
    pending: Pending, room: Room, start: Callable[[int], Cluster], memory: Callable[[], Iterable[bytes]]
) -> None:
    """Run clusters, as many CTAs at a time as there is ``room`` for; ``start`` makes one ready by its number, ``memory`` gives
    what all share.

    Raises ``Deadlock``, and whatever the warps raise.
    """
    clusters: list[Cluster] = []
    window: list[Cta] = []
    size = 1
    watch = Watch[Cta](
        lambda ctas: _digest(ctas, pending, memory),
        lambda cta: cta.standing,
        lambda cta: cta.expire(),
        lambda cta: cta.arrive_diverged(),
        _force_yield,
        _where,
        room.grow,
    )
    while window or pending:
        passed = sum(cta.progress for cta in window)
        for cluster in clusters:
            cluster.visit()
        while len(window) + size <= room.resident and pending:
            cluster = start(pending.take())
            _first_visits(cluster, pending)
            clusters.append(cluster)
            window += cluster.ctas
            size = len(cluster.ctas)
        room.waiting = bool(pending)
        clusters = [cluster for cluster in clusters if cluster.left]
        left = [cta for cluster in clusters for cta in cluster.left]
        progress = len(left) < len(window) or sum(cta.progress for cta in left) > passed
        window = left
        watch.after(progress, window)


def _first_visits(cluster: Cluster, pending: Pending) -> None:
    """A cluster starts: one visit, and more until it asks for others if that may be."""
    asked, passed = pending.asked, 0
    cluster.visit()
    while pending.cancels and pending and pending.asked == asked and cluster.left:
        before, passed = passed, sum(cta.progress for cta in cluster.ctas)
        if passed == before:
            return
        cluster.visit()


def _digest(window: Sequence[Cta], pending: Pending, memory: Callable[[], Iterable[bytes]]) -> bytes:
    digest = hashlib.blake2b(pending.following.to_bytes(8, "little"))
    for part in memory():
        digest.update(part)
    for cta in window:
        digest.update(repr(cta.barriers.state()).encode())
        if cta.cluster is not None:
            digest.update(repr(tuple(cta.cluster.barrier.state())).encode())
        for part in cta.memory():
            digest.update(part)
        for warp in cta.warps:
            for part in warp.state():
                digest.update(part)
    return digest.digest()
