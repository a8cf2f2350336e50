"""Who runs when: CTAs, their warps and turns, and how a launch that cannot end is found out.

The schedule is a fixed function of the program and its input, the same for both backends:

* A *window* of CTAs is resident: at the start of every round, places that finished CTAs left are taken by the next CTAs in
  index order, behind those that are there. A round visits the resident CTAs in that order.
* A *visit* gives every warp of the CTA a turn of ``TURN`` units of fuel, then makes passes over its warps in index order,
  running each that neither waits nor has had its turn, until none is left. A warp that comes to a CTA barrier,
  ``bar.arrive`` included, steps aside until the next pass; one whose barrier completes goes on with what is left of its turn.
* A back edge costs its block's ``fuel``: 64 in loops that may wait for other threads, else 1. It is paid when the running
  split goes over it, and 1 for a call of a recursive function. Of a branch whose lanes part, the split pays for the edge that
  it takes itself; a ``brx.idx`` whose lanes part pays once if any of them goes over a back edge. When the fuel is used up the
  turn is over, after the move; in a loop that may wait, lanes of the same warp take turns as well (``warp``). Turns of warps
  whose lanes need each other to get on are shorter (``warp.Patience.haste``).
* Whenever a warp stops, at its end too, the warp instructions that it has executed are held against ``max_instructions``.

A CTA whose warps all wait can never go on: that is a deadlock, as are lanes of one warp that wait for lanes of the same warp
that never come. A livelock is found by comparing: after 1, 2, 4, 8 … rounds in which no CTA ended and no barrier completed, a
digest of everything that decides how the launch goes on is taken; if it is that of the time before, the launch runs in
circles. Then warps whose lanes wait at reconvergence points for lanes that spin are urged (``warp.Warp.urge``); if there is
none, it is an error.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Protocol

from .barriers import Barriers
from .diagnose import Waiting, deadlock, livelock

__all__ = ["TURN", "Cta", "Status", "WarpRunner", "run_ctas"]

#: fuel of one turn
TURN = 1 << 12


class Status(Enum):
    """Why a warp stopped."""

    READY = "ready"  # came to a barrier and may go on in the next pass
    WAITS = "waits"  # some of its lanes wait at a CTA barrier, and no other lanes can run
    TURN_OVER = "turn over"
    DONE = "done"


class WarpRunner(Protocol):
    """One warp, as the schedule sees it."""

    @property
    def live(self) -> int:
        """Lanes that have not exited."""

    def refuel(self, fuel: int) -> None:
        """A new turn begins."""

    def resume(self) -> Status:
        """Run until the warp must stop. Lanes that come to a barrier have been entered in the CTA's ``Barriers``."""

    def release(self, lanes: int, true: int, false: int) -> None:
        """A barrier let these lanes go; so many lanes arrived with a true and a false predicate."""

    def urge(self) -> bool:
        """The launch runs in circles; whether the warp can try something else from now on."""

    def state(self) -> Iterable[bytes]:
        """Everything that decides how the warp goes on, memory aside."""

    def where(self) -> Iterable[Waiting]:
        """Where its lanes are or wait."""


class Cta:
    """A resident CTA: its warps, barriers, and memory that is its own (for the digest)."""

    def __init__(
        self, warps: Sequence[WarpRunner], barriers: Barriers, memory: Callable[[], Iterable[bytes]]
    ) -> None:
        self.warps = warps
        self.barriers = barriers
        self.memory = memory
        self.statuses = [Status.READY] * len(warps)
        #: barriers completed so far
        self.passed = 0

    def visit(self) -> bool:
        """One visit. Returns whether the CTA has finished. Raises ``Deadlock`` if none of its warps can ever go on."""
        for place, warp in enumerate(self.warps):
            warp.refuel(TURN)
            if self.statuses[place] is Status.TURN_OVER:
                self.statuses[place] = Status.READY
        while Status.READY in self.statuses:
            for place, warp in enumerate(self.warps):
                if self.statuses[place] is Status.READY:
                    self.statuses[place] = warp.resume()
                    self._release()
        if Status.TURN_OVER in self.statuses:
            return False
        if Status.WAITS in self.statuses:
            raise deadlock(item for warp in self.warps if warp.live for item in warp.where())
        return True

    def _release(self) -> None:
        live = {place: warp.live for place, warp in enumerate(self.warps) if warp.live}
        for completed in self.barriers.complete(live):
            self.passed += 1
            for place, lanes in completed.waiting.items():
                self.warps[place].release(lanes, completed.true, completed.false)
                if self.statuses[place] is Status.WAITS:
                    self.statuses[place] = Status.READY


def run_ctas(
    count: int, resident: int, start: Callable[[int], Cta], memory: Callable[[], Iterable[bytes]]
) -> None:
    """Run CTAs ``0 … count − 1``, at most ``resident`` at a time; ``start`` makes one ready, ``memory`` gives what they share.

    Raises ``Deadlock``, and whatever the warps raise.
    """
    window: list[Cta] = []
    following = quiet = 0
    last = b""
    while window or following < count:
        while len(window) < resident and following < count:
            window.append(start(following))
            following += 1
        passed = sum(cta.passed for cta in window)
        left = [cta for cta in window if not cta.visit()]
        progress = len(left) < len(window) or sum(cta.passed for cta in left) > passed
        window = left
        quiet = 0 if progress else quiet + 1
        if quiet and quiet & (quiet - 1) == 0:
            digest = _digest(window, memory)
            if quiet > 1 and digest == last:
                if any([warp.urge() for cta in window for warp in cta.warps if warp.live]):
                    quiet = 0
                    continue
                raise livelock(
                    item for cta in window for warp in cta.warps if warp.live for item in warp.where()
                )
            last = digest


def _digest(window: Sequence[Cta], memory: Callable[[], Iterable[bytes]]) -> bytes:
    made = hashlib.blake2b()
    for part in memory():
        made.update(part)
    for cta in window:
        made.update(repr(cta.barriers.state()).encode())
        for part in cta.memory():
            made.update(part)
        for warp in cta.warps:
            for part in warp.state():
                made.update(part)
    return made.digest()
