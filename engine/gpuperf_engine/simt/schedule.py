"""The schedule of CTAs, warps and time slices, and the detection of deadlocks and livelocks.

The schedule is a fixed function of the program and its input, the same for both backends:

* A *window* of CTAs is resident. At the start of every *sweep*, the next CTAs in index order replace those that have ended, after the
  remaining ones. A sweep visits the resident CTAs in that order.
  If they can only continue after CTAs that have not started (below), the window is doubled.
* A *visit* gives every warp of the CTA a time slice with a quantum of ``QUANTUM``. It then iterates over the warps in index order,
  repeatedly, and runs each one that neither waits nor has used up its time slice, until there is none. A warp that reaches a CTA
  barrier, including ``bar.arrive``, stops until all others have had the chance to run; one whose barrier completes continues with the
  rest of its time slice.
* A back edge uses up its block's ``back_edge_cost`` of the quantum: 64 in loops that may wait for other threads, else 1. It is
  charged when the running path takes it; a call of a recursive function is charged 1. At a divergent branch, the path is charged
  for the edge that it takes itself; a divergent ``brx.idx`` is charged once if any of its lanes takes a back edge. When the
  quantum is used up, the time slice ends after the move; in a loop that may wait, the warp also switches to another path
  (``stack``). Time slices of warps that yield are shorter (``stack.Yielding.slice_shift``).
* Whenever a warp stops or ends, the warp instructions that it has executed are compared with ``max_instructions``.

With clusters, whole clusters are resident: the next one becomes resident if there is room for all its CTAs, which then start in order
of rank. A warp that waits at the cluster barrier continues once the visit of another CTA completes it.

A CTA or cluster starts with its first visit. Until then it may be cancelled (``clusterlaunchcontrol.try_cancel``): each request
cancels the next one in launch order that has not started, and fails if there is none, and in cooperative launches. So that resident
ones alternate in their requests, the time slice of a warp ends at the first back edge after its request; and one that starts is
visited again, before the next one starts, as long as a barrier or phase of it completes in the visit and it has made no request.

A warp that reaches a wait on a completed phase of an mbarrier, and has itself completed a phase of its CTA since it last stopped,
stops there until all others have had the chance to run: they may wait for that phase, and would miss it if the warp continued and
completed the next one. A warp suspended at a wait on an mbarrier continues, with the rest of its time slice, when a phase of any
mbarrier of its CTA has completed, and waits again if it was another one. Waits on mbarriers expire only if all warps of all resident
CTAs wait: in the next sweep they return that the phase is not complete; if other lanes of the warp wait for lanes at such a wait, the
time slice ends at the next back edge, so that they can continue. After ``MOST_EXPIRATIONS`` consecutive expirations, during which no
CTA has ended and no barrier or phase completed, the launch is in a deadlock.

A warp that waits for others of its warpgroup (``wgmma.fence``) or their products (``wgmma.wait_group``) continues, with the rest of
its time slice, when it is the next one in index order after they have arrived. At ``wgmma.fence`` waits expire as at an mbarrier.

A CTA whose warps all wait, none of them at an mbarrier, can never continue unless one of them waits for its cluster; then this
applies to the cluster if all its CTAs wait. If lanes of these wait at an aligned barrier for the rest of their warp, they arrive
without it (``stack.SimtStack.arrive_diverged``). Otherwise it is a deadlock, as are lanes of one warp that wait for lanes of the
same warp that never arrive. A livelock is detected by comparing states: after 1, 2, 4, 8 … sweeps in which no CTA ended and no
barrier or phase completed, a digest of the state on which the continuation of the launch depends is taken, including only live
registers (``live_registers``). If it equals the previous one, the state repeats. Then, in this order: waits on mbarriers expire,
once for each such state; lanes at aligned barriers arrive without the rest of their warps, which they also do if only waits that
have expired ``ARRIVE_AFTER`` times in a row are left; warps whose lanes wait at reconvergence points for spinning lanes are forced
to yield (``stack.SimtStack.force_yield``); more CTAs become resident (``Room``), up to the maximum of a GPU. If none of these is
possible, it is an error, unless the program that launched goes on meanwhile (``launch.Launcher``), which may write what the launch
waits for. States are compared after 1, 2, 4 … times ``CIRCLING`` sweeps with progress then, too. More CTAs also become resident
before expired waits are reported as a deadlock.
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
from .launch import Launcher, LaunchPlan
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

#: the total cost of the back edges of one time slice
QUANTUM = 1 << 12
#: consecutive expirations of all waits before a deadlock is reported: the state of loops that count or read the clock never repeats
MOST_EXPIRATIONS = 1000
#: sweeps with progress after which states are compared if the program can go on: those of loops with a barrier may repeat, too
CIRCLING = 1 << 14
#: expirations after which lanes at aligned barriers arrive without the rest of their warps
ARRIVE_AFTER = 2


class Status(Enum):
    """Why a warp stopped."""

    READY = "ready"  # reached a barrier and may continue when the others have run
    SUSPENDED = "suspended"  # waits for a phase of an mbarrier, and no other lanes can run
    GATHERS = "gathers"  # waits for the warps of its warpgroup before a product, and no other lanes can run
    WARPGROUP = "warpgroup"  # waits for products of its warpgroup, and no other lanes can run
    WAITS = "waits"  # some of its lanes wait at a CTA barrier, and no other lanes can run
    SLICE_OVER = "slice over"
    DONE = "done"


#: statuses of a warp that waits for its warpgroup, and of one whose wait may expire
_GROUPS = (Status.GATHERS, Status.WARPGROUP)
_MAY_EXPIRE = (Status.SUSPENDED, Status.GATHERS)


class Standing(Enum):
    """The state of a CTA between two visits."""

    RUNS = "runs"  # a warp can run
    WAITS = "waits"  # none can, and none is suspended
    STUCK = "stuck"  # none can, and some are suspended at mbarriers


class WarpRunner(Protocol):
    """The interface of a warp for the schedule."""

    @property
    def live(self) -> int:
        """Lanes that have not exited."""

    def begin_slice(self, quantum: int) -> None:
        """Begin a new time slice."""

    def resume(self) -> Status:
        """Run until the warp must stop. Lanes that reach a barrier arrive at the CTA's ``Barriers``."""

    def release(self, lanes: int, true: int, false: int) -> None:
        """Release lanes from a completed barrier, at which so many lanes arrived with a true and a false predicate."""

    def expire(self) -> None:
        """Let the wait on an mbarrier at which it is suspended expire."""

    def is_complete(self) -> bool:
        """Whether the warps of its warpgroup have reached the fence or group that it waits for."""

    def arrive_diverged(self) -> bool:
        """Let its lanes at aligned barriers arrive without the rest of the warp. Returns whether there were any."""

    @property
    def runs(self) -> bool:
        """Whether one of its paths can run."""

    def force_yield(self) -> bool:
        """Make the warp yield from now on, as the state of the launch repeats. Returns whether this may make progress."""

    def state(self) -> Iterable[bytes]:
        """The state, without memory, on which the continuation of the warp depends."""

    def waiting(self) -> Iterable[Waiting]:
        """Where its lanes are or wait, and why."""


