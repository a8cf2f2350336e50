"""How much of what CTAs touch comes from DRAM: the sectors that CTAs running at once touch together, over the sum of what each does.

Addresses of a group of accesses move with the place of the CTA in the grid by the same bytes for each step along an axis, or, as where
kernels work out themselves which part of their work is theirs, as is seen of the first CTAs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...results import SECTOR_BYTES as _SECTOR
from .settings import MOST_RUNS

__all__ = ["ROW", "Group", "Reuse", "reuse_of", "rows_of"]

#: words of 4 bytes in a sector
_WORDS = _SECTOR // 4
#: bytes of a row of DRAM in a channel: of a page of HBM; those of GDDR6 are as long or longer
ROW = 1024


@dataclass(frozen=True, slots=True)
class Group:
    """Accesses whose addresses move alike: ``space`` (global, local), whether they are stores, and words of 4 bytes by which they move
    along each axis; ``None`` if they do not move so. ``seen``: those by which they are moved in each of the first CTAs of the grid
    (int64), where steps along the axes do not say so; empty where they do."""

    space: str
    store: bool
    moves: tuple[int, int, int] | None
    seen: bytes = b""


@dataclass(frozen=True, slots=True)
class Reuse:
    """Of a group the sectors that the CTAs touch together and in sum, of those that run at once and of all. ``alike``: how many of the
    CTAs that run at once touch the same in the same order, on average."""

    once: int
    summed: int
    once_of_all: int
    summed_of_all: int
    alike: float = 1.0

    def behind(self, share: float, kept: float) -> float:
        """Of the first touches that do not come from DRAM, where a ``share`` does, the part that waits for it all the same. CTAs that
        start together and touch the same in the same order come to a line while L2 still asks DRAM for it: whoever finds it
        there catches up with the one that had to wait, and then waits too. An array that fits into the ``kept`` bytes of L2
        comes from DRAM while the first CTAs run."""
        if self.alike <= 1.0 or share >= 1.0:
            return 0.0
        once = self.once_of_all * _SECTOR <= kept
        first = self.once_of_all / self.summed_of_all if once else self.once / self.summed
        return max(0.0, min(1.0, first * self.alike, share * self.alike) - share) / (1.0 - share)

    @classmethod
    def drawn(cls, each: float, room: int, running: int, ctas: int) -> Reuse:
        """CTAs that touch ``each`` so many of ``room`` sectors, whichever: the expected number of different ones among those drawn."""

        def once(summed: float) -> int:
            different = room * -math.expm1(summed * math.log1p(-1 / room)) if room > 1 else min(room, summed)
            return max(1, round(min(different, summed)))

        sums = [max(1.0, each * count) for count in (running, ctas)]
        if not room:
            return cls(*(round(value) for value in (sums[0], sums[0], sums[1], sums[1])))
        return cls(once(sums[0]), round(sums[0]), once(sums[1]), round(sums[1]))


def reuse_of(
    sectors: NDArray[np.int64],
    moves: tuple[int, int, int],
    grid: tuple[int, int, int],
    running: int,
    seen: bytes = b"",
    room: int = 0,
) -> Reuse:
    """``sectors``: numbers of those that one CTA touches; ``running``: CTAs that run at once, the first of the grid; ``seen``: as
    ``Group`` has it; ``room``: sectors of the arrays that they are of, 0 if that is not known."""
    ordered = np.unique(sectors)
    breaks = np.flatnonzero(np.diff(ordered) != 1)
    starts = ordered[np.concatenate([[0], breaks + 1])]
    ends = ordered[np.concatenate([breaks, [len(ordered) - 1]])] + 1
    ctas = grid[0] * grid[1] * grid[2]
    count = min(ctas, running)
    if seen:
        moved = np.frombuffer(seen, np.int64)
        count = min(count, len(moved))
        once, summed = _union(starts, ends, moved[:count])
        all_once, all_summed = _union(starts, ends, moved)
        # of those that were not seen each adds as much as one that was
        of_all = all_once * ctas // len(moved), all_summed * ctas // len(moved)
        of_all = min(of_all[0], room) if room else of_all[0], of_all[1]
    else:
        moved = _moved(moves, grid, count)
        once, summed = _union(starts, ends, moved)
        of_all = (
            _union(starts, ends, _moved(moves, grid, min(ctas, MOST_RUNS)))
            if ctas > running
            else (once, summed)
        )
    return Reuse(once, summed, *of_all, count / len(np.unique(moved[:count])))


def rows_of(
    sectors: NDArray[np.int64], group: Group, grid: tuple[int, int, int], running: int
) -> tuple[float, float]:
    """Rows of DRAM that so many CTAs touch together, divided by the CTAs, and those that each touches; arguments as ``reuse_of``."""
    ordered = np.unique(sectors)
    breaks = np.flatnonzero(np.diff(ordered) != 1)
    starts = ordered[np.concatenate([[0], breaks + 1])]
    ends = ordered[np.concatenate([breaks, [len(ordered) - 1]])] + 1
    count = min(grid[0] * grid[1] * grid[2], running, MOST_RUNS)
    if group.seen:
        moved = np.frombuffer(group.seen, np.int64)[:count]
    else:
        assert group.moves is not None
        moved = _moved(group.moves, grid, count)
    words = ROW // 4
    each, _ = _union(starts, ends, np.zeros(1, np.int64), words)
    once, _ = _union(starts, ends, moved, words)
    return min(once / len(moved), each), each


def _moved(moves: tuple[int, int, int], grid: tuple[int, int, int], count: int) -> NDArray[np.int64]:
    """Words by which the sectors of each of the first CTAs are moved."""
    index = np.arange(count, dtype=np.int64)
    return (
        index % grid[0] * moves[0]
        + index // grid[0] % grid[1] * moves[1]
        + index // (grid[0] * grid[1]) * moves[2]
    )


def _union(
    starts: NDArray[np.int64], ends: NDArray[np.int64], moved: NDArray[np.int64], unit: int = _WORDS
) -> tuple[int, int]:
    """Sectors (or other units, of so many words) that CTAs touch together and in sum, given the runs of sectors of one and by how many
    words each is moved. Each touches as many as the one that was seen, though those that are not moved by whole sectors reach
    into one more."""
    factor = 1.0
    if len(starts) * len(moved) > MOST_RUNS:
        kept = max(1, MOST_RUNS // len(moved))
        factor = len(starts) / kept
        starts, ends = starts[:kept], ends[:kept]
        moved = moved[:MOST_RUNS]
    first = (starts[None, :] * _WORDS + moved[:, None]) // unit
    last = -(-(ends[None, :] * _WORDS + moved[:, None]) // unit)
    summed = int((last - first).sum() if unit != _WORDS else (ends - starts).sum() * len(moved))
    order = np.argsort(first, axis=None, kind="stable")
    first, last = first.reshape(-1)[order], last.reshape(-1)[order]
    reached = np.maximum.accumulate(last)
    before = np.concatenate([[first[0]], reached[:-1]])
    once = min(summed, int(np.maximum(0, last - np.maximum(first, before)).sum()))
    return int(once * factor), int(summed * factor)
