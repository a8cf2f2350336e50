"""Which CTAs of a launch are traced, and the classes that follow: by place, by area of the grid, or samples of all."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ...profile.build import LaunchRecord
from ..run.trace_kernel import TraceKernel
from ..run.writer import NotRun
from .areas import Areas, Paths, Place, areas_of, last_of, slabs_of, spread
from .asynchronous import Copying, ctas_of
from .classes import Classes
from .offsets import atomics_of, groups_of
from .settings import ALIKE_PART, SAMPLE
from .streams import class_of, named_of

__all__ = ["classes_of"]

_MOST_CLASSES = 6
#: Rows of a grid at its edges are also areas if one of their CTAs records less than this part of what another one does: CTAs that
#: have nothing to do leave their time to others, so that those of an SM are not a number of CTAs apart.
_FAR_LESS = 4
#: CTAs may execute different parts of all work in another order, up to this part of it.
_TURNS = 16
#: How far neighbours may be apart that show how addresses move.
_NEAR = (1, 2, 3, 4, 8, 16, 32)
#: Candidates for the CTAs that stand for an area, of which those in it are chosen.
_CANDIDATES = 1024


def classes_of(tracer: TraceKernel, record: LaunchRecord) -> Classes:
    """Traces a CTA in the middle of the grid, its neighbours and the CTAs at the edges; for clusters, all of their CTAs. If inner CTAs
    differ, finds the areas of the grid whose CTAs take the same path, and samples CTAs of each; if loaded values decide about control
    flow or addresses, of the whole grid. Raises ``NotRun``."""
    plan = record.plan
    count, grid = plan.cluster_ctas, plan.clusters
    x, y, z = (size // 2 for size in grid)
    signs = [1 if at + 1 < size else -1 for at, size in zip((x, y, z), grid)]
    moved = [size > 1 for size in grid]
    middle: Place = (x, y, z)
    steps: list[Place] = [
        (x + signs[0] * moved[0], y, z),
        (x, y + signs[1] * moved[1], z),
        (x, y, z + signs[2] * moved[2]),
    ]
    paths = Paths(tracer, record)
    if tracer.reads_memory:
        return (
            (_in_turns(tracer, record) if tracer.atomics else _with_idle(tracer, record, paths))
            or _strata(tracer, record, [middle, *steps], moved, signs)
        )  # fmt: skip
    axes = [sorted({0, at, size - 1}) for at, size in zip(middle, grid)]
    edges: list[Place] = [(x, y, z) for x in axes[0] for y in axes[1] for z in axes[2]]
    # An axis of three or fewer CTAs is covered by the edges and the middle.
    inner: list[Place] = [
        (at if axis == 0 else x, at if axis == 1 else y, at if axis == 2 else z)
        for axis, size in enumerate(grid)
        # Not multiples of one another: kernels that rasterise CTAs in rows of tiles repeat at multiples.
        for at in (size // 4, size * 3 // 7, size * 7 // 10, middle[axis] + signs[axis])
        if size > 3
    ]
    traced = list(dict.fromkeys([middle, *steps, *edges, *inner]))
    trace = tracer.trace(record, ctas_of(traced, plan.cluster), count)
    rows, words = trace.used.reshape(-1, count * plan.warps_per_cta).tolist(), int(trace.used.max(initial=0))
    used = {place: tuple(row) for place, row in zip(traced, rows)}
    # Offsets of addresses are those of the first CTAs of clusters.
    ends = trace.last[::count]
    last = ends[[traced.index(place) for place in (middle, *steps)]]
    within = [(place, ends[traced.index(place)]) for place in inner]
    # The last CTA along an axis may have less to do.
    whole = [
        (place, end)
        for place, end in zip(traced, ends)
        if all(at + 1 < size or size == 1 for at, size in zip(place, grid))
    ]
    uneven = count == 1 and any(used[place] != used[middle] for place in inner)
    exits = sum(size > 1 for size in grid) > 1 and _exits(used, [middle, *edges])
    if uneven or exits or not paths.alike_inside():
        found = _by_path(tracer, record, paths)
        if found is not None:
            return found
    if uneven:
        return _strata(tracer, record, [middle, *steps], moved, signs)
    kinds = list(dict.fromkeys([used[middle], *map(used.__getitem__, edges)]))[:_MOST_CLASSES]
    if len(kinds) > 1:
        others = [next(place for place in edges if used[place] == kind) for kind in kinds[1:]]
        trace = tracer.trace(record, ctas_of([middle, *others], plan.cluster), (1 + len(others)) * count)
    sizes = [sign * size for sign, size in zip(signs, plan.cluster)]
    groups, of_site = groups_of(tracer, record, last, middle, within, whole, moved, sizes)
    of_place: dict[Place, int] = {}
    for place in edges:
        number = kinds.index(used[place]) if used[place] in kinds else 0
        for x in _places(place[0], grid[0]):
            for y in _places(place[1], grid[1]):
                for z in _places(place[2], grid[2]):
                    of_place[x, y, z] = number * count
    named = named_of(tracer, of_site)
    classes = tuple(class_of(named, trace.words[number]) for number in range(len(kinds) * count))
    copying = Copying(tracer, record, named, trace.words[:count])
    copying.check(trace)
    atomics = atomics_of(tracer, of_site)
    return Classes(classes, groups, of_place, grid, count, copying, atomics=atomics, words=words)


def _exits(used: dict[Place, tuple[int, ...]], places: list[Place]) -> bool:
    """Whether some of the CTAs at ``places`` record far less than others, as those do that have nothing to do."""
    lengths = [sum(used[place]) for place in places]
    return _FAR_LESS * min(lengths) < max(lengths)


def _strata(
    tracer: TraceKernel, record: LaunchRecord, near: list[Place], moved: list[bool], signs: list[int]
) -> Classes:
    """Samples CTAs of the whole grid, all CTAs of a sampled cluster; if their work differs, each stands for those nearest to it.
    ``near``: the CTA in the middle and its neighbours, which show how addresses depend on the position."""
    grid, size = record.plan.clusters, record.plan.cluster_ctas
    places = spread(grid, max(2, SAMPLE // size))
    found = _sampled(tracer, record, [(x, y, z) for x, y, z in places.tolist()], near, moved, signs)
    if np.ptp(found.work) * ALIKE_PART <= found.work.max():
        return found
    slabs, kinds = slabs_of(grid, places, found.work)
    found, numbers = _by_work(found, kinds, slabs.count)
    return dataclasses.replace(found, slabs=slabs.named(numbers), alike=False)


def _with_idle(tracer: TraceKernel, record: LaunchRecord, paths: Paths) -> Classes | None:
    """Classes of CTAs that store nothing, and of samples of the others, where loaded values decide; ``None`` if there are no such."""
    try:
        if not paths.idle(paths.some()).any():
            return None
        areas = areas_of(paths.idle, paths.grid, paths.warps)
    except NotRun:
        # Of fewer CTAs it may be known what they load.
        return None
    if areas.count < 2 or not areas.counted().all():
        return None
    return _of_areas(tracer, record, areas, np.array([False, True]))


def _in_turns(tracer: TraceKernel, record: LaunchRecord) -> Classes | None:
    """Classes of the last CTA and of samples of the others, if the last one does more, as where a counter tells it that the results
    of all others are there; else ``None``. In a trace CTAs run one after the other, on a GPU at the same time: raises ``NotRun`` if
    another order gives them other work, as of kernels whose CTAs take the next piece of work from a counter."""
    plan, grid = record.plan, record.plan.clusters
    whole = tracer.takes_all(plan)
    places = spread(grid, math.prod(grid) if whole else max(2, SAMPLE // plan.cluster_ctas))
    there, back = (
        used.reshape(len(places), -1).sum(axis=1, dtype=np.int64)
        for used in tracer.in_turns(record, ctas_of([(x, y, z) for x, y, z in places.tolist()], plan.cluster))
    )
    # Only the last one of each order may have more to do.
    there_too, back_too = np.minimum(there, back), np.minimum(there, back)
    there_too[-1], back_too[0] = there[-1], back[0]
    if (np.abs(there - there_too) + np.abs(back - back_too)).sum() * _TURNS > back.sum():
        raise NotRun("what a CTA executes depends on the order in which the CTAs execute its atomics")
    if not whole or (there[-1] - back[-1]) * ALIKE_PART <= there[-1]:
        return None
    return _of_areas(tracer, record, last_of(grid), np.array([False, True]))


def _by_path(tracer: TraceKernel, record: LaunchRecord, paths: Paths) -> Classes | None:
    """Classes by path; ``None`` if all CTAs take the same one as far as it is known."""
    try:
        areas = areas_of(paths.of, paths.grid, paths.warps)
    except NotRun:
        # Warps that wait for one that ended early.
        return None
    number, work = int((areas.counted() > 0).sum()), paths.work()
    if number < 2:
        return None
    complete = np.array([paths.complete(path) for path in range(len(work))])
    merged, known = _merged(areas, work, complete)
    found = _of_areas(tracer, record, merged, known, lambda places: work[areas.of(places)])
    return dataclasses.replace(found, alike=number == merged.count)


def _of_areas(
    tracer: TraceKernel,
    record: LaunchRecord,
    areas: Areas,
    complete: NDArray[np.bool_],
    work: Callable[[NDArray[np.int64]], NDArray[np.float64]] | None = None,
) -> Classes:
    """Classes by area; ``complete``: by kind, whether one CTA stands for all of them; ``work``: that of the CTAs at each place."""
    plan, grid = record.plan, areas.grid
    counted = areas.counted()
    candidates = spread(grid, _CANDIDATES)
    kinds, each = areas.of(candidates), np.zeros(len(candidates)) if work is None else work(candidates)
    most, longer = max(2, SAMPLE // plan.cluster_ctas), counted[~complete].sum()
    chosen: list[Place] = []
    kind_of: list[int] = []
    for kind in range(areas.count):
        own = candidates[kinds == kind]
        if not len(own):
            boxes = areas.kinds == kind
            own = (areas.starts[boxes] + areas.ends[boxes])[:1] // 2
        elif complete[kind]:
            # The one in the middle of those whose work is the mean, or nearest to it.
            off = np.abs(each[kinds == kind] - each[kinds == kind].mean())
            own = own[[_middle(np.flatnonzero(off == off.min()))]]
        else:
            # Of a path that is not known to its end, several CTAs in proportion to all that have such paths.
            number = max(1, round(most * counted[kind] / longer))
            few = spread(grid, min(_CANDIDATES, round(number * counted.sum() / counted[kind])))
            few = few[areas.of(few) == kind]
            own = few if 0 < len(few) <= len(own) and number > 1 else own[[len(own) // 2]]
        chosen += [(x, y, z) for x, y, z in own.tolist()]
        kind_of += [kind] * len(own)
    # One of those that execute the same is enough.
    of_kind = np.array(kind_of)
    used = tracer.trace(record, ctas_of(chosen, plan.cluster), 0).used.reshape(len(chosen), -1)
    kept = [
        number
        for number in range(len(chosen))
        if (used[of_kind == of_kind[number]] != used[number]).any()
        or number == _middle(np.flatnonzero(of_kind == of_kind[number]))
    ]
    lengths = np.array([used[of_kind == kind].sum(axis=1).mean() for kind in range(areas.count)])
    main = int((lengths * counted).argmax())
    own = np.concatenate([candidates[kinds == main], np.array(chosen)[of_kind == main]])
    near, moved, signs = _near(areas, 2 * lengths >= lengths[main], own)
    typical = next(at for at, number in enumerate(kept) if of_kind[number] == main)
    found = _sampled(tracer, record, [chosen[number] for number in kept], near, moved, signs, typical)
    found, numbers = _by_work(found, of_kind[kept], areas.count)
    return dataclasses.replace(found, areas=areas.named(numbers), main=int(numbers[main]))


def _by_work(found: Classes, kinds: NDArray[np.int64], count: int) -> tuple[Classes, NDArray[np.int64]]:
    """Classes in the order of the mean work of their kinds, from the most on, and the new number of each of the ``count`` kinds.
    ``kinds``: of each class, or cluster."""
    size = found.cluster
    means = np.bincount(kinds, found.work, count) / np.bincount(kinds, minlength=count)
    numbers = np.argsort(np.argsort(-means, kind="stable"))
    order = np.argsort(numbers[kinds], kind="stable")
    classes = tuple(found.classes[size * number + rank] for number in order.tolist() for rank in range(size))
    firsts = np.searchsorted(numbers[kinds][order], np.arange(count + 1))
    return dataclasses.replace(found, classes=classes, firsts=tuple(firsts.tolist())), numbers


def _middle(numbers: NDArray[np.int64]) -> int:
    return int(numbers[len(numbers) // 2])


def _merged(
    areas: Areas, work: NDArray[np.float64], complete: NDArray[np.bool_]
) -> tuple[Areas, NDArray[np.bool_]]:
    """Areas of at most ``SAMPLE`` kinds, and whether the paths of each are complete. If there are more, paths of about the same work
    are merged: those whose CTAs, ordered by work, are in the same of ``SAMPLE`` equal parts."""
    counted = areas.counted()
    present = np.flatnonzero(counted)
    kinds = np.zeros(areas.count, np.int64)
    if len(present) <= SAMPLE:
        kinds[present] = np.arange(len(present))
        return areas.named(kinds), complete[present]
    ordered = present[np.argsort(work[present], kind="stable")]
    ends = counted[ordered].cumsum()
    parts = (2 * ends - counted[ordered]) * SAMPLE // (2 * ends[-1])
    _, numbers = np.unique(parts, return_inverse=True)
    kinds[ordered] = numbers
    known = np.bincount(numbers, ~complete[ordered]) == 0
    return areas.named(kinds), known


def _near(
    areas: Areas, working: NDArray[np.bool_], places: NDArray[np.int64]
) -> tuple[list[Place], list[bool], list[int]]:
    """One of ``places`` with neighbours of the kinds ``working`` along as many axes as possible, and these neighbours; the axes along
    which there is one, and how far away. Along others there is none: no other CTA there has an address that could move."""
    steps = np.array([sign * distance for distance in _NEAR for sign in (1, -1)])
    moves = steps[:, None, None] * np.eye(3, dtype=np.int64)
    others = areas.of((places[:, None, None] + moves).reshape(-1, 3)).reshape(len(places), len(steps), 3)
    alike = (others >= 0) & working[others]
    middle = len(places) // 2
    # The fewest axes without a neighbour, then the nearest neighbours.
    first = np.where(alike.any(axis=1), alike.argmax(axis=1), len(steps)).sum(axis=1)
    best = min(np.flatnonzero(first == first.min()).tolist(), key=lambda number: abs(number - middle))
    moved = alike[best].any(axis=0)
    signs = np.where(moved, steps[alike[best].argmax(axis=0)], 1)
    near = [places[best], *(places[best] + np.diag(signs * moved))]
    return [(x, y, z) for x, y, z in np.array(near).tolist()], moved.tolist(), signs.tolist()


def _sampled(
    tracer: TraceKernel,
    record: LaunchRecord,
    chosen: list[Place],
    near: list[Place],
    moved: list[bool],
    signs: list[int],
    typical: int = 0,
) -> Classes:
    """A class for each of the CTAs, or clusters, at ``chosen``. ``near``: a CTA and its neighbours, which show how addresses depend on
    the position; ``typical``: the number of the chosen one whose copies stand for those of all."""
    plan = record.plan
    size, grid = plan.cluster_ctas, plan.clusters
    count = len(chosen) * size
    trace = tracer.trace(record, ctas_of([*chosen, *near], plan.cluster), count)
    steps = [sign * length for sign, length in zip(signs, plan.cluster)]
    within = list(zip(chosen, trace.last[:count:size]))
    groups, of_site = groups_of(
        tracer, record, trace.last[count::size], near[0], within, within, moved, steps
    )
    named = named_of(tracer, of_site)
    blocks = np.array([block.end - block.start for block in tracer.graph.blocks])
    classes = tuple(
        dataclasses.replace(class_of(named, words), issued=int(named.blocks(words) @ blocks))
        for words in trace.words
    )
    copying = Copying(tracer, record, named, trace.words[typical * size : (typical + 1) * size])
    copying.check(trace)
    atomics, words = atomics_of(tracer, of_site), int(trace.used.max(initial=0))
    return Classes(classes, groups, {}, grid, size, copying, tracer.reads_memory, atomics, words)


def _places(at: int, size: int) -> list[int]:
    places = [0] * (at == 0) + [2] * (at == size - 1) + [1] * (at == size // 2)
    return places
