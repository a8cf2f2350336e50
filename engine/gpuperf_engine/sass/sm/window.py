"""The activity of warps and units of a simulated SM in a window of clocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...jit.ir.sm_records import CAUSE_BIT, Event, Kind, Op
from .operations import Operations, unit_of
from .simulate import Simulated
from .waits import name_of

__all__ = ["Bar", "Window", "window_of"]

_UNITS = ("lsu", "l2", "dram", "tensor")
_POSITION = (1 << CAUSE_BIT) - 1


@dataclass(frozen=True, slots=True)
class Bar:
    """Activity of a ``row`` from one clock to another, exclusive, for the instruction at a position. A warp (``0.3``: the third of
    sub-partition 0) waits, by cause, or issues (``selected``); a unit (``0 fma``: of sub-partition 0; ``lsu``, ``l2``, ``dram``) is
    ``busy``. ``on``: the instruction that is waited for."""

    row: str
    what: str
    start: int
    end: int
    at: int
    on: int


@dataclass(frozen=True, slots=True)
class Window:
    """The clocks ``start`` to ``end``, exclusive, of the ``clocks`` that one SM was simulated. ``texts``: instructions by position."""

    start: int
    end: int
    clocks: int
    bars: tuple[Bar, ...]
    texts: tuple[str, ...]


def window_of(operations: Operations, seen: Simulated, start: int, end: int, each: int) -> Window:
    """The window of a simulation; ``each``: warp slots of a sub-partition."""
    items, numbers = operations.items, operations.numbers
    kinds, busy = operations.counted(Op.KIND, np.uint16), operations.counted(Op.BUSY, np.uint16)
    bars: list[Bar] = []

    def add(row: str, what: str, first: int, last: int, at: int, on: int) -> None:
        first, last = max(first, start), min(last, end)
        if first < last:
            bars.append(Bar(row, what, first, last, at, on))

    columns = [
        field // 8
        for field in (
            Event.WHAT,
            Event.PART,
            Event.WARP,
            Event.OP,
            Event.SINCE,
            Event.AT,
            Event.NOW,
            Event.WHY,
        )
    ]
    for what, part, warp, at, since, ready, now, why in seen.events[:, columns].tolist():
        if what == 2:
            add(_UNITS[part], "busy", since, now, at, at)
            continue
        row, on = f"{warp // each}.{warp % each}", why & _POSITION
        cause = name_of(why >> CAUSE_BIT, items[at], items[on], int(kinds[on]), numbers.architecture)
        if what == 1:
            add(row, cause, since, now, at, on or at)
            continue
        add(row, cause, since, min(ready, now), at, on)
        # The simulation does not separate waits for a pipe, the queue or other warps within the window.
        add(row, "not_selected", max(since, ready), now, at, at)
        add(row, "selected", now, now + 1, at, at)
        if kinds[at] < Kind.SHARED:
            add(
                f"{part} {unit_of(items[at], numbers.architecture)}",
                "busy",
                now,
                now + max(1, int(busy[at])),
                at,
                at,
            )
    return Window(start, end, seen.ended, tuple(bars), tuple(item.text for item in items))
