"""The instructions and accesses of the warps of each class of CTAs, as streams for the simulation."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...jit.ir.sm_records import GROUPS, MOST_OF_ACCESS, TAG_SETS, Stream
from ...jit.runtime_libraries import runtime_addresses
from ...profile.build import LaunchRecord
from ..registers import WIDTHS
from ..run.needed import LOADS, STORES
from ..run.trace_kernel import OFF, TraceKernel
from ..run.writer import NotRun
from .areas import Areas, Paths, areas_of, spread
from .asynchronous import Copying, Named, ctas_of, way_of
from .settings import BEGINNING, FIRST_CTAS, FIRST_WARPS, MOST_LOOKED_UP, ORDERED, SAMPLE
from .sharing import ROW, Group

__all__ = ["LOCAL_GROUP", "Class", "Classes", "class_of", "classes_of", "classes_together", "named_of"]

_SPACES = {
    "shared": 0,
    "global": 1,
    "local": 2,
    "mbarrier": 3,
    "value": 4,
    "window": 4,
    "copy": 5,
    "generic": 6,
    "word": 7,
    "image": 8,
}
_MOST_CLASSES = 6
#: Groups of accesses that are distinguished; the last one stands for all further ones.
_MOST_GROUPS = GROUPS - 1
_LINE = 128
#: The most lines of an access.
_MOST_LINES = 128
#: The initial and the largest size of a table of lines: 1 MiB and 512 MiB.
_FIRST_CELLS, _MOST_CELLS = 1 << 16, 1 << 25
#: Where CTAs share lines, the group of local memory is that of the CTA, from here on; global memory is one group, 0.
LOCAL_GROUP = 128
#: Flag of a site: its data bypass L1 (PTX, ``cp.async.cg``).
_PAST_L1 = 128
#: Flag of a site: it stores.
_STORE = 32
_ATOMICS = ("ATOM", "RED")
#: The most that a whole number of words, computed in floating point, may be off.
_OFF_WHOLE = 1 / 16
#: From 8.0 on, flags of a site: registers are packed only if all lanes access the same; loads have them packed if neighbours load the
#: same and no lanes conflict, as counted on 8.0, 8.6 and 12.0 (docs/simulation.md). NVIDIA states for 7.0 to 7.5 that they are if
#: neighbours do (docs/metrics.md).
_AMPERE, _ALONE, _WITHOUT_CONFLICT = 80, 64, 16
#: From 10.0 on, code of the system uses mbarriers in the first KiB of shared memory.
_RESERVES = 100
#: Rows of a grid at its edges are also areas if one of their CTAs records less than this part of what another one does: CTAs that
#: have nothing to do leave their time to others, so that those of an SM are not a number of CTAs apart.
_FAR_LESS = 4
#: How far neighbours may be apart that show how addresses move.
_NEAR = (1, 2, 3, 4, 8, 16, 32)
#: Candidates for the CTAs that stand for an area, of which those in it are chosen.
_CANDIDATES = 1024
Place = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Class:
    """CTAs that execute the same. ``stream``: of their warps, which begin at the addresses ``starts``; for each line that a CTA
    touches ``groups``: the number of its group; ``lines``: the line; ``sectors``: a bit for each touched sector; ``written``: a bit
    for each word that stores, but not atomics, write; ``rows``: the index of the first line in the same DRAM row; ``issued``: warp
    instructions, of sampled CTAs."""

    stream: NDArray[np.uint32]
    starts: NDArray[np.int64]
    groups: NDArray[np.uint8]
    lines: NDArray[np.int64]
    sectors: NDArray[np.uint8]
    written: NDArray[np.uint32]
    rows: NDArray[np.uint32] = dataclasses.field(default_factory=lambda: np.zeros(0, np.uint32))
    issued: int = 0

    def __post_init__(self) -> None:
        if len(self.rows) == len(self.lines):
            return
        keys = np.stack([self.groups.astype(np.int64), self.lines // (ROW // _LINE)])
        _, firsts, of_line = np.unique(keys, axis=1, return_index=True, return_inverse=True)
        object.__setattr__(self, "rows", firsts.astype(np.uint32)[of_line.reshape(-1)])

    def filled(self, groups: Sequence[bool], loaded: Sequence[bool]) -> NDArray[np.uint8]:
        """For each line the sectors (bits) that accesses of the chosen ``groups`` write only in part, and that no access of the groups
        ``loaded`` has brought to L2."""
        full = (self.written[:, None] >> 8 * np.arange(4, dtype=np.uint32) & 255) == 255
        partly = self.sectors & ~np.packbits(full, axis=1, bitorder="little")[:, 0]
        chosen, brought = (np.array([*flags, False])[self.groups] for flags in (groups, loaded))
        partly[~chosen] = 0
        if partly.any() and brought.any():
            order = np.argsort(self.lines[brought], kind="stable")
            lines, sectors = self.lines[brought][order], self.sectors[brought][order]
            firsts = np.flatnonzero(np.r_[True, lines[1:] != lines[:-1]])
            known, sectors = lines[firsts], np.bitwise_or.reduceat(sectors, firsts)
            at = np.minimum(np.searchsorted(known, self.lines), len(known) - 1)
            partly &= ~np.where(known[at] == self.lines, sectors[at], 0).astype(np.uint8)
        return partly

    def sets(self) -> NDArray[np.uint8]:
        """For each line the set of the tags of L1 that it is in.

        Measured on an RTX 5090 with lines 0 to 511 (cicuvc/nvidia-sass-document 020c888, notes/sm90/arch/shared_bank_conflicts.md);
        it gives the counters of A100, A40 and H200 in tests/timing/data/l1_strides.csv too.
        """
        folded = self.lines ^ self.lines >> 2 ^ self.lines >> 4 ^ self.lines >> 6 ^ self.lines >> 8
        return (folded % TAG_SETS).astype(np.uint8)

    def touched(self, group: int) -> NDArray[np.int64]:
        """The sectors (four to a line) that a CTA touches in a group of accesses."""
        own = self.groups == group
        line, sector = np.nonzero(self.sectors[own][:, None] >> np.arange(4, dtype=np.uint8) & 1)
        touched: NDArray[np.int64] = self.lines[own][line] * 4 + sector
        return touched


@dataclass(frozen=True, slots=True)
class Classes:
    """``of_place``: the class by position along each axis: 0 first, 1 between, 2 last. For clusters: the class of the first CTA by the
    position of the cluster; those of the other CTAs follow. Empty if each class is a sampled CTA that represents an equal share of the
    grid, or of one of its ``areas``: their kinds are numbered from those with the most instructions on, ``firsts`` are the number of
    the first sampled CTA (or cluster) of each kind, and the number of all; the kind ``main`` does most of the work, and the CTAs of a
    kind take the same path if they are ``alike``. ``copying``: bulk and tensor copies; ``of_inputs``: whether the classes depend on
    the contents of memory before the launch too; ``atomics``: the positions of atomics of global memory, each with its group;
    ``words``: the most words that the trace of a warp has; ``checked``: for which code and limits ``limits.check_records`` has read
    the streams."""

    classes: tuple[Class, ...]
    groups: tuple[Group, ...]
    of_place: dict[Place, int]
    grid: tuple[int, int, int]
    cluster: int = 1
    copying: Copying | None = None
    of_inputs: bool = False
    atomics: tuple[tuple[int, int], ...] = ()
    words: int = 0
    areas: Areas | None = None
    firsts: tuple[int, ...] = ()
    main: int = 0
    alike: bool = True
    checked: set[tuple[bytes, bytes, int, int]] = dataclasses.field(
        default_factory=set, compare=False, repr=False
    )

    @property
    def typical(self) -> Class:
        """The class in the middle of the grid; of sampled CTAs the one nearest to it that accesses global memory, as others may have
        nothing to do."""
        if self.of_place:
            return self.classes[0]
        count = len(self.classes) // self.cluster
        own = (
            range(count) if self.areas is None else range(self.firsts[self.main], self.firsts[self.main + 1])
        )
        middle = own[len(own) // 2]
        nearest = sorted(own, key=lambda number: abs(number - middle))
        reach = [number for number, group in enumerate(self.groups) if group.space == "global"]
        for number in nearest:
            item = self.classes[number * self.cluster]
            if np.isin(item.groups, reach).any():
                return item
        return self.classes[middle * self.cluster]

    @property
    def exact(self) -> bool:
        """Whether each CTA of the launch is known to execute what its class does, so far as CTAs were traced."""
        single = len(self.firsts) - 1 == len(self.classes) // self.cluster
        return bool(self.of_place) or (self.areas is not None and self.alike and single)

    @property
    def longest(self) -> int:
        """The class with the longest streams, or the most instructions; for clusters, that of the first CTA."""
        if self.areas is not None:
            return int(self.work.argmax()) * self.cluster
        words = [len(item.stream) for item in self.classes]
        size = self.cluster
        return max(range(0, len(words), size), key=lambda first: sum(words[first : first + size]))

    def on_sm(self, ctas: int, step: int, first: int, together: bool = False) -> NDArray[np.int64]:
        """The classes of the ``first`` of the ``ctas`` CTAs of an SM, which are ``step`` apart in the grid. If more CTAs run than were
        sampled, the samples alternate, so that any prefix contains all of them. If CTAs differ by area, the SM is the one with the
        most work; ``together``: all CTAs start at once, so that none is left to an SM that ends early."""
        numbers = np.arange(first, dtype=np.int64)
        if self.of_place:
            return self._of(numbers * step)
        persistent = self.copying is not None and self.copying.named.kind_count
        if ctas == 1 and self.of_inputs and persistent:
            # Persistent CTAs: the launch takes as long as the longest.
            return np.array([self.longest], np.int64)
        if self.areas is not None:
            if together and first == ctas and ctas * step <= MOST_LOOKED_UP:
                return self._at_once(self.areas, ctas, step)
            return self._of_areas(self.areas, ctas, step, first)
        count = len(self.classes) // self.cluster
        return (numbers % count if ctas > count else numbers * count // ctas) * self.cluster

    def shares(self) -> NDArray[np.float64]:
        """The share of all CTAs, or clusters, that each class has."""
        count = len(self.classes) // self.cluster
        if self.areas is not None:
            counted, samples = self.areas.counted(), np.diff(self.firsts)
            return np.repeat(counted / counted.sum() / samples, samples)
        if not self.of_place:
            return np.full(count, 1 / count)
        x, y, z = (np.array([1, max(0, size - 2), size > 1]) / size for size in self.grid)
        parts = x[:, None, None] * y[:, None] * z
        found = np.zeros(count)
        np.add.at(found, self._table().ravel() // self.cluster, parts.ravel())
        return found

    def _at_once(self, areas: Areas, ctas: int, step: int) -> NDArray[np.int64]:
        """``on_sm`` if all CTAs start at once. Samples of a kind stand for as many CTAs each, in the order of the grid."""
        kinds = areas.first(ctas * step).astype(np.int64)
        found = np.zeros(len(kinds), np.int64)
        for kind in range(areas.count):
            own = np.flatnonzero(kinds == kind)
            samples = self.firsts[kind + 1] - self.firsts[kind]
            found[own] = self.firsts[kind] + np.arange(len(own)) * samples // max(1, len(own))
        work = np.zeros(ctas * step)
        work[: len(found)] = self.work[found]
        return found[int(work.reshape(ctas, step).sum(axis=0).argmax()) :: step] * self.cluster

    def _of_areas(self, areas: Areas, ctas: int, step: int, first: int) -> NDArray[np.int64]:
        """``on_sm`` of the SM with the most work: of the kinds with the most instructions, any number of them together, it has its
        part of the CTAs of the grid, rounded up, when ``step`` CTAs after the other were started. CTAs of a kind are its samples in
        turn."""
        total, numbers = int(areas.counted().sum()), np.arange(1, first + 1)
        ordered = ctas <= ORDERED and first == ctas
        if ordered:
            before = areas.before(np.minimum(numbers * step, total)).cumsum(axis=1)
            wanted = self._part_of_sm(before, step)
        else:
            wanted = -(-(numbers[:, None] * self._most(areas, ctas, step)) // ctas)
        found, left, sum_of_others = np.zeros(first, np.int64), np.arange(first), np.zeros(first, np.int64)
        for kind in range(areas.count):
            # At most one CTA at a time, and those that are wanted later are never more than so many.
            rises = np.maximum.accumulate(np.maximum(0, wanted[left, kind] - sum_of_others[left]))
            places = np.arange(len(left))
            rises = np.minimum.accumulate((rises - places).clip(max=1)) + places
            own = np.diff(rises, prepend=0) > 0
            if kind == areas.count - 1:
                own[:] = True
            samples, chosen = self.firsts[kind + 1] - self.firsts[kind], left[own]
            index = np.arange(len(chosen))
            found[chosen] = self.firsts[kind] + (
                index % samples if len(chosen) > samples or not ordered else index * samples // len(chosen)
            )
            taken = np.zeros(first, np.int64)
            taken[chosen] = 1
            sum_of_others += taken.cumsum()
            left = left[~own]
        return found * self.cluster

    def reaching(self, group: int, ctas: int) -> int:
        """How many of the ``ctas`` CTAs of the launch touch a group of accesses. Without areas, all are taken to do so."""
        if self.areas is None:
            return ctas
        touching = self._touching(group)
        return round(ctas * float(self.shares()[touching].sum()))

    def places(self, group: int, most: int) -> NDArray[np.int64] | None:
        """The numbers of the first CTAs of the launch that touch a group, ``most`` at most, of those among the first
        ``MOST_LOOKED_UP``; ``None`` if these are the first CTAs of the grid."""
        if self.areas is None or self.cluster > 1:
            return None
        found = np.flatnonzero(self._kinds(group)[self.areas.first(MOST_LOOKED_UP)])[:most]
        return found if len(found) else None

    def working(self, most: int) -> NDArray[np.int64] | None:
        """The numbers of the CTAs that access global memory, among the first ``most`` of the grid; ``None`` if they do not differ, or
        none of these does."""
        if self.areas is None or self.cluster > 1:
            return None
        kinds = np.zeros(self.areas.count, bool)
        for number, group in enumerate(self.groups):
            if group.space == "global":
                kinds |= self._kinds(number)
        found = np.flatnonzero(kinds[self.areas.first(most)])
        return found if len(found) else None

    def _kinds(self, group: int) -> NDArray[np.bool_]:
        """By kind of the areas, whether it touches a group."""
        kinds = np.zeros(len(self.firsts) - 1, bool)
        kinds[np.searchsorted(self.firsts, np.flatnonzero(self._touching(group)), "right") - 1] = True
        return kinds

    def _touching(self, group: int) -> NDArray[np.bool_]:
        """By class, or first class of a cluster, whether it touches a group."""
        touching = np.array([bool((item.groups == group).any()) for item in self.classes])
        found: NDArray[np.bool_] = np.logical_or.reduce(touching.reshape(-1, self.cluster), axis=1)
        return found

    @property
    def work(self) -> NDArray[np.float64]:
        """By class, or cluster, the warp instructions, if CTAs differ by area."""
        issued = np.array([item.issued for item in self.classes], np.float64)
        found: NDArray[np.float64] = issued.reshape(-1, self.cluster).sum(axis=1)
        return found

    def alone(self, ctas: int, step: int) -> tuple[NDArray[np.int64], float]:
        """The class of the CTA that is simulated alone, and the part of its work that the CTAs of the SM of ``on_sm`` have on average:
        the first one, of areas the one with the most work."""
        if self.areas is None:
            return self.on_sm(ctas, step, 1), 1.0
        one = np.array([self.longest])
        return one, self.work_of_sm(ctas, step) / self.work_of(one)

    def work_of(self, ran: NDArray[np.int64]) -> float:
        """The mean work of CTAs of the classes ``ran``, or clusters whose first CTAs are of these: ``work``."""
        return float(self.work[ran // self.cluster].mean())

    def work_of_sm(self, ctas: int, step: int) -> float:
        """The mean work of all CTAs of the SM of ``on_sm``."""
        if self.areas is None:
            return float(self.work @ self.shares())
        return float(self._work_of_kinds @ np.diff(self._most(self.areas, ctas, step), prepend=0)) / ctas

    def _part_of_sm(self, counted: NDArray[np.int64], step: int) -> NDArray[np.int64]:
        """How many of so many CTAs the SM with the most work has, of ``step`` SMs: rounded up, but of CTAs that only have about the
        same work to the nearest number, as one more of these need not be one of the longest."""
        if self.alike:
            return -(-counted // step)
        return np.maximum(counted > 0, (counted + step // 2) // step)

    def _most(self, areas: Areas, ctas: int, step: int) -> NDArray[np.int64]:
        """By kind, how many CTAs of it and those before the SM with the most work has."""
        most: NDArray[np.int64] = np.minimum(ctas, self._part_of_sm(areas.counted().cumsum(), step))
        return most

    def equal(self, ctas: int) -> float:
        """As many typical CTAs as do the work of the ``ctas`` CTAs of the launch, if these differ by area."""
        if self.areas is None:
            return ctas
        return ctas * float(self.work @ self.shares() / self._work_of_kinds[self.main])

    @property
    def _work_of_kinds(self) -> NDArray[np.float64]:
        return np.array([part.mean() for part in np.split(self.work, self.firsts[1:-1])])

    def mean(self, values: Sequence[int]) -> float:
        """The mean of numbers of each class over the CTAs of the grid, if these differ by area; else over the classes."""
        if self.areas is None:
            return sum(values) / len(values)
        each: NDArray[np.float64] = np.array(values, np.float64).reshape(-1, self.cluster).mean(axis=1)
        return float(each @ self.shares())

    def _table(self) -> NDArray[np.int64]:
        table = np.zeros((3, 3, 3), np.int64)
        for place, number in self.of_place.items():
            table[place] = number
        return table

    def _of(self, ctas: NDArray[np.int64]) -> NDArray[np.int64]:
        """The classes of CTAs, or of the first CTAs of clusters."""
        wide, tall, _ = self.grid
        table = self._table()
        places = (ctas % wide, ctas // wide % tall, ctas // (wide * tall))
        x, y, z = (np.where(at == 0, 0, 1 + (at == size - 1)) for at, size in zip(places, self.grid))
        return table[x, y, z]


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
        return _with_idle(tracer, record, paths) or _strata(tracer, record, [middle, *steps], moved, signs)
    axes = [sorted({0, at, size - 1}) for at, size in zip(middle, grid)]
    edges: list[Place] = [(x, y, z) for x in axes[0] for y in axes[1] for z in axes[2]]
    # An axis of three or fewer CTAs is covered by the edges and the middle.
    inner: list[Place] = [
        (*middle[:axis], at, *middle[axis + 1 :])  # type: ignore[misc]
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
    groups, of_site = _groups(tracer, record, last, middle, within, whole, moved, sizes)
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
    atomics = _atomics(tracer, of_site)
    return Classes(classes, groups, of_place, grid, count, copying, atomics=atomics, words=words)


def _exits(used: dict[Place, tuple[int, ...]], places: list[Place]) -> bool:
    """Whether some of the CTAs at ``places`` record far less than others, as those do that have nothing to do."""
    lengths = [sum(used[place]) for place in places]
    return _FAR_LESS * min(lengths) < max(lengths)


def _strata(
    tracer: TraceKernel, record: LaunchRecord, near: list[Place], moved: list[bool], signs: list[int]
) -> Classes:
    """Samples CTAs of the whole grid, all CTAs of a sampled cluster. ``near``: the CTA in the middle and its neighbours, which show
    how addresses depend on the position."""
    plan = record.plan
    size, grid = plan.cluster_ctas, plan.clusters
    wide, tall, deep = grid
    clusters = wide * tall * deep
    number = min(clusters, max(2, SAMPLE // size))
    chosen: list[Place] = [(x, y, z) for x, y, z in spread(grid, number).tolist()]
    if number == clusters:
        chosen = [(at % wide, at // wide % tall, at // (wide * tall)) for at in range(number)]
    return _sampled(tracer, record, chosen, near, moved, signs)


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
    # Once each, in the order of the grid.
    candidates = np.unique(spread(grid, _CANDIDATES)[:, ::-1], axis=0)[:, ::-1]
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
            few = np.unique(few[areas.of(few) == kind][:, ::-1], axis=0)[:, ::-1]
            own = few if 0 < len(few) <= len(own) and number > 1 else own[[len(own) // 2]]
        chosen += [(x, y, z) for x, y, z in own.tolist()]
        kind_of += [kind] * len(own)
    # One of those that execute the same is enough.
    size, of_kind = plan.cluster_ctas, np.array(kind_of)
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
    # In the order of their work.
    issued = np.array([item.issued for item in found.classes]).reshape(len(kept), size)
    means = np.array([issued[of_kind[kept] == kind].sum(axis=1).mean() for kind in range(areas.count)])
    numbers = np.argsort(np.argsort(-means, kind="stable"))
    of_kept = numbers[of_kind[kept]]
    order = np.argsort(of_kept, kind="stable")
    return dataclasses.replace(
        found,
        classes=tuple(
            found.classes[size * number + rank] for number in order.tolist() for rank in range(size)
        ),
        areas=areas.named(numbers),
        firsts=tuple(np.searchsorted(of_kept[order], np.arange(areas.count + 1)).tolist()),
        main=int(numbers[main]),
    )


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
    groups, of_site = _groups(tracer, record, trace.last[count::size], near[0], within, within, moved, steps)
    named = named_of(tracer, of_site)
    blocks = np.array([block.end - block.start for block in tracer.graph.blocks])
    classes = tuple(
        dataclasses.replace(class_of(named, words), issued=int(named.blocks(words) @ blocks))
        for words in trace.words
    )
    copying = Copying(tracer, record, named, trace.words[typical * size : (typical + 1) * size])
    copying.check(trace)
    atomics, words = _atomics(tracer, of_site), int(trace.used.max(initial=0))
    return Classes(classes, groups, {}, grid, size, copying, tracer.reads_memory, atomics, words)


def _places(at: int, size: int) -> list[int]:
    places = [0] * (at == 0) + [2] * (at == size - 1) + [1] * (at == size // 2)
    return places


def _groups(
    tracer: TraceKernel,
    record: LaunchRecord,
    last: NDArray[np.uint32],
    middle: Place,
    within: list[tuple[Place, NDArray[np.uint32]]],
    whole: list[tuple[Place, NDArray[np.uint32]]],
    moved: list[bool],
    signs: list[int],
) -> tuple[tuple[Group, ...], list[int]]:
    """Groups of accesses, and the group of each site. ``last``: the accesses of the CTA in the middle of the grid and its neighbours;
    ``within``: those of other CTAs, by position, which test whether addresses are linear in the position; ``whole``: those from which
    it follows how sites depend on one another."""
    numbers: dict[Group, int] = {}
    of_site: list[int] = []
    ways: list[tuple[int, ...] | None] = []
    for index, site in enumerate(tracer.sites):
        space = "global" if site.space == "generic" else site.space
        if space == "global":
            ways.append(_moves(last[:, :, index].astype(np.int64), moved, signs))
        else:
            ways.append((0, 0, 0))
    sizes = list(record.plan.cluster)
    straight = {
        index: moves
        for index, moves in enumerate(ways)
        if moves is not None and tracer.sites[index].space in ("global", "generic")
    }
    bent = any(
        _bent(last[0, :, index], there[:, index], place, middle, moves, sizes)
        for index, moves in straight.items()
        for place, there in within
    )
    seen = _seen(tracer, record, middle, straight, sizes, last[0], whole) if bent else {}
    for index, site in enumerate(tracer.sites):
        item = tracer.graph.listing.instructions[site.position]
        store = item.base not in LOADS and not (item.base == "LDGSTS" and site.operand)
        space = "global" if site.space == "generic" else site.space
        group = Group(space, store and space == "global", ways[index], seen.get(index, b""))  # type: ignore[arg-type]
        of_site.append(min(_MOST_GROUPS - 1, numbers.setdefault(group, len(numbers))))
    return tuple(numbers)[:_MOST_GROUPS], of_site


def _bent(
    here: NDArray[np.uint32],
    there: NDArray[np.uint32],
    place: Place,
    middle: Place,
    moves: tuple[int, ...],
    sizes: list[int],
) -> bool:
    """Whether the accesses of a CTA (or the first of a cluster, of ``sizes`` CTAs) deviate from the linear prediction from the
    middle."""
    known = (here != OFF) & (there != OFF)
    expected = sum((at - start) * size * each for at, start, size, each in zip(place, middle, sizes, moves))
    return bool((_signed(there[known], here[known]) != (expected + (1 << 31)) % (1 << 32) - (1 << 31)).any())


def _signed(there: NDArray[np.uint32], here: NDArray[np.uint32]) -> NDArray[np.int64]:
    """The signed difference in words."""
    return (there - here).view(np.int32).astype(np.int64)


def _seen(
    tracer: TraceKernel,
    record: LaunchRecord,
    middle: Place,
    straight: dict[int, tuple[int, ...]],
    sizes: list[int],
    ended: NDArray[np.uint32],
    whole: list[tuple[Place, NDArray[np.uint32]]],
) -> dict[int, bytes]:
    """``Group.seen`` by site, from the first accesses of the first CTAs of the grid. The offsets of sites that no CTA reaches by then,
    such as those behind a loop, follow from those of the others, if they do in ``whole``, CTAs that were traced to their end
    (``ended``: the one in the middle). Otherwise, and where the warps of a CTA have different offsets, the linear prediction
    applies."""
    plan = record.plan
    wide, tall, deep = plan.grid
    count = min(wide * tall * deep, FIRST_CTAS, max(1, FIRST_WARPS // plan.warps_per_cta))
    index = np.arange(count)
    places = np.stack([index % wide, index // wide % tall, index // (wide * tall)], axis=1)
    start = np.array([at * size for at, size in zip(middle, sizes)])
    x, y, z = start.tolist()
    last = tracer.beginnings(record, [(x, y, z), *map(tuple, places.tolist())], BEGINNING)
    found: dict[int, NDArray[np.int64]] = {}
    behind = []
    for site, moves in straight.items():
        moved, alike = _offsets(last[0, :, site], last[1:, :, site])
        expected = (places - start) @ np.array(moves, np.int64)
        if (alike & (moved != expected)).any():
            found[site] = np.where(alike, moved, expected)
        elif not alike.any():
            behind.append(site)
    to_end = np.stack([there for _, there in whole])
    known = np.array([place for place, _ in whole]) * np.array(sizes) - start
    for site in behind:
        moved, alike = _offsets(ended[:, site], to_end[:, :, site])
        if (moved[alike] != known[alike] @ np.array(straight[site], np.int64)).any():
            others = [(_offsets(ended[:, other], to_end[:, :, other]), found[other]) for other in found]
            combined = _combined(moved, alike, known, places - start, others)
            if combined is not None:
                found[site] = combined
    return {site: moved.tobytes() for site, moved in found.items()}


def _offsets(
    here: NDArray[np.uint32], there: NDArray[np.uint32]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The offset in words of each CTA of ``there`` from the one of ``here``, at one site, and whether all its warps have it."""
    known = (there != OFF) & (here != OFF)
    steps = _signed(there, here)
    least = np.min(steps, axis=1, where=known, initial=1 << 31)
    return least, least == np.max(steps, axis=1, where=known, initial=-(1 << 31))


