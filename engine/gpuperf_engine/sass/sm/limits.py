"""Whether all numbers in the records of a simulation are within the tables that it indexes by them.

The compiled simulation checks no index: a number out of range would read or overwrite memory of the process.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...jit.ir.sm_records import MOST_WARPS, REGISTERS, Copy, Limits, Op
from ...jit.runtime_libraries import runtime_addresses
from ..run.writer import NotRun
from .classes import Classes
from .operations import Operations
from .streams import Class

__all__ = ["check_records"]


def check_records(
    operations: Operations,
    classes: Classes,
    kinds: NDArray[np.uint64],
    mbarriers: int,
    ctas: NDArray[np.int64],
    warps: int,
) -> None:
    """Raises ``NotRun`` if CTAs ``ctas`` of ``warps`` warps do not fit their records. ``kinds``: a ``Copy`` for each kind of copies,
    and an empty one. Streams are checked once for each code and these limits."""
    _within("classes of CTAs", ctas, len(classes.classes) - classes.cluster + 1)
    _within("registers", operations.registers, REGISTERS)
    _within("warps of a CTA", np.array([warps]), MOST_WARPS + 1)
    ways = kinds[:-1, Copy.WAY // 8]
    key = operations.counted(Op.KIND, np.uint16).tobytes(), ways.tobytes(), mbarriers, warps
    if key in classes.checked:
        return
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(runtime_addresses(("sm_fits",))["sm_fits"])
    limits = np.zeros(Limits.BYTES // 8, np.uint64)
    for field, value in (
        (Limits.BLOCK, operations.blocks.ctypes.data), (Limits.BLOCKS, len(operations.blocks)), (Limits.MBARRIERS, mbarriers),
        (Limits.COPIES, kinds.ctypes.data), (Limits.KINDS, len(ways)), (Limits.GROUP, classes.cluster),
    ):  # fmt: skip
        limits[field // 8] = value
    for item in classes.classes:
        limits[Limits.LINES // 8] = len(item.lines)
        for start, end in _streams(item, warps):
            limits[Limits.AT // 8], limits[Limits.ENDS // 8] = start, end
            if not function(int(limits.ctypes.data)):
                raise NotRun("its records name a block, line, mbarrier, copy or CTA that does not exist")
    classes.checked.add(key)


def _streams(item: Class, warps: int) -> list[tuple[int, int]]:
    """The streams of the warps of a class, from and to which address."""
    lines = len(item.lines)
    if len(item.starts) != warps or {len(item.groups), len(item.rows)} != {lines}:
        raise NotRun("its records are not those of a CTA of this launch")
    _within("lines", item.rows, lines)
    first = int(item.stream.ctypes.data)
    starts = item.starts.tolist()
    _within("words of a stream", item.starts - first, item.stream.nbytes)
    return list(zip(starts, [*starts[1:], first + item.stream.nbytes]))


def _within(what: str, numbers: NDArray[Any], count: int) -> None:
    if numbers.size and not 0 <= int(numbers.min()) <= int(numbers.max()) < count:
        raise NotRun(f"its {what} have numbers from {numbers.min()} to {numbers.max()}; {count} exist")
