"""Counters per thread: the choice of CTAs that have them, and the table that both backends fill."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import LaunchError
from .launch import Dim3, LaunchPlan
from .program import Program

__all__ = ["COLUMN_BYTES", "ThreadTable", "choose_ctas", "columns_of", "make_table"]

#: the maximum size of the counters of one launch
LIMIT_BYTES = 1 << 30
#: one counter for each of 32 lanes
COLUMN_BYTES = 32 * 8


@dataclass(frozen=True)
class Columns:
    """The layout of a thread's counters: blocks (by index), predicated instructions, and taken counted branches (by block index)."""

    taken: dict[int, int]
    count: int


@dataclass(frozen=True, eq=False)
class ThreadTable:
    """``counts``: shape (CTAs, warps, columns, 32), int64, in the order of ``ctas``, which are linear indices, ascending; 64-byte
    aligned."""

    ctas: Sequence[int]
    counts: NDArray[np.int64]


def columns_of(program: Program) -> Columns:
    """The layout for a program."""
    counted = [block.index for block in program.blocks if block.counted]
    first = len(program.blocks) + len(program.predicated)
    taken = {index: first + column for column, index in enumerate(counted)}
    return Columns(taken, first + len(counted))


def choose_ctas(wanted: object, grid: Dim3) -> Sequence[int]:
    """Linear indices, ascending. ``wanted``: ``None`` for all CTAs, ``"centre"`` for the one in the middle of each axis, a number for
    so many spread evenly, or CTAs as linear indices and (x, y, z). Raises ``LaunchError``."""
    count = math.prod(grid)
    if wanted is None:
        return range(count)
    if isinstance(wanted, np.ndarray) and wanted.ndim:
        wanted = wanted.tolist()
    if isinstance(wanted, str) and wanted == "centre":
        return (_linear(tuple(size // 2 for size in grid), grid),)
    if isinstance(wanted, (int, np.integer)) and not isinstance(wanted, bool):
        number = int(wanted)
        if number >= 1:
            number = min(number, count)
            if number > LIMIT_BYTES // COLUMN_BYTES:
                raise LaunchError(
                    f"counters of {number:,} CTAs do not fit into {LIMIT_BYTES:,} bytes",
                    hint="keep fewer CTAs",
                )
            return [(2 * index + 1) * count // (2 * number) for index in range(number)]
    elif isinstance(wanted, Sequence) and not isinstance(wanted, str) and len(wanted):
        return sorted({_cta(item, grid, count) for item in wanted})
    raise LaunchError(
        f"threads_of is {wanted!r:.60}",
        hint="accepted: 'centre', how many CTAs (1 or more), or a list of CTAs as indices or (x, y, z)",
    )


def _cta(item: object, grid: Dim3, count: int) -> int:
    coordinates = item if isinstance(item, tuple) else (item,)
    sizes = grid if isinstance(item, tuple) else (count,)
    if 1 <= len(coordinates) <= len(sizes) and all(
        isinstance(part, (int, np.integer)) and not isinstance(part, bool) and 0 <= part < size
        for part, size in zip(coordinates, sizes)
    ):
        return (
            _linear((*map(int, coordinates), 0, 0)[:3], grid)
            if isinstance(item, tuple)
            else int(coordinates[0])
        )
    raise LaunchError(f"no CTA {item!r:.60} in a grid of {grid}", hint=f"there are {count:,}, from 0 on")


def _linear(coordinates: tuple[int, ...], grid: Dim3) -> int:
    return int(coordinates[0] + grid[0] * (coordinates[1] + grid[1] * coordinates[2]))


def make_table(program: Program, plan: LaunchPlan) -> ThreadTable:
    """An empty table for the CTAs of a plan that have counters. Raises ``LaunchError`` if it would be too large."""
    shape = (len(plan.kept), plan.warps_per_cta, columns_of(program).count, 32)
    size = math.prod(shape) * 8
    if size > LIMIT_BYTES:
        raise LaunchError(
            f"counters of each thread of {len(plan.kept):,} CTAs take {size:,} bytes, at most {LIMIT_BYTES:,} are allowed",
            span=program.kernel.span,
            hint='keep fewer: launch(…, threads_of="centre"), threads_of=16 for sixteen CTAs, or a list of CTAs',
        )
    raw = np.zeros(size + 64, dtype=np.uint8)
    start = -raw.ctypes.data % 64
    return ThreadTable(plan.kept, raw[start : start + size].view(np.int64).reshape(shape))
