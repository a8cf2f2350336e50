"""The sixteen barriers of a CTA (manual: ``bar``, ``barrier``).

A warp counts 32 threads once all of its living lanes have arrived, lanes that do not exist or have exited included; a path of a
warp, which only a barrier without ``.aligned`` allows, counts the lanes it brings until then. With a thread count the barrier
completes when that many have arrived (the last arrival's count holds); without, when every thread that lives has. ``bar.arrive``
counts but does not wait. On completion all who wait go on, the barrier is ready again, and ``.red`` gives each of them the
result over all lanes that arrived with a predicate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["BARRIERS", "Barriers", "Completed"]

BARRIERS = 16


@dataclass(slots=True)
class _Barrier:
    expected: int = 0  # threads; 0: all that live
    threads: int = 0
    arrived: dict[int, int] = field(default_factory=dict)  # warp → lanes
    partial: dict[int, int] = field(
        default_factory=dict
    )  # warp → lanes that came without the rest of their warp
    waiting: dict[int, int] = field(default_factory=dict)  # warp → lanes
    true: int = 0
    false: int = 0


@dataclass(frozen=True, slots=True)
class Completed:
    """A barrier that let its threads go: lanes by warp, and how many lanes arrived with a true and a false predicate."""

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
        """``lanes`` of a warp, of which ``live`` have not exited, arrive; ``holds`` are those whose predicate is true."""
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
        """For comparing: who has arrived where."""
        return tuple(
            (number, item.expected, item.threads, tuple(sorted(item.arrived.items())), item.true, item.false)
            for number, item in sorted(self._all.items())
        )
