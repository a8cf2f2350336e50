"""Stores that write parts of sectors, and atomics on few lines of global memory.

L2 keeps data by sector: DRAM reads a sector that is written in part before it writes it, and L2 takes longer for such a store. Atomics
are executed by the slice of L2 that holds their sector, one lane of a word after the other.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ...jit.ir.sm_records import Kind, Op
from ...results import SECTOR_BYTES as _SECTOR
from ...simt.launch import LaunchPlan
from .classes import Classes
from .operations import Operations
from .settings import MOST_RUNS
from .sharing import ROW, Reuse, distinct, rows_of
from .simulate import Simulated

__all__ = ["atomic_turns", "filled_of", "partly_written", "weighted_turns"]

#: Sectors in a KiB, the size of a DRAM row too, and words in a sector.
_PER_KIB, _WORDS = ROW // _SECTOR, _SECTOR // 4
#: ``RED.E.ADD.F32.FTZ.RN.STRONG.GPU``, ``ATOM.E.ADD.BF16x2.RN.STRONG.GPU``
_FLOATS = re.compile(r"\.ADD\.B?F\d")


def filled_of(classes: Classes, alone: Callable[[int], float]) -> tuple[NDArray[np.uint8], ...]:
    """By class and line, the sectors (bits) that DRAM reads before it writes them: those that their CTA changes in part, unless it
    loads them too, or the CTAs between whose stores L2 loses nothing write as many words as their sectors have. ``alone``: the
    distinct sectors that these CTAs touch in a group, over the sum of the sectors of each."""
    typical, atomic = classes.typical, {group for _, group in classes.atomics}
    words = np.bitwise_count(typical.written).astype(np.int64)
    partly, loaded = [], []
    for number, group in enumerate(classes.groups):
        own = typical.groups == number
        store = group.space == "global" and group.store and bool(own.any())
        written, sectors = int(words[own].sum()), len(typical.touched(number))
        partly.append(store and (number in atomic or written < _WORDS * sectors * alone(number)))
        loaded.append(group.space == "global" and not group.store)
    return tuple(item.filled(partly, loaded) for item in classes.classes)


def partly_written(operations: Operations, seen: Simulated) -> int:
    """Lines of which a store wrote sectors in part, once for each store."""
    return int(seen.turns[operations.counted(Op.KIND, np.uint16) == Kind.STORE].sum())


def weighted_turns(operations: Operations, seen: Simulated) -> NDArray[np.float64]:
    """By position, the turns of atomics in L2: more for additions of floating-point numbers than of integers."""
    floats = np.array([_FLOATS.search(item.opcode) is not None for item in operations.items], np.bool_)
    return seen.turns.astype(np.float64) * np.where(floats, operations.numbers.float_turns, 1.0)


def atomic_turns(
    classes: Classes, plan: LaunchPlan, turns: NDArray[np.float64], room: Callable[[NDArray[np.int64]], int]
) -> float:
    """Turns of atomics in a KiB of memory, evenly divided among those that all CTAs of the launch touch. ``turns``: by position of the
    instruction; ``room``: the number of sectors of the arrays that contain some sectors."""
    of_group: dict[int, float] = {}
    for position, group in classes.atomics:
        of_group[group] = of_group.get(group, 0.0) + float(turns[position])
    return sum(count / max(1, _kib(classes, plan, group, room)) for group, count in of_group.items())


def _kib(classes: Classes, plan: LaunchPlan, number: int, room: Callable[[NDArray[np.int64]], int]) -> int:
    """Distinct aligned KiB that all CTAs touch in a group of accesses."""
    group, sectors = classes.groups[number], classes.typical.touched(number)
    if group.moves is None:
        touched = [item.touched(number) for item in classes.classes]
        mean = classes.mean([len(distinct(one // _PER_KIB)) for one in touched])
        whole = -(-room(np.concatenate(touched)) // _PER_KIB)
        return Reuse.drawn(mean, whole, plan.ctas, plan.ctas).once
    if not len(sectors):
        return 0
    ctas = classes.reaching(number, plan.ctas)
    once, _ = rows_of(sectors, group, plan.grid, ctas, classes.places(number, MOST_RUNS))
    return round(once * min(ctas, MOST_RUNS))
