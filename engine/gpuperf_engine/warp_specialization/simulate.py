"""Discrete-event simulation of a warp-specialised tile: DMA warps and MATH warps that wait for each other at the barriers of the
buffers.

It shares no code with the recurrences (``recurrence``): each warp is a process that acquires and releases buffers, and an event queue
selects the next one. For constant stage times both have the same results; here the times may differ between stages.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from itertools import count, repeat
from typing import TypeAlias

from ..errors import EngineError

__all__ = ["Interval", "Timeline", "simulate"]

Times: TypeAlias = "float | Sequence[float]"


@dataclass(frozen=True, slots=True)
class Interval:
    """The activity of a warp (``DMA``, ``DMA A``, ``DMA B`` or ``MATH``) from ``start`` to ``end``: ``load A``, ``load B``, ``math``,
    ``epilogue``, ``wait empty`` (for a free buffer) or ``wait full`` (for a loaded one). ``stage`` counts from 0."""

    warp: str
    what: str
    stage: int
    start: float
    end: float

    @property
    def is_wait(self) -> bool:
        return self.what.startswith("wait")


@dataclass(frozen=True, slots=True)
class Timeline:
    """Intervals of a tile in the order of their starts, and until when: of the whole tile its ``end``. Times as given, from 0."""

    intervals: tuple[Interval, ...]
    end: float

    def of(self, what: str) -> list[Interval]:
        return [item for item in self.intervals if item.what == what]

    @property
    def warps(self) -> tuple[str, ...]:
        return tuple(sorted({item.warp for item in self.intervals}))

    def until(self, end: float) -> Timeline:
        """Return the intervals that start before a time, with their ends unchanged."""
        return Timeline(tuple(item for item in self.intervals if item.start < end), end)

    def waited(self, warp: str) -> float:
        return sum(item.end - item.start for item in self.intervals if item.warp == warp and item.is_wait)


@dataclass(slots=True)
class _Barrier:
    """Completed phases of one buffer, and the processes that wait for one of them."""

    phases: int = 0
    waiting: list[tuple[int, _Process]] = field(default_factory=list)


#: the next activity of a process: its duration, or the barrier and phase it waits for
_Delay: TypeAlias = "tuple[str, int, float]"
_Wait: TypeAlias = "tuple[str, int, _Barrier, int]"
_Steps: TypeAlias = "Generator[_Delay | _Wait, None, None]"
_Process: TypeAlias = "tuple[str, _Steps]"


class _Queue:
    """Processes, the times at which they resume, and their intervals until ``now``."""

    def __init__(self) -> None:
        self.now = 0.0
        self.intervals: list[Interval] = []
        self._order = count()
        self._later: list[tuple[float, int, _Process]] = []
        #: by warp: its wait, the start, and the stage
        self._blocked: dict[str, tuple[str, float, int]] = {}

    def run(self, processes: Sequence[_Process]) -> None:
        for process in processes:
            self._advance(process)
        while self._later:
            self.now, _, process = heapq.heappop(self._later)
            self._advance(process)

    def complete(self, barrier: _Barrier) -> None:
        """Complete one more phase of a barrier, and resume the processes that wait for it."""
        barrier.phases += 1
        ready = [process for phase, process in barrier.waiting if phase <= barrier.phases]
        barrier.waiting = [item for item in barrier.waiting if item[0] > barrier.phases]
        for process in ready:
            self._advance(process)

    def _advance(self, process: _Process) -> None:
        """Run the process until it waits for a barrier or a time."""
        now = self.now
        warp, steps = process
        since = self._blocked.pop(warp, None)
        if since is not None and now > since[1]:
            self.intervals.append(Interval(warp, since[0], since[2], since[1], now))
        for step in steps:
            if len(step) == 3:
                what, stage, duration = step
                self.intervals.append(Interval(warp, what, stage, now, now + duration))
                heapq.heappush(self._later, (now + duration, next(self._order), process))
                return
            what, stage, barrier, phase = step
            if barrier.phases < phase:
                barrier.waiting.append((phase, process))
                self._blocked[warp] = what, now, stage
                return


class _Buffers:
    """The buffers of a tile, for both matrices, and the processes of its warps over ``stages``."""

    def __init__(self, stages: int, depth: int, queue: _Queue) -> None:
        self.stages, self.depth, self.queue = stages, depth, queue
        self.full = [[_Barrier() for _ in range(depth)] for _ in range(2)]
        self.empty = [_Barrier() for _ in range(depth)]

    def load(self, loads: Sequence[tuple[int, str, Sequence[float]]]) -> _Steps:
        """The process of a DMA warp. ``loads``: for each of its matrices the number, the name of the interval, and the times."""
        for stage in range(self.stages):
            slot, lap = stage % self.depth, stage // self.depth
            yield "wait empty", stage, self.empty[slot], lap
            for matrix, what, times in loads:
                yield what, stage, times[stage]
                self.queue.complete(self.full[matrix][slot])

    def consume(self, times: Sequence[float], epilogue: float) -> _Steps:
        """The process of the MATH warps."""
        for stage in range(self.stages):
            slot, lap = stage % self.depth, stage // self.depth
            for matrix in self.full:
                yield "wait full", stage, matrix[slot], lap + 1
            yield "math", stage, times[stage]
            self.queue.complete(self.empty[slot])
        if epilogue:
            yield "epilogue", self.stages - 1, epilogue


def simulate(
    load_a: Times,
    load_b: Times,
    math: Times,
    *,
    stages: int,
    depth: int = 2,
    dma_warps: int = 1,
    epilogue: float = 0.0,
) -> Timeline:
    """Run one tile. Times are numbers, or sequences of one number for each stage, in any unit.

    Raises :class:`EngineError` for sequences of another length, negative times, and invalid depths or numbers of warps.
    """
    if stages < 1 or depth < 1 or dma_warps not in (1, 2):
        raise EngineError(
            f"{stages} stages through {depth} buffers with {dma_warps} DMA warps",
            hint="at least 1 stage and 1 buffer, and 1 or 2 DMA warps, can be simulated",
        )
    a, b, t = (
        _each(part, stages, name) for part, name in ((load_a, "load_a"), (load_b, "load_b"), (math, "math"))
    )
    both = (0, "load A", a), (1, "load B", b)
    queue = _Queue()
    buffers = _Buffers(stages, depth, queue)
    producers = (("DMA", both),) if dma_warps == 1 else (("DMA A", both[:1]), ("DMA B", both[1:]))
    queue.run(
        [
            *((warp, buffers.load(loads)) for warp, loads in producers),
            ("MATH", buffers.consume(t, epilogue)),
        ]
    )
    intervals = sorted(queue.intervals, key=lambda item: (item.start, item.end, item.warp))
    return Timeline(tuple(_joined(intervals)), max(item.end for item in intervals))


def _joined(intervals: Sequence[Interval]) -> list[Interval]:
    """Merge the waits of a warp for both matrices of a stage."""
    joined: list[Interval] = []
    last: dict[tuple[str, str, int], int] = {}
    for item in intervals:
        key = item.warp, item.what, item.stage
        before = last.get(key)
        if item.is_wait and before is not None and joined[before].end == item.start:
            joined[before] = Interval(*key, joined[before].start, item.end)
        else:
            last[key] = len(joined)
            joined.append(item)
    return joined


def _each(times: Times, stages: int, name: str) -> Sequence[float]:
    each = (
        list(repeat(float(times), stages)) if isinstance(times, (int, float)) else [float(x) for x in times]
    )
    if len(each) != stages:
        raise EngineError(f"{name} has {len(each)} times for {stages} stages", hint="give one for each stage")
    if min(each) < 0:
        raise EngineError(f"{name} has the negative time {min(each):g}")
    return each
