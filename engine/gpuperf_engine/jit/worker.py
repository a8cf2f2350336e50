"""One host thread that runs CTAs: calls compiled code, and handles warps that leave it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..simt.faults import WarpPosition, deadlock
from ..simt.schedule import Standing
from .ir.abi import Context, Cta, State
from .ir.codes import Status, Wait
from .launch import Launch
from .slots import Group, Slot, Warp

if TYPE_CHECKING:
    from .slow_path import NativeWarp

__all__ = ["NEEDS_PYTHON", "Stopped", "Worker", "in_pieces"]

#: added to the status of a visit that Python must continue
NEEDS_PYTHON = 8
#: seconds of compiled code at a time
_PIECE = 0.1


class Stopped(Exception):
    """Another thread stopped the launch, or a callback of compiled code failed."""


class Worker:
    """Runs CTAs of a launch on the calling thread, with its own context."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.context = launch.context()
        #: clusters not in flight
        self.groups: list[Group] = []

    @property
    def left(self) -> Counter[tuple[int, int]]:
        """How often warps left compiled code, by event and block."""
        return self.context.left

    def get(self, offset: int) -> int:
        """A field of the context, unsigned."""
        return self.context.get(offset)

    @property
    def following(self) -> int:
        """The next cluster in launch order, or CTA without clusters, that has neither started nor been cancelled."""
        return self.get(Context.FOLLOWING)

    def follow(self, number: int) -> None:
        """Set ``following``."""
        self.context.put({Context.FOLLOWING: number})

    def until_it_asks(self, start: Callable[[], bool], again: Callable[[], bool]) -> bool:
        """Start a CTA or cluster of a launch whose CTAs cancel others, by the rules of ``simt.schedule``: ``start`` and ``again``
        visit it and return whether it has ended."""
        asked, passed = self.get(Context.ASKED), self.get(Context.PASSED)
        ended = start()
        while not ended and self.following < self.launch.units and self.get(Context.ASKED) == asked:
            before, passed = passed, self.get(Context.PASSED)
            if passed == before:
                break
            ended = again()
        return ended

    # ------------------------------------------------------------------------------------------------- running

    def call(self, name: str, record: int, *more: int) -> int:
        """Call a function of the runtime on the record of a CTA or cluster, or on the state of a warp. Raises
        ``Stopped``."""
        if self.launch.stopped or self.launch.failed is not None:
            raise Stopped
        return self.launch.functions[name](self.context.address, record, *more)

    def run(self, slot: Slot, first: int, last: int) -> tuple[int, bool]:
        """Run CTAs from ``first`` on, until ``last`` or until one does not end in its visit. Returns its index, and whether all
        ended."""
        return in_pieces(
            lambda start, stop: self.call("run", slot.address, start, stop),
            lambda status: self._settle(slot, status),
            first,
            last,
        )

    def visit(self, slot: Slot) -> bool:
        """Visit a CTA in flight again. Returns whether it has ended."""
        return self._settle(slot, self.call("visit", slot.address))

    def _settle(self, slot: Slot, status: int) -> bool:
        """Complete a visit, with what Python must do for warps. Returns whether the CTA has ended."""
        status = self.proceed(slot, status)
        if status == Status.BLOCKED:
            self.arrive_diverged(slot)
            raise deadlock(item for warp in self.warps(slot) for item in warp.waiting())
        if status == Status.DONE:
            slot.end()
        return status == Status.DONE

    def proceed(self, slot: Slot, status: int) -> int:
        """Continue a visit as long as it needs Python. Returns its status."""
        while status >= NEEDS_PYTHON:
            self.warp(slot, slot.get(Cta.POSITION)).attend(status - NEEDS_PYTHON)
            status = self.call("proceed", slot.address)
        return status

    # ------------------------------------------------------------------------------------------------ for the slow path

    def warp(self, slot: Slot, index: int) -> NativeWarp:
        """The view of one warp, cached while its CTA is in flight, as it may have state of waiting lanes."""
        from .slow_path import NativeWarp

        warp = slot.warps.get(index)
        if warp is None:
            size = self.launch.code.generated.state_bytes
            state = slot.states[index * size : (index + 1) * size]
            position = WarpPosition(self.launch.program, self.launch.plan, slot.get(Cta.INDEX), index)
            warp = slot.warps[index] = NativeWarp(self, position, state, slot)
        assert isinstance(warp, NativeWarp)
        warp.worker = self
        return warp

    def warps(self, slot: Slot) -> list[Warp]:
        """All warps of a CTA that have not ended."""
        warps = [self.warp(slot, index) for index in range(self.launch.plan.warps_per_cta)]
        return [warp for warp in warps if warp.header(State.WAIT) != Wait.DONE]

    # ------------------------------------------------------------------------------------------------- for the watch

    def standing(self, slot: Slot) -> Standing:
        """Whether a warp of a CTA can run."""
        states = slot.states.reshape(-1, self.launch.code.generated.state_bytes)
        waits, seen = (
            states[:, offset : offset + 4].copy().view("<u4")[:, 0] for offset in (State.WAIT, State.SEEN)
        )
        suspended = waits == Wait.SUSPENDED
        phases = slot.get(Cta.PHASES) & 0xFFFFFFFF
        if np.isin(waits, (Wait.RUNNABLE, Wait.SLICE_OVER)).any() or (seen[suspended] != phases).any():
            return Standing.RUNS
        return Standing.STUCK if suspended.any() or (waits == Wait.GATHERS).any() else Standing.WAITS

    def arrive_diverged(self, slot: Slot) -> bool:
        """Let lanes at aligned barriers arrive without the rest of their warps. Returns whether there were any. In code that does not
        count lanes there, it raises ``ArrivesDiverged`` if the launch can restart, or the rule's violation if that is an error."""
        launch = self.launch
        if not launch.diverged:
            for warp in self.warps(slot):
                warp.refuse_diverged()
            return False
        status = self.call("arrive_diverged", slot.address)
        if status >= NEEDS_PYTHON:
            self.warp(slot, slot.get(Cta.POSITION)).attend(status - NEEDS_PYTHON)
        return status == 1

    def expire(self, slot: Slot) -> bool:
        """Let waits on mbarriers expire. Returns whether there were any."""
        return bool(self.call("expire", slot.address))


def in_pieces(
    run: Callable[[int, int], int], settle: Callable[[int], bool], first: int, last: int
) -> tuple[int, bool]:
    """Run CTAs or clusters from ``first`` on, until ``last`` or until one does not end. Returns its number, and whether all ended.

    ``run(first, last)`` returns the status in the low 4 bits and the number above; ``settle(status)`` whether that one has ended.
    Each call of compiled code takes at most about ``_PIECE`` seconds, so that keyboard interrupts are handled.
    """
    some = 32
    while first < last:
        start = time.perf_counter()
        answer = run(first, min(last, first + some))
        some = some * 2 if time.perf_counter() - start < _PIECE else some
        status, number = answer & 15, answer >> 4
        if status != Status.DONE and not settle(status):
            return number, False
        first = number if status == Status.DONE else number + 1
    return last, True