def _combined(
    moved: NDArray[np.int64],
    alike: NDArray[np.bool_],
    known: NDArray[np.int64],
    places: NDArray[np.int64],
    others: list[tuple[tuple[NDArray[np.int64], NDArray[np.bool_]], NDArray[np.int64]]],
) -> NDArray[np.int64] | None:
    """The offsets of a site in the CTAs at ``places``, if in those at ``known`` they are a sum of multiples of the position and of the
    offsets of other sites, as the place of an element in C is of those of its row in A and its column in B. Positions are relative
    to the CTA that offsets are from. ``others``: the offsets of each of these sites at ``known``, as ``_offsets`` returns them, and at
    ``places``. ``None`` if they are no such sum, or too few CTAs are known to tell."""
    columns = [(known[:, axis], places[:, axis]) for axis in range(3) if places[:, axis].any()]
    for (there, same), everywhere in others:
        if same[alike].all() and not any((everywhere == column).all() for _, column in columns):
            columns.append((there, everywhere))
    given, wanted = (
        np.stack(side, axis=1) for side in ([one[alike] for one, _ in columns], [all_ for _, all_ in columns])
    )
    scale = np.abs(given).max(axis=0, initial=1)
    factors, _, rank, _ = np.linalg.lstsq(given / scale, moved[alike], rcond=None)
    of_known, of_all = given @ (factors / scale), wanted @ (factors / scale)
    whole: NDArray[np.int64] = np.rint(of_all).astype(np.int64)
    # Fractions show that multiples were found which hold for the known CTAs only.
    if (
        len(given) <= rank
        or (np.rint(of_known) != moved[alike]).any()
        or (np.abs(of_all - whole) > _OFF_WHOLE).any()
    ):
        return None
    return whole