class Cluster:
    """CTAs of one cluster, by rank, with the cluster barrier; ``states``: which have started and ended."""

    def __init__(self, ctas: Sequence[Cta], barrier: ClusterBarrier, states: list[int]) -> None:
        self.ctas = ctas
        self.barrier = barrier
        self.states = states
        for rank, cta in enumerate(ctas):
            cta.cluster, cta.rank = self, rank

    @property
    def left(self) -> list[Cta]:
        """The CTAs that have not ended."""
        return [cta for cta, state in zip(self.ctas, self.states) if state != ENDED]

    def visit(self) -> None:
        """Visit each CTA once. Raises ``Deadlock`` if none of them can ever continue."""
        for rank, cta in enumerate(self.ctas):
            if self.states[rank] != ENDED:
                self.states[rank] = RUNNING
                if cta.visit():
                    self.states[rank] = ENDED
        if not self.left or any(cta.standing is not Standing.WAITS for cta in self.left):
            return
        if not any([cta.arrive_diverged() for cta in self.left]):
            raise deadlock(
                item for cta in self.left for warp in cta.warps if warp.live for item in warp.waiting()
            )

    def release(self) -> bool:
        """Complete the cluster barrier and release its threads, if all have arrived. Returns whether it completed."""
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
    """A resident CTA: its warps, barriers, and private memory (for the digest)."""

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
        """Visit the CTA once. Returns whether it has ended. Raises ``Deadlock`` if none of its warps can ever continue."""
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
            if any(status in self.statuses for status in (Status.SLICE_OVER, *_MAY_EXPIRE)):
                return False
            if Status.WAITS not in self.statuses and Status.WARPGROUP not in self.statuses:
                return True
            if self.cluster is not None and self.cluster.barrier.waits(self.rank):
                return False
            if not self.arrive_diverged():
                raise deadlock(item for warp in self.warps if warp.live for item in warp.waiting())

    def arrive_diverged(self) -> bool:
        """Let lanes at aligned barriers arrive without the rest of their warps. Returns whether there were any."""
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
        """Whether a warp is ready, or waits for a phase of an mbarrier or products that are complete now."""
        status = self.statuses[index]
        if status is Status.SUSPENDED:
            return self._seen[index] != self.barriers.phases
        return status is Status.READY or (status in _GROUPS and self.warps[index].is_complete())

    @property
    def standing(self) -> Standing:
        """Whether one of its warps can run."""
        if Status.SLICE_OVER in self.statuses or any(map(self._can_run, range(len(self.warps)))):
            return Standing.RUNS
        return Standing.STUCK if any(status in self.statuses for status in _MAY_EXPIRE) else Standing.WAITS

    @property
    def progress(self) -> int:
        """Barriers and phases of mbarriers completed so far."""
        return self.passed + self.barriers.phases

    def expire(self) -> bool:
        """Let waits on mbarriers and at warpgroup fences expire. Returns whether there were any."""
        suspended = [index for index, status in enumerate(self.statuses) if status in _MAY_EXPIRE]
        for index in suspended:
            self.statuses[index] = Status.READY
            self.warps[index].expire()
        return bool(suspended)

    def go_on(self, index: int, lanes: int) -> None:
        """Release lanes of a warp from the cluster barrier."""
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
    """The number of ``resident`` CTAs, which grows up to ``most`` if resident CTAs wait for others. ``waiting``: whether there are
    CTAs that have not started."""

    resident: int
    most: int
    waiting: bool = False

    def grow(self) -> bool:
        """Make more CTAs resident if possible. Returns whether it was."""
        if not self.waiting or self.resident >= self.most:
            return False
        self.resident = min(self.most, 2 * self.resident)
        return True


