"""Stream operations while a kernel waits for the program.

An operation executes when it is enqueued, and its call returns when it has completed, with one exception: a kernel that waits for
memory to change, which nothing else can change while the call lasts. Kernels with loops that may wait run on a thread of their own.
If the state of such a launch repeats, it can only go on when the program has written to memory: its call returns, and from then on
it runs beside the program, for a moment at a time, as on a GPU. Operations that come after it in the order of streams are kept until
it has ended. A call that must wait for it lets it run; if its state repeats then, too, and no other thread of the program can change
memory, it can never end, which is an error.

One thread executes operations at a time: the one that holds ``State.lock``, or a flight to which that one has lent its turn.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakSet, proxy

from . import THREADS_BEFORE, threads

if TYPE_CHECKING:
    from .state import State

__all__ = ["Flight", "Operation", "Work"]

#: seconds between two attempts of a launch to go on, at first and at most
_SOONEST, _LATEST = 0.0001, 0.002
#: seconds that a launch runs beside the program at a time
_PIECE = 0.02
#: seconds that a call waits for a launch whose state repeats, if other threads of the program may change memory
_PATIENCE = 10.0
#: functions that wait for everything, and those that wait for what the default stream waits for
_ALL = re.compile(
    r"cuda((Device|Thread)Synchronize|DeviceReset|ThreadExit|Free(Host|Array|MipmappedArray)?|HostUnregister|LibraryUnload)$"
    r"|cu(CtxSynchronize|CtxDestroy|DevicePrimaryCtxRe(lease|set)|MemFree(Host)?|MemHostUnregister|(Module|Library)Unload"
    r"|(Mipmapped)?ArrayDestroy|MemUnmap|MemRelease)(_v2)?$"
)
_COPIES = re.compile(r"cu(da)?Mem(cpy|set)(?!\w*Async)")


_all: WeakSet[Work] = WeakSet()


def _forked() -> None:
    """Threads do not survive a fork."""
    for work in _all:
        work.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


@dataclass(eq=False)
class Operation:
    """An operation that has not ended. ``joined``: whether the legacy default stream waits for its stream, and it for that."""

    run: Callable[[], object]
    stream: int
    joined: bool
    before: list[Operation] = field(default_factory=list)
    begun: bool = False
    ended: bool = False
    error: BaseException | None = None

    @property
    def ready(self) -> bool:
        return not self.begun and all(other.ended for other in self.before)


class Flight:
    """A thread that executes operations beside the program; the ``simt.launch.Launcher`` of their launches."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.operation: Operation | None = None
        #: whether the program has gone on during this launch
        self.away = False
        #: whether the state repeated when the launch last stopped
        self.repeats = False
        #: whether a call waits for it, which must learn whether the state repeats; and whether it must end
        self.awaited = self.given_up = False
        self._stop: Callable[[], None] | None = None
        self._refresh: Callable[[], None] | None = None
        self._quiet = 0
        self._since = self._delay = 0.0
        #: whether it has the turn of a thread that waits until it gives it back, or holds the lock itself
        self._lent = True
        self._turn, self._back = threading.Lock(), threading.Lock()
        self._turn.acquire()
        self._back.acquire()
        self._thread = threading.Thread(target=self._work, name="gpuperf-kernel", daemon=True)
        self._thread.start()

    @property
    def ident(self) -> int | None:
        return self._thread.ident

    def lend(self, *, awaited: bool = False) -> None:
        """Let it go on until it stops. The calling thread holds the lock."""
        self._lent, self.awaited = True, awaited
        self._turn.release()
        try:
            self._back.acquire()
        except BaseException:  # the interrupted call must not return before the launch has stopped
            if self._stop is not None:
                self._stop()
            while True:
                try:
                    self._back.acquire()
                    break
                except BaseException:
                    continue
            raise

    def _give_back(self) -> None:
        self.awaited = False
        if self._lent:
            self._back.release()
        else:
            self.work.state.lock.release()

    def _work(self) -> None:
        while True:
            self._turn.acquire()
            assert self.operation is not None
            self.execute(self.operation)
            self.repeats = False
            self.work.execute_ready(self)
            self.operation = None
            self.work.landed(self)
            self._give_back()

    def execute(self, operation: Operation) -> None:
        """Execute an operation; its error is kept."""
        operation.begun, self.away = True, False
        try:
            operation.run()
        except BaseException as error:
            operation.error = error
        self._stop = self._refresh = None
        operation.ended = True
        self.work.operations.remove(operation)

    # -- for the launch -------------------------------------------------------------------------------------------------------

    def begins(self, stop: Callable[[], None], refresh: Callable[[], None]) -> None:
        """See ``Launcher``."""
        self._stop, self._refresh = stop, refresh
        self.away = self.repeats = False
        self._delay = _SOONEST

    def swept(self, progress: bool) -> bool:
        """See ``Launcher``."""
        if not self.away:
            return False
        self._quiet = 0 if progress else self._quiet + 1
        if progress:
            self._delay = _SOONEST
        if (progress or self.awaited) and time.perf_counter() - self._since < _PIECE:
            return False
        if not progress and not self.awaited and self._quiet < 2:
            return True
        awaited = self.awaited
        self._pause(repeats=False)
        return not awaited

    def waits(self) -> bool:
        """See ``Launcher``."""
        self._pause(repeats=True)
        return not self.given_up

    def _pause(self, *, repeats: bool) -> None:
        self.away, self.repeats = True, repeats
        self._give_back()
        lock = self.work.state.lock
        while not self._turn.acquire(timeout=self._delay):
            self._delay = min(2 * self._delay, _LATEST)
            if lock.acquire(blocking=False):
                self._lent = False
                break
        self._quiet, self._since = 0, time.perf_counter()
        if self._refresh is not None:
            self._refresh()