def _moves(last: NDArray[np.int64], moved: list[bool], signs: list[int]) -> tuple[int, ...] | None:
    found = []
    for axis in range(3):
        if not moved[axis]:
            found.append(0)
            continue
        known = (last[0] != OFF) & (last[axis + 1] != OFF)
        # The offset between clusters, divided by the CTAs of a cluster along the axis.
        steps = np.unique((last[axis + 1] - last[0])[known]) // signs[axis]
        if len(steps) != 1:
            return None
        found.append((int(steps[0]) + (1 << 31)) % (1 << 32) - (1 << 31))
    return tuple(found)


def _atomics(tracer: TraceKernel, of_site: list[int]) -> tuple[tuple[int, int], ...]:
    """``Classes.atomics``."""
    items = tracer.graph.listing.instructions
    return tuple(
        (site.position, group)
        for site, group in zip(tracer.sites, of_site)
        if site.space in ("global", "generic") and items[site.position].base.startswith(_ATOMICS)
    )


def named_of(tracer: TraceKernel, of_site: list[int]) -> Named:
    """The sites of a trace in the form in which streams encode them."""
    listing, packs = tracer.graph.listing.instructions, tracer.number < _AMPERE
    sites = np.zeros((len(tracer.sites) + 1, 4), np.uint8)
    for index, site in enumerate(tracer.sites):
        item = listing[site.position]
        words = item.opcode.split(".")
        width = next((WIDTHS[word] for word in words if word in WIDTHS), 1)
        group, flags = of_site[index], int(item.base.startswith(_ATOMICS))
        if not flags and item.base in STORES and item.base != "LDGSTS":
            flags = _STORE
        if item.base == "LDGSTS" and site.space == "global" and "BYPASS" in words:
            flags = _PAST_L1
        if item.base == "LDSM":
            width = 4
            flags = {"4": 0, "2": 2}.get(words[-1], 4)
        if site.space == "copy":
            width, group, flags = min(255, index), way_of(item), int(item.base.startswith("UBLK"))
        elif site.space == "mbarrier":
            flags = int(tracer.number >= _RESERVES)
        elif not packs:
            flags |= _WITHOUT_CONFLICT if item.base in ("LDS", "LD") else _ALONE
        sites[index] = _SPACES[site.space], width, group, flags
    firsts = np.zeros(len(tracer.of_block) + 1, np.uint32)
    firsts[1:] = np.cumsum([len(tracer.of_block[block]) for block in sorted(tracer.of_block)])
    return Named(sites, firsts)


