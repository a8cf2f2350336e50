"""The classes of the CTAs of a launch, which CTAs of them an SM runs, and their share of the grid."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .areas import Areas, Place
from .asynchronous import Copying
from .settings import LISTED, MOST_LOOKED_UP, ORDERED
from .sharing import Group
from .streams import Class

__all__ = ["Classes"]


@dataclass(frozen=True, slots=True)
class Classes:
    """``of_place``: the class by position along each axis: 0 first, 1 between, 2 last. For clusters: the class of the first CTA by the
    position of the cluster; those of the other CTAs follow. Empty if each class is a sampled CTA that represents an equal share of the
    grid, or of one of its ``areas``: their kinds are numbered from those with the most instructions on, ``firsts`` are the number of
    the first sampled CTA (or cluster) of each kind, and the number of all; the kind ``main`` does most of the work, and the CTAs of a
    kind take the same path if they are ``alike``. ``slabs``: the parts of the grid for which samples of the whole grid stand, numbered
    like areas, if their work differs. ``copying``: bulk and tensor copies; ``of_inputs``: whether the classes depend on
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
    slabs: Areas | None = None
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
    def layout(self) -> Areas | None:
        """Where the CTAs of each kind are, if the SM with the most work depends on it."""
        return self.slabs if self.areas is None else self.areas

    @property
    def exact(self) -> bool:
        """Whether each CTA of the launch is known to execute what its class does, so far as CTAs were traced."""
        single = len(self.firsts) - 1 == len(self.classes) // self.cluster
        return bool(self.of_place) or (self.areas is not None and self.alike and single)

    @property
    def longest(self) -> int:
        """The class with the longest streams, or the most instructions; for clusters, that of the first CTA."""
        if self.layout is not None:
            return int(self.work.argmax()) * self.cluster
        words = [len(item.stream) for item in self.classes]
        size = self.cluster
        return max(range(0, len(words), size), key=lambda first: sum(words[first : first + size]))

    def on_sm(self, ctas: int, step: int, first: int, resident: int = 1) -> NDArray[np.int64]:
        """The classes of the ``first`` of the ``ctas`` CTAs of an SM, which are ``step`` apart in the grid. If more CTAs run than were
        sampled, the samples alternate, so that any prefix contains all of them. If CTAs differ in work, the SM is the one with the
        most; if all are ``resident``, they start at once, and none is left to an SM that ends early."""
        numbers = np.arange(first, dtype=np.int64)
        if self.of_place:
            return self._of(self._start(ctas, step) + numbers * step)
        persistent = self.copying is not None and self.copying.named.kind_count
        if ctas == 1 and self.of_inputs and persistent:
            # Persistent CTAs: the launch takes as long as the longest.
            return np.array([self.longest], np.int64)
        if self.layout is not None:
            if ctas <= resident and first == ctas and ctas * step <= MOST_LOOKED_UP:
                return self._at_once(self.layout, ctas, step)
            return self._of_areas(self.layout, ctas, step, first, resident)
        count = len(self.classes) // self.cluster
        return (numbers % count if ctas > count else numbers * count // ctas) * self.cluster

    def shares(self) -> NDArray[np.float64]:
        """The share of all CTAs, or clusters, that each class has."""
        count = len(self.classes) // self.cluster
        if self.layout is not None:
            counted, samples = self.layout.counted(), np.diff(self.firsts)
            return np.repeat(counted / counted.sum() / samples, samples)
        if not self.of_place:
            return np.full(count, 1 / count)
        x, y, z = (np.array([1, max(0, size - 2), size > 1]) / size for size in self.grid)
        parts = x[:, None, None] * y[:, None] * z
        found = np.zeros(count)
        np.add.at(found, self._table().ravel() // self.cluster, parts.ravel())
        return found

    def _start(self, ctas: int, step: int) -> int:
        """The first CTA of the SM with the most work: an SM that has the first CTA of the grid need not, as that may end at once."""
        starts = np.arange(min(step, math.prod(self.grid) // self.cluster - (ctas - 1) * step))
        if len(set(self.of_place.values())) == 1 or len(starts) * ctas > MOST_LOOKED_UP:
            return 0
        words = np.array([len(item.stream) for item in self.classes])
        return int(words[self._of(starts + np.arange(ctas)[:, None] * step)].sum(axis=0).argmax())

    def _at_once(self, areas: Areas, ctas: int, step: int) -> NDArray[np.int64]:
        """``on_sm`` if all CTAs start at once. Samples of a kind stand for as many CTAs each, in the order of the grid."""
        kinds = areas.first(ctas * step).astype(np.int64)
        found, work = np.zeros(len(kinds), np.int64), np.zeros(ctas * step)
        if areas.at is not None:
            work[: len(kinds)] = areas.works(self._work_of_kinds, np.arange(len(kinds)))
            most = work.reshape(ctas, step).sum(axis=0).argmax()
            return self._as_long(work[: len(kinds)][most::step]) * self.cluster
        for kind in range(areas.count):
            own = np.flatnonzero(kinds == kind)
            samples = self.firsts[kind + 1] - self.firsts[kind]
            found[own] = self.firsts[kind] + np.arange(len(own)) * samples // max(1, len(own))
        work[: len(found)] = self.work[found]
        return found[int(work.reshape(ctas, step).sum(axis=0).argmax()) :: step] * self.cluster

    def _as_long(self, work: NDArray[np.float64]) -> NDArray[np.int64]:
        """Samples with about the work of each of some CTAs, and with as much together: those nearest to it and to what the ones before
        left."""
        found, each, left = np.zeros(len(work), np.int64), self.work, 0.0
        for number, wanted in enumerate(work.tolist()):
            found[number] = np.abs(each - wanted - left).argmin()
            left += wanted - each[found[number]]
        return found

    def _of_areas(self, areas: Areas, ctas: int, step: int, first: int, resident: int) -> NDArray[np.int64]:
        """``on_sm`` of the SM with the most work: of the kinds with the most instructions, any number of them together, it has its
        part of the CTAs of the grid, rounded up, when ``step`` CTAs after the other were started. CTAs of a kind are its samples in
        turn."""
        total, numbers = int(areas.counted().sum()), np.arange(1, first + 1)
        ordered = ctas <= ORDERED and first == ctas
        if ordered:
            before = areas.before(np.minimum(numbers * step, total)).cumsum(axis=1)
            wanted = _part_of_sm(before, step, self._more(areas, ctas, step, resident))
        else:
            wanted = -(-(numbers[:, None] * self._most(areas, ctas, step, resident)) // ctas)
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

    def alone(self, ctas: int, step: int, resident: int) -> tuple[NDArray[np.int64], float]:
        """The class of the CTA that is simulated alone, and the part of its work that the CTAs of the SM of ``on_sm`` have on average:
        the first one, or the one with the most work if they differ."""
        if self.layout is None:
            return self.on_sm(ctas, step, 1), 1.0
        one = np.array([self.longest])
        return one, self.work_of_sm(ctas, step, resident) / self.work_of(one)

    def work_of(self, ran: NDArray[np.int64]) -> float:
        """The mean work of CTAs of the classes ``ran``, or clusters whose first CTAs are of these: ``work``."""
        return float(self.work[ran // self.cluster].mean())

    def work_of_sm(self, ctas: int, step: int, resident: int) -> float:
        """The mean work of all CTAs of the SM of ``on_sm``."""
        if self.layout is None:
            return float(self.work @ self.shares())
        most = self._most(self.layout, ctas, step, resident)
        return float(self._work_of_kinds @ np.diff(most, prepend=0)) / ctas

    def _most(self, areas: Areas, ctas: int, step: int, resident: int) -> NDArray[np.int64]:
        """By kind, how many CTAs of it and those before the SM with the most work has."""
        more = self._more(areas, ctas, step, resident)
        most: NDArray[np.int64] = np.minimum(ctas, _part_of_sm(areas.counted().cumsum(), step, more))
        return most

    def _more(self, areas: Areas, ctas: int, step: int, resident: int) -> int:
        """What ``_part_of_sm`` adds for the SM with the most work: the number of CTAs that are alike is rounded up, that of others to
        the nearest, as one more of these need not be one of the longest. If samples stand for them, so much that the SM has the work
        of the one that ends last, or nearly."""
        if self.areas is not None:
            return step - 1 if self.alike else step // 2
        work, counted = self._work_of_kinds, areas.counted().cumsum()
        choices = np.arange(step // 2, 4 * step, max(1, step // 16))
        most = np.minimum(ctas, _part_of_sm(counted, step, choices[:, None]))
        totals = np.diff(most, prepend=0, axis=1) @ work
        wanted = areas.counted() @ work / step + self._late(areas, step, resident)
        return int(choices[np.abs(totals - wanted).argmin()])

    def _late(self, areas: Areas, step: int, resident: int) -> float:
        """How much more work than the mean the SM has that ends last: the first CTAs start on one of ``step`` SMs after the other, all
        others on those that have had the least work, a quarter of the SMs at a time."""
        at_once, some = resident * step, max(1, step // 4)
        end = min(int(areas.counted().sum()), MOST_LOOKED_UP)
        work = areas.works(self._work_of_kinds, np.arange(max(0, end - at_once - LISTED * step), end))
        loads = np.bincount(np.arange(len(work[:at_once])) % step, work[:at_once], step).astype(np.float64)
        for start in range(at_once, len(work), some):
            part = work[start : start + some]
            least = loads.argsort(kind="stable")[: len(part)]
            loads[least] = loads[least] + part
        return float(loads.max() - loads.mean())

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


def _part_of_sm(counted: NDArray[np.int64], step: int, more: int | NDArray[np.int64]) -> NDArray[np.int64]:
    """How many of so many CTAs one of ``step`` SMs has, if it has its part of them and of as many ``more``; one of any at least."""
    found: NDArray[np.int64] = np.maximum(counted > 0, (counted + more) // step)
    return found
