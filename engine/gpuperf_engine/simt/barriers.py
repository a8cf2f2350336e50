"""The sixteen barriers of a CTA (manual: ``bar``, ``barrier``).

A warp counts as 32 threads, including lanes that do not exist or have exited, once all of its live lanes have arrived; until then, the
lanes of a path that has arrived (only at barriers without ``.aligned``) count individually. With a thread count, the barrier completes
when that many threads have arrived (the count of the last arrival applies); without, when all live threads have. ``bar.arrive``
counts but does not wait. On completion all waiting threads continue, the barrier is reset, and ``.red`` returns to each of them the
result over all lanes that arrived with a predicate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["BARRIERS", "Barriers", "Completed"]

BARRIERS = 16


@dataclass(slots=True)
class _Barrier:
    expected: int = 0  # threads; 0: all live ones
    threads: int = 0
    arrived: dict[int, int] = field(default_factory=dict)  # warp → lanes
    partial: dict[int, int] = field(
        default_factory=dict
    )  # warp → lanes that arrived without the rest of their warp
    waiting: dict[int, int] = field(default_factory=dict)  # warp → lanes
    true: int = 0
    false: int = 0


@dataclass(frozen=True, slots=True)
class Completed:
    """A completed barrier: the waiting lanes by warp, and the numbers of lanes that arrived with a true and with a false predicate."""

    waiting: Mapping[int, int]
    true: int
    false: int


class Barriers:
    """The barriers of one CTA."""

    def __init__(self) -> None:
        self._all: dict[int, _Barrier] = {}
        #: phases of mbarriers completed so far
        self.phases = 0

    def arrive(
        self, number: int, warp: int, lanes: int, *, live: int, expected: int, waits: bool, holds: int = 0
    ) -> None:
        """``lanes`` of a warp arrive; ``live`` are its lanes that have not exited, ``holds`` those whose predicate is true."""
        barrier = self._all.setdefault(number, _Barrier())
        barrier.expected = expected
        if lanes == live:
            barrier.threads += 32
        else:
            together = barrier.partial.get(warp, 0) | lanes
            barrier.threads += lanes.bit_count() + (32 - together.bit_count() if together == live else 0)
            barrier.partial[warp] = 0 if together == live else together
        barrier.arrived[warp] = barrier.arrived.get(warp, 0) | lanes
        barrier.true += (holds & lanes).bit_count()
        barrier.false += (lanes & ~holds).bit_count()
        if waits:
            barrier.waiting[warp] = barrier.waiting.get(warp, 0) | lanes

    def complete(self, live: Mapping[int, int]) -> list[Completed]:
        """The barriers that complete now, in order of their numbers; ``live`` are the lanes of each warp that have not exited."""
        done = []
        for number in sorted(self._all):
            barrier = self._all[number]
            if barrier.expected:
                ready = barrier.threads >= barrier.expected
            else:
                ready = all(not lanes & ~barrier.arrived.get(warp, 0) for warp, lanes in live.items())
            if ready:
                done.append(Completed(barrier.waiting, barrier.true, barrier.false))
                del self._all[number]
        return done

    def state(self) -> tuple[object, ...]:
        """The arrivals at all barriers, for comparing states."""
        return tuple(
            (number, item.expected, item.threads, tuple(sorted(item.arrived.items())), item.true, item.false)
            for number, item in sorted(self._all.items())
        )