class Work:
    """The operations that have not ended, in the order in which they were enqueued. There are none in most programs."""

    def __init__(self, state: State) -> None:
        # weak, so that the device's memory is freed without a garbage collection
        self.state: State = proxy(state)
        self.operations: list[Operation] = []
        self.flights: list[Flight] = []
        #: whether the program ends
        self.ending = False
        self._idle: list[Flight] = []
        self._changes = threading.Condition(state.lock)
        #: threads that the engine and its libraries had started when the program first called CUDA
        self._own = threads() - THREADS_BEFORE
        _all.add(self)

    def forget(self) -> None:
        """Forget everything that threads would end."""
        self.operations.clear()
        self.flights.clear()
        self._idle.clear()

    @property
    def flight(self) -> Flight | None:
        """That of the calling thread."""
        ident = threading.get_ident()
        return next((flight for flight in self.flights if flight.ident == ident), None)

    def submit(
        self,
        stream: int,
        joined: bool,
        run: Callable[[], object],
        *,
        waits: bool = False,
        alone: bool = False,
        after: Iterable[Operation] = (),
    ) -> Operation | None:
        """Execute an operation, or keep it until those before it have ended: then it is returned. ``waits``: whether it may wait for
        the program; ``alone``: whether it comes after all others, of whatever stream; ``after``: further ones that it comes after.
        Raises its error."""
        if not self.operations and not waits:
            run()
            return None
        operation = Operation(run, stream, joined)
        operation.before = [
            other
            for other in self.operations
            if alone or other.stream == stream or (other.joined and joined and 0 in (stream, other.stream))
        ]
        operation.before += [other for other in after if not other.ended]
        if operation.before:
            self.operations.append(operation)
            return operation
        if not waits:
            run()
            return None
        self.operations.append(operation)
        flight = self._idle.pop() if self._idle else Flight(self)
        flight.operation = operation
        self.flights.append(flight)
        flight.lend()
        if operation.error is not None:
            raise operation.error
        return None if operation.ended else operation

    def execute_ready(self, flight: Flight) -> None:
        """Execute the operations that nothing holds back any more, on the thread of a flight."""
        while (ready := next((item for item in self.operations if item.ready), None)) is not None:
            if self.state.sticky:
                ready.ended = True
                self.operations.remove(ready)
                continue
            flight.execute(ready)
            if ready.error is not None:
                self.state.late(ready.error)

    def landed(self, flight: Flight) -> None:
        """The flight has nothing to do any more."""
        self.flights.remove(flight)
        flight.given_up = False
        self._idle.append(flight)

    # -- calls that wait ------------------------------------------------------------------------------------------------------

    def meets(self, name: str) -> None:
        """A function is called while operations have not ended: wait for those that it waits for."""
        if _ALL.match(name):
            self.wait(lambda operation: True)
        elif _COPIES.match(name):
            self.wait(lambda operation: operation.joined)

    def of(self, stream: int) -> Callable[[Operation], bool]:
        """Whether an operation comes before the next one of a stream: the default one joins others."""
        return lambda item: item.stream == stream or (item.joined and not stream)

    def unfinished(self, wanted: Callable[[Operation], bool]) -> bool:
        """Whether some of these operations have not ended, after those that can go on have run for a moment."""
        if any(map(wanted, self.operations)):
            for flight in [*self.flights]:
                flight.lend()
        return any(map(wanted, self.operations))

    def wait(self, wanted: Callable[[Operation], bool], patience: float = _PATIENCE) -> None:
        """Wait for operations. A launch that can never end fails then."""
        since = None
        while any(map(wanted, self.operations)):
            # before the launch is examined, as a thread may write what it waits for, and end
            others = self._others()
            repeats = True
            for flight in [*self.flights]:
                flight.lend(awaited=True)
                repeats = repeats and flight.repeats
            if not repeats:
                since = None
                self._changes.wait(0)
                continue
            since = since or time.monotonic()
            if time.monotonic() - since < patience and others:
                self._changes.wait(_LATEST)  # without the lock
                continue
            for flight in [*self.flights]:
                flight.given_up = True
                flight.lend(awaited=True)

    def finish(self) -> None:
        """The program ends: so do the operations that can, without the program."""
        with self.state.lock:
            self.ending = True
            self.wait(lambda operation: True, patience=0)

    def _others(self) -> bool:
        """Whether the program has threads other than the calling one."""
        own = {str(one.native_id) for one in threading.enumerate() if one.name.startswith("gpuperf")}
        return len(threads() - self._own - own) > 1
