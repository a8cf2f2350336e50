"""Which CTAs of a grid take the same path: parts of the grid, found from the first blocks that few of its CTAs execute.

Guards compare affine functions of the position with bounds (``blockIdx.x >= n``, a triangle, the number of the CTA). A box whose
corners are all on one side of such a bound is on that side as a whole, so boxes are halved until their corners agree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray

from ...profile.build import LaunchRecord
from ..run.needed import LOADS
from ..run.trace_kernel import OFF, TraceKernel
from ..run.writer import NotRun
from .asynchronous import ctas_of
from .settings import FIRST_CTAS, FIRST_WARPS, MOST_LOOKED_UP, MOST_PROBED, PATH_WORDS, PROBED

__all__ = ["Areas", "Paths", "Place", "areas_of", "last_of", "slabs_of", "spread"]

#: Boxes that a grid is divided into at first, and places inside each box that are examined besides its corners.
_BOXES, _INSIDE = 64, 2
#: Irrational steps whose multiples are evenly distributed in one and two dimensions, unlike any multiples of powers of two: powers of
#: 1 / 1.618 and of 1 / 1.3247 (Roberts, The Unreasonable Effectiveness of Quasirandom Sequences, 2018).
_STEP, _STEPS = 0.6180339887498949, (0.7548776662466927, 0.5698402909980532)
Path = Callable[[NDArray[np.int64]], NDArray[np.int64]]
Grid = tuple[int, int, int]
Place = tuple[int, int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Areas:
    """Boxes of a grid, without overlap. ``starts`` and ``ends`` (exclusive), [box, axis]: the positions; ``kinds``: the number of the
    kind of the CTAs of each box, below ``count``. ``at``: the place along the ``axis`` for which the work of each box is known, in
    increasing order, if it changes from one to the next."""

    grid: Grid
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    kinds: NDArray[np.int64]
    count: int
    axis: int = 0
    at: NDArray[np.int64] | None = None

    def counted(self) -> NDArray[np.int64]:
        """The number of CTAs of each kind."""
        found = np.zeros(self.count, np.int64)
        np.add.at(found, self.kinds, (self.ends - self.starts).prod(axis=1))
        return found

    def before(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """[number, kind]: how many of the first CTAs of the grid, so many as each of the ``numbers``, are of each kind."""
        x, y, z = (at[:, None] for at in _places(self.grid, numbers).T)
        (x0, y0, z0), (x1, y1, z1) = self.starts.T, self.ends.T
        row = np.clip(x - x0, 0, x1 - x0)
        plane = np.clip(y - y0, 0, y1 - y0) * (x1 - x0) + ((y >= y0) & (y < y1)) * row
        whole = np.clip(z - z0, 0, z1 - z0) * (x1 - x0) * (y1 - y0) + ((z >= z0) & (z < z1)) * plane
        return np.stack([whole[:, self.kinds == kind].sum(axis=1) for kind in range(self.count)], axis=1)

    def first(self, most: int) -> NDArray[np.uint8]:
        """The kind of each of the first CTAs of the grid, of ``most`` at most."""
        wide, tall, deep = self.grid
        # Whole rows, and whole planes if there are several: as many as contain these CTAs.
        shape = (min(deep, -(-most // (wide * tall))), min(tall, -(-most // wide)), min(wide, most))
        found = np.zeros(shape, np.uint8)
        inside = (self.starts < np.array(shape[::-1])).all(axis=1)
        for (x0, y0, z0), (x1, y1, z1), kind in zip(
            self.starts[inside].tolist(), self.ends[inside].tolist(), self.kinds[inside].tolist()
        ):
            found[z0:z1, y0:y1, x0:x1] = kind
        return found.reshape(-1)[:most]

    def of(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The kinds of CTAs at ``places``, [CTA, axis]; of those outside the grid -1."""
        found = np.full(len(places), -1)
        if min(len(places) * len(self.kinds), MOST_LOOKED_UP) > prod(self.grid):
            inside = ((places >= 0) & (places < self.grid)).all(axis=1)
            x, y, z = places[inside].T
            found[inside] = self._every()[z, y, x]
            return found
        for part in range(0, len(places), 256):
            at = places[part : part + 256, None]
            place, box = np.nonzero(((at >= self.starts) & (at < self.ends)).all(axis=2))
            found[part + place] = self.kinds[box]
        return found

    def _every(self) -> NDArray[np.int64]:
        """The kinds of all CTAs, [z, y, x]; of those that are in no box -1."""
        found = np.full(self.grid[::-1], -1)
        sizes = self.ends - self.starts
        counts = sizes.prod(axis=1)
        box = np.repeat(np.arange(len(counts)), counts)
        number = np.arange(len(box)) - np.repeat(counts.cumsum() - counts, counts)
        x, y, z = (self.starts[box] + _places(sizes[box].T, number)).T
        found[z, y, x] = self.kinds[box]
        return found

    def works(self, each: NDArray[np.float64], numbers: NDArray[np.int64]) -> NDArray[np.float64]:
        """The work of the CTAs of these ``numbers``, in increasing order; ``each``: of a CTA of each kind."""
        if self.at is None:
            return each[self.first(int(numbers[-1]) + 1)[numbers]]
        return np.interp(_places(self.grid, numbers)[:, self.axis], self.at, each[self.kinds])

    def named(self, kinds: NDArray[np.int64]) -> Areas:
        """The same boxes with other numbers of their kinds: ``kinds`` by the number so far."""
        return replace(self, kinds=kinds[self.kinds], count=int(kinds.max()) + 1)


