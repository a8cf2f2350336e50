"""The share of accesses that comes from DRAM: distinct sectors of concurrent CTAs over the sum of the sectors of each CTA.

The addresses of a group of accesses are linear in the position of the CTA in the grid. If kernels compute the position of their work
themselves, the offsets are those observed of the first CTAs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...results import SECTOR_BYTES as _SECTOR
from .settings import MOST_RUNS

__all__ = ["ROW", "Group", "Reuse", "distinct", "reuse_of", "rows_of"]

#: 4-byte words in a sector.
_WORDS = _SECTOR // 4
#: Bytes of a DRAM row in a channel: of an HBM page; pages of GDDR6 have at least this size.
ROW = 1024


@dataclass(frozen=True, slots=True)
class Group:
    """Accesses whose addresses depend on the position of the CTA in the same way. ``space``: global or local; ``store``: whether they
    are stores; ``moves``: the offset in 4-byte words for a step along each axis, ``None`` if addresses are not linear; ``seen``: the
    observed offset (int64) of each of the first CTAs of the grid, empty if they are linear."""

    space: str
    store: bool
    moves: tuple[int, int, int] | None
    seen: bytes = b""


@dataclass(frozen=True, slots=True)
class Reuse:
    """Sectors of a group: distinct ones (``once``) and the sum over CTAs (``summed``), of the concurrent CTAs and of all CTAs.
    ``alike``: the mean number of concurrent CTAs that touch the same sectors in the same order."""

    once: int
    summed: int
    once_of_all: int
    summed_of_all: int
    alike: float = 1.0

    def behind(self, share: float, kept: float) -> float:
        """The part of the first touches that hit in L2 but wait for DRAM; ``share`` of the first touches come from DRAM. CTAs that
        start together and touch the same lines in the same order reach a line while L2 still waits for DRAM: a CTA that hits catches
        up with the one that missed, and then waits as well. An array that fits into the ``kept`` bytes of L2 comes from DRAM while the
        first CTAs run."""
        if self.alike <= 1.0 or share >= 1.0:
            return 0.0
        once = self.once_of_all * _SECTOR <= kept
        first = self.once_of_all / self.summed_of_all if once else self.once / self.summed
        return max(0.0, min(1.0, first * self.alike, share * self.alike) - share) / (1.0 - share)

    @classmethod
    def drawn(cls, each: float, room: int, running: int, ctas: int) -> Reuse:
        """CTAs that each touch ``each`` random sectors of ``room``: the expected number of distinct sectors."""

        def once(summed: float) -> int:
            different = room * -math.expm1(summed * math.log1p(-1 / room)) if room > 1 else min(room, summed)
            return max(1, round(min(different, summed)))

        sums = [max(1.0, each * count) for count in (running, ctas)]
        if not room:
            return cls(*(round(value) for value in (sums[0], sums[0], sums[1], sums[1])))
        return cls(once(sums[0]), round(sums[0]), once(sums[1]), round(sums[1]))


def distinct(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """As ``np.unique``, which takes up to ten times as long for many different ones."""
    ordered = np.sort(numbers)
    if not len(ordered):
        return ordered
    first: NDArray[np.bool_] = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    return ordered[first]


def reuse_of(
    sectors: NDArray[np.int64],
    moves: tuple[int, int, int],
    grid: tuple[int, int, int],
    running: int,
    seen: bytes = b"",
    room: int = 0,
    places: NDArray[np.int64] | None = None,
    ctas: int = 0,
) -> Reuse:
    """The reuse of a group. ``sectors``: those that one CTA touches; ``running``: the number of concurrent CTAs, the first of the
    grid; ``seen``: as in ``Group``; ``room``: sectors of the arrays of the group, 0 if unknown. If not all CTAs of the grid touch the
    group, ``places`` are the numbers of the first ones that do, and ``ctas`` is the number of all that do."""
    ordered = distinct(sectors)
    breaks = np.flatnonzero(np.diff(ordered) != 1)
    starts = ordered[np.concatenate([[0], breaks + 1])]
    ends = ordered[np.concatenate([breaks, [len(ordered) - 1]])] + 1
    ctas = ctas or grid[0] * grid[1] * grid[2]
    count = min(ctas, running)
    if seen:
        moved = _observed(seen, places)
        count = min(count, len(moved))
        once, summed = _union(starts, ends, moved[:count])
        all_once, all_summed = _union(starts, ends, moved)
        # Extrapolate linearly to the CTAs that were not observed.
        of_all = all_once * ctas // len(moved), all_summed * ctas // len(moved)
        of_all = min(of_all[0], room) if room else of_all[0], of_all[1]
    else:
        if places is not None:
            ctas = min(ctas, len(places))
            count = min(count, ctas)
        moved = _moved(moves, grid, count, places)
        once, summed = _union(starts, ends, moved)
        of_all = (
            _union(starts, ends, _moved(moves, grid, min(ctas, MOST_RUNS), places))
            if ctas > running
            else (once, summed)
        )
    return Reuse(once, summed, *of_all, count / len(np.unique(moved[:count])))


def rows_of(
    sectors: NDArray[np.int64],
    group: Group,
    grid: tuple[int, int, int],
    running: int,
    places: NDArray[np.int64] | None = None,
) -> tuple[float, float]:
    """Distinct DRAM rows of ``running`` CTAs, per CTA, and the rows that each CTA touches. Arguments as for ``reuse_of``."""
    ordered = distinct(sectors)
    breaks = np.flatnonzero(np.diff(ordered) != 1)
    starts = ordered[np.concatenate([[0], breaks + 1])]
    ends = ordered[np.concatenate([breaks, [len(ordered) - 1]])] + 1
    count = min(grid[0] * grid[1] * grid[2], running, MOST_RUNS)
    if group.seen:
        moved = _observed(group.seen, places)[:count]
    else:
        assert group.moves is not None
        moved = _moved(group.moves, grid, count, places)
    words = ROW // 4
    each, _ = _union(starts, ends, np.zeros(1, np.int64), words)
    once, _ = _union(starts, ends, moved, words)
    return min(once / len(moved), each), each


def _observed(seen: bytes, places: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """``Group.seen`` of the CTAs with the numbers ``places``, or of all."""
    moved = np.frombuffer(seen, np.int64)
    if places is None or not len(moved) or places[0] >= len(moved):
        return moved
    return moved[places[places < len(moved)]]


def _moved(
    moves: tuple[int, int, int],
    grid: tuple[int, int, int],
    count: int,
    places: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """The offset in words of the sectors of each of the first CTAs, or of the first of those with the numbers ``places``."""
    index = np.arange(count, dtype=np.int64) if places is None else places[:count]
    return (
        index % grid[0] * moves[0]
        + index // grid[0] % grid[1] * moves[1]
        + index // (grid[0] * grid[1]) * moves[2]
    )


def _union(
    starts: NDArray[np.int64], ends: NDArray[np.int64], moved: NDArray[np.int64], unit: int = _WORDS
) -> tuple[int, int]:
    """Distinct sectors of the CTAs, and the sum over CTAs, given the runs of sectors of one CTA and the offset in words of each CTA;
    or other units of ``unit`` words. Each CTA counts as many sectors as the observed one, although an offset that is no multiple of a
    sector touches one more."""
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