def cancels_others(program: Program, plan: LaunchPlan) -> bool:
    """Whether CTAs of a launch may cancel those that have not started, which excludes cooperative launches: their CTAs start
    together."""
    return program.cancels and not plan.cooperative


@dataclass
class Pending:
    """The clusters of a launch that have not started, in launch order: from ``following`` on, of ``count``. ``cancels``: whether
    running ones may cancel them."""

    count: int
    cancels: bool = False
    following: int = 0
    #: number of cancelled clusters
    cancelled: int = 0
    #: number of requests
    asked: int = 0

    def __bool__(self) -> bool:
        return self.following < self.count

    def take(self) -> int:
        """Start the next cluster."""
        self.following += 1
        return self.following - 1

    def cancel(self) -> int | None:
        """Cancel the next cluster; ``None`` if there is none that may be cancelled."""
        self.asked += 1
        if not self or not self.cancels:
            return None
        self.cancelled += 1
        return self.take()


class Watch(Generic[_Resident]):
    """Checks after each sweep whether a launch can still end. Both backends use it, each with its own kind of resident CTAs.

    ``digest`` is that of the state on which the continuation of the launch depends; ``standing`` that of each CTA; ``expire`` lets
    waits on mbarriers expire, ``arrive_diverged`` lets lanes at aligned barriers arrive, ``force_yield`` is that of the warps: all
    return whether this may make progress; ``where`` lists waiting lanes; ``grow`` makes more CTAs resident, if there are more.
    ``launcher``: the program, if it can go on while the launch waits for it.
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
        launcher: Launcher | None = None,
    ) -> None:
        self.launcher = launcher
        self.digest, self.standing, self.expire, self.where, self.grow = digest, standing, expire, where, grow
        self.arrive_diverged, self.force_yield = arrive_diverged, force_yield
        self._quiet = 0
        #: sweeps with progress, and the last state after some of them
        self._passing = 0
        self._passed = b""
        #: consecutive expirations of waits, without progress
        self._expirations = 0
        self._last = b""
        self._expired_states: set[bytes] = set()
        #: whether a warp ever waited at an mbarrier
        self._waits = False
        #: in a livelock, remaining sweeps to find a warp at an mbarrier for the message
        self._sweeps_left = 0

    def after(self, progress: bool, window: Sequence[_Resident]) -> None:
        """``progress``: a CTA ended, or a barrier or phase completed. Raises ``Deadlock``."""
        unexamined = self.launcher is not None and self.launcher.swept(progress)
        if progress and self.launcher is not None and self._circles(window) and not self.launcher.waits():
            raise livelock(item for cta in window for item in self.where(cta))
        if progress or unexamined:
            self._quiet = self._expirations = 0
            return
        standings = [self.standing(cta) for cta in window]
        stuck = Standing.STUCK in standings
        self._waits = self._waits or stuck
        if self._sweeps_left:
            self._sweeps_left -= 1
            if stuck or not self._sweeps_left:
                raise (deadlock if stuck else livelock)(item for cta in window for item in self.where(cta))
            return
        self._quiet += 1
        if self._quiet & (self._quiet - 1) == 0:
            digest = self.digest(window)
            if self._quiet > 1 and digest == self._last:
                helps = digest not in self._expired_states and any([self.expire(cta) for cta in window])
                if helps:
                    self._expired_states.add(digest)
                if helps or self._arrive_diverged(window) or any([self.force_yield(cta) for cta in window]):
                    self._quiet = 0
                elif self.grow() or (self.launcher is not None and self.launcher.waits()):
                    self._quiet = self._expirations = 0
                elif stuck or not self._waits:
                    raise (deadlock if stuck else livelock)(
                        item for cta in window for item in self.where(cta)
                    )
                else:
                    self._sweeps_left = 3
                return
            self._last = digest
        if stuck and Standing.RUNS not in standings:
            self._expirations += 1
            if self._expirations == ARRIVE_AFTER and self._arrive_diverged(window):
                return
            if self._expirations > MOST_EXPIRATIONS and self.grow():
                self._quiet = self._expirations = 0
                return
            if self._expirations > MOST_EXPIRATIONS:
                raise deadlock(item for cta in window for item in self.where(cta))
            for cta in window:
                self.expire(cta)

    def _circles(self, window: Sequence[_Resident]) -> bool:
        """Whether the state repeats although barriers complete. Looked at after 1, 2, 4 … times ``CIRCLING`` sweeps."""
        self._passing += 1
        if self._passing < CIRCLING or self._passing & (self._passing - 1):
            return False
        before, self._passed = self._passed, self.digest(window)
        if before != self._passed:
            return False
        self._passing = CIRCLING // 2
        return True

    def _arrive_diverged(self, window: Sequence[_Resident]) -> bool:
        return any([self.arrive_diverged(cta) for cta in window])


def _force_yield(cta: Cta) -> bool:
    return any([warp.force_yield() for warp in cta.warps if warp.live])


def _waiting(cta: Cta) -> Iterable[Waiting]:
    return (item for warp in cta.warps if warp.live for item in warp.waiting())


def run_ctas(
    pending: Pending,
    room: Room,
    start: Callable[[int], Cluster],
    memory: Callable[[], Iterable[bytes]],
    launcher: Launcher | None = None,
) -> None:
    """Run clusters, as many CTAs at a time as there is ``room`` for; ``start`` creates one by its number, ``memory`` returns the
    memory that all CTAs share, for the digest; ``launcher``: see ``Watch``.

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
        _waiting,
        room.grow,
        launcher,
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
    """Start a cluster: visit it once, and again until it makes a request, if it may make any."""
    requests, passed = pending.asked, 0
    cluster.visit()
    while pending.cancels and pending and pending.asked == requests and cluster.left:
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