class Paths:
    """The paths that CTAs take (of a cluster: those of all its CTAs), as far as ``PATH_WORDS`` words of each warp tell them. ``rows``:
    the words that each warp recorded, by number of the path."""

    def __init__(self, tracer: TraceKernel, record: LaunchRecord) -> None:
        self.tracer, self.record = tracer, record
        self.rows: list[NDArray[np.uint32]] = []
        self._numbers: dict[bytes, int] = {}
        items = tracer.graph.listing.instructions
        self._stores = np.array([items[site.position].base not in LOADS for site in tracer.sites], bool)
        self._storing: set[int] = set()

    @property
    def grid(self) -> Grid:
        return self.record.plan.clusters

    @property
    def warps(self) -> int:
        """Warps at a place."""
        plan = self.record.plan
        return plan.cluster_ctas * plan.warps_per_cta

    def complete(self, path: int) -> bool:
        """Whether the warps of a path ended by themselves."""
        return bool((self.rows[path] <= PATH_WORDS).all())

    def of(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The number of the path at each place, [place, axis]. Raises ``NotRun``."""
        found = np.zeros(len(places), np.int64)
        most = max(1, FIRST_WARPS // self.warps)
        for start in range(0, len(places), most):
            part = slice(start, start + most)
            ctas = ctas_of([(x, y, z) for x, y, z in places[part].tolist()], self.record.plan.cluster)
            used, last = self.tracer.lengths(self.record, ctas, PATH_WORDS)
            different, which = np.unique(used.reshape(-1, self.warps), axis=0, return_inverse=True)
            found[part] = np.array([self._number(row) for row in different])[which.reshape(-1)]
            stores = (last[:, :, self._stores] != OFF).reshape(len(places[part]), -1).any(axis=1)
            self._storing.update(found[part][stores].tolist())
        return found

    def _number(self, row: NDArray[np.uint32]) -> int:
        number = self._numbers.setdefault(row.tobytes(), len(self.rows))
        if number == len(self.rows):
            self.rows.append(row)
        return number

    def some(self) -> NDArray[np.int64]:
        """Places at the edges, next to them and in the middle, and some spread over the grid."""
        axes = [sorted({0, min(1, size - 1), size // 2, max(0, size - 2), size - 1}) for size in self.grid]
        return np.concatenate([np.array(list(product(*axes)), np.int64), spread(self.grid, PROBED)])

    def idle(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """At each place, 1 if its warps ended by themselves without a store, else 0."""
        numbers = self.of(places)
        idle = [self.complete(path) and path not in self._storing for path in range(len(self.rows))]
        found: NDArray[np.int64] = np.array(idle, np.int64)[numbers]
        return found

    def work(self) -> NDArray[np.float64]:
        """By path, the words that its warps recorded."""
        return np.array([float(row.sum()) for row in self.rows])

    def alike_inside(self) -> bool:
        """Whether the CTAs between the first and the last of an axis take the path of the one in the middle of it, as far as some of
        them tell: those next to the edges, between which no bound of an affine function can be, and some spread over the grid."""
        if max(self.grid) <= 3:
            return True
        places = self.some()
        ends = np.array(self.grid) - 1
        like = np.where((places == 0) | (places == ends), places, np.array(self.grid) // 2)
        both = np.unique(np.concatenate([places, like]), axis=0)
        numbers = _Known(self.grid)
        try:
            numbers.add(both, self.of(both))
        except NotRun:
            # Warps that wait for one that ended early.
            return True
        return bool((numbers.at(places) == numbers.at(like)).all())


def spread(grid: Grid, count: int) -> NDArray[np.int64]:
    """Places of a grid, [place, axis], in the order of the CTAs and once each: ``count``, or all if there are fewer. Along each axis
    they are evenly spaced, and mirrored in the middle of the grid, so that the mean of what is linear along an axis is right. In parts
    of an axis that have several CTAs the place is drawn, as what CTAs do may be periodic."""
    count = min(count, prod(grid))
    numbers, found = np.arange(count), np.zeros((count, 3), np.int64)
    axes = [axis for axis in range(3) if grid[axis] > 1]
    steps = (_STEP,) if len(axes) < 3 else _STEPS
    for axis, step in zip(axes, (*steps[: len(axes) - 1], 0.0)):
        # The ranks of the irrational steps; along the last axis that of the number itself.
        ranks = ((0.5 + step * (numbers - (count - 1) / 2)) % 1.0).argsort(kind="stable").argsort()
        found[:, axis] = _strata(grid[axis], count)[ranks]
    strides = np.array([1, grid[0], grid[0] * grid[1]])
    # The next CTA that is free in place of one that is there already.
    ctas = np.maximum.accumulate(np.sort(found @ strides) - numbers) + numbers
    ctas = np.minimum(ctas, prod(grid) - count + numbers)
    return _places(grid, ctas)


def _places(grid: Grid | NDArray[np.int64], ctas: NDArray[np.int64]) -> NDArray[np.int64]:
    """The places, [place, axis], of CTAs by their number in the grid, or in a grid of each, [axis, CTA]."""
    wide, tall, _ = grid
    return np.stack([ctas % wide, ctas // wide % tall, ctas // (wide * tall)], axis=1)


def _strata(size: int, count: int) -> NDArray[np.int64]:
    """A place in each of ``count`` equal parts of an axis. Those of the upper half mirror the lower half."""
    lower = np.arange((count + 1) // 2)
    # In the middle of each part if the axis is so short that each of its places is there.
    off = (np.random.default_rng(0).random(len(lower)) - 0.5) * (size > count)
    places = ((lower + 0.5 + off) * size / count).astype(np.int64)
    return np.concatenate([places, size - 1 - places[: count // 2][::-1]])


def last_of(grid: Grid) -> Areas:
    """The last CTA of a grid as kind 1, and all others as kind 0."""
    x, y, z = grid
    starts = np.array([(0, 0, 0), (0, 0, z - 1), (0, y - 1, z - 1), (x - 1, y - 1, z - 1)])
    ends = np.array([(x, y, z - 1), (x, y - 1, z), (x - 1, y, z), (x, y, z)])
    filled = (starts < ends).all(axis=1)
    return Areas(grid, starts[filled], ends[filled], np.array([0, 0, 0, 1])[filled], 2)


def slabs_of(
    grid: Grid, places: NDArray[np.int64], work: NDArray[np.float64]
) -> tuple[Areas, NDArray[np.int64]]:
    """The parts of a grid for which the CTAs at different ``places`` stand, and the number of the part of each. A part is what is
    nearest along the axis along which the ``work`` changes least from one to the next, so that it tells most about the others."""
    if len(places) == prod(grid):
        every = np.arange(len(places))
        return Areas(grid, places, places + 1, every, len(places)), every

    def changes(axis: int) -> float:
        return float(np.abs(np.diff(work[np.lexsort((work, places[:, axis]))])).sum())

    axis = min((axis for axis in range(3) if grid[axis] > 1), key=changes)
    at, kinds = np.unique(places[:, axis], return_inverse=True)
    starts, ends = np.zeros((len(at), 3), np.int64), np.tile(np.array(grid), (len(at), 1))
    sums = at[1:] + at[:-1]
    # What is between two of them belongs to the one that is nearer to the edge, on both sides of the grid.
    ends[:-1, axis] = starts[1:, axis] = (sums + 1 + (sums < grid[axis] - 1)) // 2
    return Areas(grid, starts, ends, np.arange(len(at)), len(at), axis, at), kinds


class _Known:
    """Numbers of paths at places of a grid."""

    def __init__(self, grid: Grid) -> None:
        self.strides = np.array([1, grid[0], grid[0] * grid[1]])
        self.ctas, self.numbers = np.zeros((2, 0), np.int64)

    def new(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Those of the places that are not known yet, once each."""
        ctas, firsts = np.unique(places @ self.strides, return_index=True)
        return places[firsts[~np.isin(ctas, self.ctas)]]

    def add(self, places: NDArray[np.int64], numbers: NDArray[np.int64]) -> None:
        ctas = np.concatenate([self.ctas, places @ self.strides])
        order = np.argsort(ctas)
        self.ctas, self.numbers = ctas[order], np.concatenate([self.numbers, numbers])[order]

    def at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        found: NDArray[np.int64] = self.numbers[np.searchsorted(self.ctas, places @ self.strides)]
        return found


def areas_of(path: Path, grid: Grid, warps: int) -> Areas:
    """The areas of a grid; ``path``: the number of the path at each place; ``warps``: at a place. They are exact if at most
    ``FIRST_CTAS`` places (or their warps) are to be examined, or if paths are told apart by bounds of affine functions that
    ``MOST_PROBED`` warps suffice to find. Of a box that is not found to be alike by then, a CTA inside stands for the others."""
    count = prod(grid)
    if count <= FIRST_CTAS and count * warps <= FIRST_WARPS:
        index = np.arange(count)
        return _runs(path, grid, index)
    known = _Known(grid)
    starts, ends = _divided(grid)
    left = max(1, MOST_PROBED // warps)
    draws = np.random.default_rng(0)
    found: list[tuple[NDArray[np.int64], ...]] = []
    while len(starts):
        corners = np.stack(
            [np.where(np.array(side), ends - 1, starts) for side in product((0, 1), repeat=3)], axis=1
        )
        inside = starts[:, None] + (
            draws.random((len(starts), _INSIDE, 3)) * (ends - starts)[:, None]
        ).astype(np.int64)
        places = np.concatenate([corners, inside], axis=1)
        new = known.new(places.reshape(-1, 3))
        if len(new) > left:
            new = known.new(inside[:, 0])
            known.add(new, path(new))
            found.append((starts, ends, known.at(inside[:, 0])))
            break
        left -= len(new)
        known.add(new, path(new))
        numbers = known.at(places.reshape(-1, 3)).reshape(len(starts), -1)
        alike = (numbers == numbers[:, :1]).all(axis=1)
        found.append((starts[alike], ends[alike], numbers[alike, 0]))
        starts, ends = _halved(starts[~alike], ends[~alike], numbers[~alike, :8])
    starts, ends, kinds = (np.concatenate(part) for part in zip(*found))
    return Areas(grid, starts, ends, kinds, int(kinds.max()) + 1)


def _runs(path: Path, grid: Grid, index: NDArray[np.int64]) -> Areas:
    """The areas of a grid all of whose CTAs, ``index``, are examined."""
    places = _places(grid, index)
    numbers = path(places)
    firsts = np.flatnonzero((places[:, 0] == 0) | np.r_[True, numbers[1:] != numbers[:-1]])
    lengths = np.diff(np.r_[firsts, len(index)])
    starts = places[firsts]
    ends = starts + np.stack([lengths, np.ones_like(lengths), np.ones_like(lengths)], axis=1)
    return Areas(grid, starts, ends, numbers[firsts], int(numbers.max()) + 1)


def _divided(grid: Grid) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A grid in about ``_BOXES`` boxes."""
    axes = max(1, sum(size > 1 for size in grid))
    parts = [min(size, round(_BOXES ** (1 / axes))) for size in grid]
    bounds = [size * np.arange(part + 1) // part for size, part in zip(grid, parts)]
    numbers = np.stack(np.meshgrid(*map(np.arange, parts), indexing="ij"), axis=-1).reshape(-1, 3)
    return tuple(  # type: ignore[return-value]
        np.stack([bound[number] for bound, number in zip(bounds, (numbers + step).T)], axis=1)
        for step in (0, 1)
    )


def _halved(
    starts: NDArray[np.int64], ends: NDArray[np.int64], numbers: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Boxes halved along the axis along which most of their corners differ (``numbers``, [box, corner]), or the longest of these."""
    sides = numbers.reshape(-1, 2, 2, 2)
    differ = np.stack([(np.diff(sides, axis=1 + axis) != 0).sum(axis=(1, 2, 3)) for axis in range(3)], axis=1)
    lengths = ends - starts
    # A box of one CTA along an axis cannot be halved there.
    worth = np.where(lengths > 1, differ.astype(np.float64) + lengths / (lengths.max(initial=1) + 1.0), -1.0)
    axis, box = worth.argmax(axis=1), np.arange(len(starts))
    middle = (starts[box, axis] + ends[box, axis]) // 2
    lower, upper = ends.copy(), starts.copy()
    lower[box, axis] = upper[box, axis] = middle
    return np.concatenate([starts, upper]), np.concatenate([lower, ends])