def class_of(named: Named, warps: list[NDArray[np.uint32]]) -> Class:
    """The streams of one traced CTA."""
    # Each local word of a lane is in a line of its own.
    own = named.sites[named.sites[:, 0] == _SPACES["local"], 1]
    most = min(_MOST_LINES, 32 * int(own.max(initial=1)))
    accesses = sum(map(len, warps)) // 32 + 1
    largest = 1 << max(10, (2 * min(accesses * most, 1 << 22)).bit_length())
    # A table for all lines that are possible must be cleared, which costs more than to try a small table first.
    cells = min(largest, _FIRST_CELLS)
    while True:
        made = _class_within(named, warps, cells, accesses * max(64, most + 1))
        if made is not None:
            return made
        if cells == largest:
            raise NotRun("a CTA touches more lines of memory than are told apart")
        cells = min(largest, 8 * cells)


def _class_within(named: Named, warps: list[NDArray[np.uint32]], cells: int, words: int) -> Class | None:
    """As ``class_of``, with a table of ``cells`` cells and room for ``words`` words of accesses; ``None`` if the CTA touches more
    lines."""
    table = _Lines(named, cells)
    stream, starts = table.streams(warps, words)
    if table.unique is None:
        return None
    named.keep(table.given)
    return Class(stream, starts, *table.found())


