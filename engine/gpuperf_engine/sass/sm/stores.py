"""Stores that write parts of sectors, and atomics on few lines of global memory.

L2 keeps data by sector: DRAM reads a sector that is written in part before it writes it, and L2 takes longer for such a store. Atomics
are executed by the slice of L2 that holds their sector, one lane of a word after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ...jit.ir.sm_records import Kind, Op
from ...results import SECTOR_BYTES as _SECTOR
from ...simt.launch import LaunchPlan
from .operations import Operations
from .settings import MOST_RUNS
from .sharing import ROW, Reuse, rows_of
from .simulate import Simulated
from .streams import Classes

__all__ = ["atomic_turns", "filled_of", "partly_written"]

#: Sectors in a KiB, the size of a DRAM row too, and words in a sector.
_PER_KIB, _WORDS = ROW // _SECTOR, _SECTOR // 4


def filled_of(classes: Classes, ctas: int, found: Sequence[Reuse | None]) -> tuple[NDArray[np.uint8], ...]:
    """By class and line, the sectors (bits) that DRAM reads before it writes them: those that their CTA changes in part, unless it
    loads them too, or all CTAs together write as many words as their sectors have. ``found``: the reuse of each group."""
    typical, atomic = classes.typical, {group for _, group in classes.atomics}
    words = np.bitwise_count(typical.written).astype(np.int64)
    partly, loaded = [], []
    for number, (group, one) in enumerate(zip(classes.groups, found)):
        written = int(words[typical.groups == number].sum()) * classes.reaching(number, ctas)
        rest = one is not None and (number in atomic or written < _WORDS * one.once_of_all)
        partly.append(group.space == "global" and group.store and rest)
        loaded.append(group.space == "global" and not group.store)
    return tuple(item.filled(partly, loaded) for item in classes.classes)


def partly_written(operations: Operations, seen: Simulated) -> int:
    """Lines of which a store wrote sectors in part, once for each store."""
    return int(seen.turns[operations.counted(Op.KIND, np.uint16) == Kind.STORE].sum())


def atomic_turns(
    classes: Classes, plan: LaunchPlan, turns: NDArray[np.uint64], room: Callable[[NDArray[np.int64]], int]
) -> float:
    """Turns of atomics in a KiB of memory, evenly divided among those that all CTAs of the launch touch. ``turns``: by position of the
    instruction; ``room``: the number of sectors of the arrays that contain some sectors."""
    of_group: dict[int, int] = {}
    for position, group in classes.atomics:
        of_group[group] = of_group.get(group, 0) + int(turns[position])
    return sum(count / max(1, _kib(classes, plan, group, room)) for group, count in of_group.items())


def _kib(classes: Classes, plan: LaunchPlan, number: int, room: Callable[[NDArray[np.int64]], int]) -> int:
    """Distinct aligned KiB that all CTAs touch in a group of accesses."""
    group, sectors = classes.groups[number], classes.typical.touched(number)
    if group.moves is None:
        touched = [item.touched(number) for item in classes.classes]
        mean = classes.mean([len(np.unique(one // _PER_KIB)) for one in touched])
        whole = -(-room(np.concatenate(touched)) // _PER_KIB)
        return Reuse.drawn(mean, whole, plan.ctas, plan.ctas).once
    if not len(sectors):
        return 0
    ctas = classes.reaching(number, plan.ctas)
    once, _ = rows_of(sectors, group, plan.grid, ctas, classes.places(number, MOST_RUNS))
    return round(once * min(ctas, MOST_RUNS))
