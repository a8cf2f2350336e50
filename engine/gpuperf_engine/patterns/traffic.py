"""The traffic that the advice of a finding saves, as shares of the traffic of launches.

The sectors of a launch are not recorded by object, so they are divided in proportion to the distinct bytes that it reads from, or
writes to, each object.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from ..device.events import Event, Use
from ..memory.arena import Allocation
from ..results import Traffic
from .program import Step

__all__ = ["Readers", "written_less"]


def written_less(step: Step, size: float, whole: bool = False) -> tuple[Traffic, ...]:
    """The savings of a step that writes so many bytes less; ``whole``: if it does nothing else, the step is removed."""
    event = step.event
    if event.kind != "launch":
        return (Traffic(event.number, copied=int(size), whole=whole, way=event.kind),)
    stores = _share(size, (use.bytes_written for use in event.uses))
    return (Traffic(event.number, stores=stores, whole=whole),)


class Readers:
    """The launches that load the values of a step: those before the object is written again."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._uses: dict[Allocation, list[tuple[Event, Use]]] = {}
        for step in steps:
            for use in step.event.uses:
                self._uses.setdefault(use.array.allocation, []).append((step.event, use))

    def without(self, step: Step, use: Use, share: float) -> Iterator[Traffic]:
        """The savings if loads of this share of the written values are omitted."""
        share *= use.written / max(1, use.elements)
        uses = self._uses.get(use.array.allocation, [])
        start = bisect_right(uses, step.event.number, key=lambda item: item[0].number)
        for event, later in islice(uses, start, None):
            if event.kind == "launch" and later.bytes_read:
                whole = (other.bytes_read for other in event.uses)
                yield Traffic(event.number, loads=_share(share * later.bytes_read, whole))
            if later.written and event.kept:
                return


def _share(size: float, whole: Iterable[int]) -> float:
    return min(1.0, size / max(1, sum(whole)))