def classes_together(named: Named, ctas: list[list[NDArray[np.uint32]]]) -> tuple[Class, ...]:
    """Traced CTAs with one numbering of the lines of all, so that the same line of global memory has the same number in each.
    Raises ``NotRun`` if they touch more lines than are told apart."""
    sites = named.sites
    own = sites[:, 0] == _SPACES["local"]
    sites[:, 2] = 0
    accesses = [sum(map(len, warps)) // 32 + 1 for warps in ctas]
    room = 1 + min(_MOST_LINES, 32 * int(sites[own, 1].max(initial=1)))
    cells = _FIRST_CELLS
    while True:
        table, streams = _Lines(named, cells), []
        for number, (warps, count) in enumerate(zip(ctas, accesses)):
            # Local memory of a CTA is its own.
            sites[own, 2] = LOCAL_GROUP + number % (GROUPS - LOCAL_GROUP)
            streams.append(table.streams(warps, count * max(64, room)))
        if table.unique is not None:
            break
        if cells >= _MOST_CELLS:
            raise NotRun("its CTAs touch more lines of memory than are told apart")
        cells *= 8
    named.keep(table.given)
    stream, starts = streams[0]
    first = Class(stream, starts, *table.found())
    return first, *(
        dataclasses.replace(first, stream=stream, starts=starts) for stream, starts in streams[1:]
    )


class _Lines:
    """A table of ``cells`` cells for the lines that CTAs touch."""

    def __init__(self, named: Named, cells: int) -> None:
        self.table = np.zeros((cells, 2), np.uint64)
        self.groups, self.sectors = np.zeros((2, cells), np.uint8)
        self.lines, self.written = np.zeros(cells, np.int64), np.zeros(cells, np.uint32)
        self.scratch = np.zeros(64 + 32 * 32 * 8, np.uint64)
        self.given = named.given()
        for field, array in (
            (Stream.TABLE, self.table), (Stream.GROUPS, self.groups), (Stream.LINES, self.lines),
            (Stream.SECTORS, self.sectors), (Stream.SCRATCH, self.scratch), (Stream.WRITTEN, self.written),
        ):  # fmt: skip
            self.given[field // 8] = array.ctypes.data
        self.given[Stream.MASK // 8] = cells - 1
        #: the most accesses of a block
        self.longest = int(np.diff(named.firsts.astype(np.int64)).max(initial=0))

    @property
    def unique(self) -> int | None:
        """The number of lines; ``None`` if there are more than the table holds."""
        count, cells = int(self.given[Stream.UNIQUE // 8]), len(self.table)
        return None if count >= cells - 1 - (cells - 1 >> 2) else count

    def found(self) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.uint8], NDArray[np.uint32]]:
        """The groups, the lines, the touched sectors and the written words."""
        count = self.unique
        groups, lines = self.groups[:count].copy(), self.lines[:count].copy()
        return groups, lines, self.sectors[:count].copy(), self.written[:count].copy()

    def streams(
        self, warps: list[NDArray[np.uint32]], words: int
    ) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """The streams of the warps of a CTA, with room for ``words`` words of accesses, and where each begins."""
        room = words + sum(map(len, warps)) + 64 * len(warps) + 64
        # the room that is asked for before a block is that of its longest accesses
        stream = np.zeros(room + self.longest * MOST_OF_ACCESS // 4, np.uint32)
        self.given[Stream.OUT_ENDS // 8] = int(stream.ctypes.data) + stream.nbytes - 4
        function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(
            runtime_addresses(("sm_stream",))["sm_stream"]
        )
        starts, out = [], int(stream.ctypes.data)
        for warp, recorded in enumerate(warps):
            for field, value in (
                (Stream.WORDS, recorded.ctypes.data), (Stream.COUNT, len(recorded)), (Stream.OUT, out), (Stream.WARP, warp),
            ):  # fmt: skip
                self.given[field // 8] = value
            starts.append(out)
            out = function(int(self.given.ctypes.data))
            if not out:
                raise NotRun("its records are not whole blocks of its code, or longer than expected")
        kept = stream[: (out - int(stream.ctypes.data)) // 4].copy()
        return kept, np.array(starts, np.int64) + (int(kept.ctypes.data) - int(stream.ctypes.data))
