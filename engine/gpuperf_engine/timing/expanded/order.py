"""The order of machine instructions in a basic block, as an assembler may choose it.

List scheduling by deadline, with one instruction per clock, and after an access to memory none for three more: an instruction is due
at its place in the program, or as many instructions before one that waits for it as its latency has clocks; of those whose operands
are there and whose unit is free, the one that is due first comes first, but a product of matrices as soon as tensor cores are free. So
loads come as early as their results need, and not earlier: ``ptxas`` 13.0 issues loads from shared memory 36 to 40 instructions (the
median) ahead of their first use in matrix products, in which there is room for it, and puts loads of matrices between products. If
more registers would be live than there should be, the first instruction of the program comes first. If the program itself needs more
than there should be, another order takes its place: always the instruction that adds the fewest, and of several the one whose result
is used up first. True, anti and output dependences are kept."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import accumulate

__all__ = ["TENSOR", "WAIT", "Ordering", "Step"]

TENSOR = "tensor"
"""The unit of products of matrices."""
WAIT = "wait"
"""The unit of instructions at which a warp waits for others, or for its copies."""

#: Registers beyond the fewest that a block needs, in which loads come early in any block.
_MORE = 8


@dataclass(frozen=True, slots=True)
class Step:
    """An instruction: the values that it reads and writes, clocks until its results are available, whether it ends the block or
    loads from memory, the unit that it occupies, with the clocks for which it does, where a plain load or store accesses memory: the
    values that its address is made of, an offset and bytes; and clocks until the next instruction."""

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    latency: float
    last: bool = False
    loads: bool = False
    unit: str = ""
    busy: int = 1
    place: tuple[tuple[int, ...], int, int] | None = None
    issue: int = 1


class Ordering:
    """The steps of a block, to be ordered. ``words``: 32-bit registers of each value; ``kept``: values that are live behind the steps;
    ``saves``: another order may be made to need fewer registers, not only if the given one needs more than there are, when all are
    used; ``least``: the fewest live registers, of the given order or of that one; ``needed``: those of the one that is made."""

    def __init__(
        self, steps: Sequence[Step], words: Mapping[int, int], kept: Collection[int], saves: bool = True
    ) -> None:
        self.steps, self.words, self.kept, self.saves = steps, words, kept, saves
        self.values = _Values(steps, words, kept)
        self.given = max(self.values.live)
        self.fewest = _ordered(steps, self.values, 0, _Fallback.FEWEST)
        self.least = min(self.given, self.fewest[1])
        self.needed = self.least if saves else self.given

    def within(self, registers: int, free: int, room: int = 0) -> tuple[list[int], int]:
        """The positions of the steps in their order, and the most registers that are live. ``registers``: the most of a thread;
        ``free``: live registers up to which loads come early in any block of any kernel; ``room``: those up to which they do in this
        kernel; 0 if that depends on these steps alone. The order does not exceed ``room``, nor ``free`` if eight fewer would do."""
        stays = room or self.needed + _MORE <= free
        most = min(registers, max(free, room)) if stays else registers
        limit = min(registers, max(free, room or self.needed + _MORE))
        if self.given <= max(self.least, limit if self.saves else registers):
            return _with_early_loads(self.steps, self.values, limit, most)
        # in the given order early loads would hold what is used far behind
        first = self.fewest[0]
        steps = [self.steps[at] for at in first]
        order, live = _with_early_loads(steps, _Values(steps, self.words, self.kept), limit, most)
        return [first[at] for at in order], live if self.saves else max(live, registers)


def _with_early_loads(steps: Sequence[Step], values: _Values, limit: int, most: int) -> tuple[list[int], int]:
    """The order with loads as early as ``limit`` live registers permit, and no more than ``most`` of them if the given order needs no
    more either; and the most that are live."""
    least, fewer = max(values.live), 1
    while limit > least:
        found = _ordered(steps, values, limit, _Fallback.PLACE)
        if found[1] <= most:
            return found
        # what was live early left too few for later: fewer early
        limit, fewer = limit - fewer, 2 * fewer
    most = max(most, least)
    for limit in range(most, max(least, most - _MORE) - 1, -1):
        found = _ordered(steps, values, limit, _Fallback.KEPT)
        if found[1] <= most:
            return found
    return list(range(len(steps))), least


class _Fallback(Enum):
    """What comes first if there are no registers for the step that is due: the first in the given order, the one that adds the fewest
    registers; or the first in the given order, also if there are enough now, but not for all that follow in that order."""

    PLACE = 0
    FEWEST = 1
    KEPT = 2


class _Values:
    """The values of the steps by definition: each write of a register is another one. ``reads`` and ``writes``: of each step;
    ``sizes``: their registers; ``uses``: how many steps read each, one more if it is live at the end; ``entering``: registers that are
    live in front of the steps."""

    def __init__(self, steps: Sequence[Step], words: Mapping[int, int], kept: Collection[int]) -> None:
        self.steps = steps
        self.sizes: list[int] = []
        self.uses: list[int] = []
        self.reads: list[list[int]] = []
        self.writes: list[list[int]] = []
        now: dict[int, int] = {}

        def made(value: int) -> int:
            now[value] = len(self.sizes)
            self.sizes.append(words.get(value, 0))
            self.uses.append(0)
            return now[value]

        entering: set[int] = set()
        for step in steps:
            read = []
            for value in step.reads:
                if value >= 0 and words.get(value, 0):
                    if value not in now:
                        entering.add(made(value))
                    read.append(now[value])
            for one in read:
                self.uses[one] += 1
            self.reads.append(read)
            self.writes.append([made(value) for value in step.writes if value >= 0 and words.get(value, 0)])
        for value in kept:
            if words.get(value, 0):
                if value not in now:
                    entering.add(made(value))
                self.uses[now[value]] += 1
        self.entering = sum(self.sizes[one] for one in entering)

    @cached_property
    def dependences(self) -> tuple[list[dict[int, bool]], list[int]]:
        return _dependences(self.steps)

    @cached_property
    def due(self) -> list[float]:
        """The place of each step in the given order, or as many before that of one that waits for it as its latency has clocks."""
        after, due = self.dependences[0], [0.0] * len(self.steps)
        for at in range(len(due) - 1, -1, -1):
            waiting = (due[later] - self.steps[at].latency for later, true in after[at].items() if true)
            due[at] = min((float(at), *waiting))
        return due

    @cached_property
    def live(self) -> list[int]:
        """The registers that are live in front of each step in the given order, and behind the last."""
        uses, live = list(self.uses), [self.entering]
        for at, read in enumerate(self.reads):
            live.append(live[-1] + self.grown(at, uses))
            for one in read:
                uses[one] -= 1
        return live

    @cached_property
    def most(self) -> list[int]:
        """The most registers that are live in front of a step or later, in the given order."""
        return list(accumulate(reversed(self.live), max))[::-1]

    def grown(self, at: int, uses: Sequence[int]) -> int:
        """By how many registers the live ones grow with a step."""
        grown = 0
        for one in self.writes[at]:
            if uses[one]:
                grown += self.sizes[one]
        for one in self.reads[at]:
            if uses[one] == 1:
                grown -= self.sizes[one]
        return grown


def _ordered(
    steps: Sequence[Step], values: _Values, registers: int, fallback: _Fallback
) -> tuple[list[int], int]:
    """The order with loads as early as this number of registers permits, and the most registers that are live."""
    count = len(steps)
    after, before = values.dependences
    uses = list(values.uses)
    live = most = values.entering
    ready = _Ready(steps, values, values.due, after, list(before))
    order: list[int] = []
    place = 0
    while len(order) < count:
        at = ready.due_first()
        needed = live + values.grown(at, uses)
        if fallback is _Fallback.KEPT:
            while ready.done[place]:
                place += 1
            # what is live now beyond the given order, on top of what that order needs
            needed += values.most[place] - values.live[place]
        if needed > registers:
            few = ready.with_fewest() if fallback is _Fallback.FEWEST else ready.at_first_place()
            at = at if few is None else few
        live += values.grown(at, uses)
        most = max(most, live)
        for one in values.reads[at]:
            uses[one] -= 1
        order.append(at)
        ready.issued(at)
    return order, most


class _Ready:
    """The steps whose operands have been issued: in the order in which they are due; and for fewest registers those that write no
    more than they read, then those that are the last that all steps wait for that use their results, or some of these, then the
    others, each in the order in which their results are used up in the program."""

    def __init__(
        self,
        steps: Sequence[Step],
        values: _Values,
        due: Sequence[float],
        after: Sequence[Mapping[int, bool]],
        before: list[int],
    ) -> None:
        self.due, self.after, self.before = due, after, before
        last = {one: at for at, read in enumerate(values.reads) for one in read}
        self.ends = [
            max((last.get(one, at) for one in written), default=at)
            for at, written in enumerate(values.writes)
        ]
        sizes = values.sizes
        self.steady = [
            not step.loads
            and sum(sizes[one] for one in values.writes[at]) <= sum(sizes[one] for one in values.reads[at])
            for at, step in enumerate(steps)
        ]
        self.waits_for: list[list[int]] = [[] for _ in steps]
        for at, laters in enumerate(after):
            for later in laters:
                self.waits_for[later].append(at)
        self.done = [False] * len(steps)
        self.open = [False] * len(steps)
        self.steps = steps
        #: Those whose results are there, by unit; those that wait for results, with the clock at which they are there; and all, in
        #: the order in which they are due and in the given one.
        self.first: dict[str, list[tuple[float, int]]] = {step.unit: [] for step in steps}
        self.later: list[tuple[float, int]] = []
        self.all: list[tuple[float, int]] = []
        self.placed: list[int] = []
        #: The clock, when units are free, and when operands are there.
        self.now = 0.0
        self.free = dict.fromkeys(self.first, 0.0)
        self.busy = {step.unit: step.busy for step in steps}
        self.there = [0.0] * len(steps)
        self.few: tuple[list[tuple[float, int]], ...] = [], [], [], []
        #: For each step, how many wait for its results, and how many of these for nothing else.
        self.enabled = [0] * len(steps)
        self.waiting = [sum(laters.values()) for laters in after]
        for at, count in enumerate(before):
            if count == 1:
                self._enabled(at)
        for at, count in enumerate(before):
            if not count:
                self._add(at)

    def _add(self, at: int) -> None:
        self.open[at] = True
        heapq.heappush(self.later, (self.there[at], at))
        heapq.heappush(self.all, (self.due[at], at))
        heapq.heappush(self.placed, at)
        rank = self._rank(at)
        heapq.heappush(self.few[rank], (self.ends[at] if rank else self.due[at], at))

    def _rank(self, at: int) -> int:
        if self.steady[at]:
            return 0
        if self.enabled[at] == self.waiting[at]:
            return 1
        return 2 if self.enabled[at] else 3

    def _enabled(self, later: int) -> None:
        """Of the steps that another waits for one is left."""
        at = next(one for one in self.waits_for[later] if not self.done[one])
        self.enabled[at] += self.after[at][later]
        if self.open[at] and not self.steady[at]:
            heapq.heappush(self.few[self._rank(at)], (self.ends[at], at))

    def due_first(self) -> int:
        """The one that is due first of those whose operands are there and whose units are free, at the first clock at which there is
        one. A wait does not come before what is due earlier."""
        while self.done[self.all[0][1]]:
            heapq.heappop(self.all)
        first = self.all[0][1]
        if self.steps[first].unit == WAIT:
            return first
        while True:
            while self.later and self.later[0][0] <= self.now:
                at = heapq.heappop(self.later)[1]
                heapq.heappush(self.first[self.steps[at].unit], (self.due[at], at))
            clock, found = float("inf"), (True, float("inf"), -1)
            for unit, heap in self.first.items():
                while heap and self.done[heap[0][1]]:
                    heapq.heappop(heap)
                if heap and unit != WAIT:
                    clock = min(clock, self.free[unit])
                    if self.free[unit] <= self.now:
                        found = min(found, (unit != TENSOR, *heap[0]))
            if found[2] >= 0:
                return found[2]
            self.now = min(clock, self.later[0][0] if self.later else clock)

    def at_first_place(self) -> int:
        while self.done[self.placed[0]]:
            heapq.heappop(self.placed)
        return self.placed[0]

    def with_fewest(self) -> int | None:
        for heap in self.few:
            while heap and self.done[heap[0][1]]:
                heapq.heappop(heap)
            if heap:
                return heap[0][1]
        return None

    def issued(self, at: int) -> None:
        self.done[at] = True
        step = self.steps[at]
        issued = max(self.now, self.there[at], self.free[step.unit])
        self.now, self.free[step.unit] = issued + step.issue, issued + step.busy
        for later, true in self.after[at].items():
            self.there[later] = max(self.there[later], issued + (step.latency if true else 1))
            self.before[later] -= 1
            if not self.before[later]:
                self._add(later)
            elif self.before[later] == 1:
                self._enabled(later)


def _dependences(steps: Sequence[Step]) -> tuple[list[dict[int, bool]], list[int]]:
    """The steps that wait for each one (True: for its result, False: only for its issue), and how many each one waits for. Negative
    values are the order of accesses to memory: of these, loads and stores of one base register at other offsets may pass each other,
    as in the code of ``ptxas`` 13.0 for sums in memory, but not stores other stores."""
    after: list[dict[int, bool]] = [{} for _ in steps]
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    stores: dict[int, list[int]] = {}
    for at, step in enumerate(steps):
        for value in step.reads:
            if value >= 0 and value in writer:
                after[writer[value]][at] = True
            elif value < 0:
                # stores are in order, so that the last one of those that may be the same place stands for all before
                last = next(
                    (one for one in reversed(stores.get(value, ())) if not _apart(steps[one], step)), None
                )
                if last is not None:
                    after[last].setdefault(at, False)
            readers.setdefault(value, []).append(at)
        for value in step.writes:
            passed = []
            for reader in readers.pop(value, ()):
                if reader == at:
                    continue
                if value < 0 and _apart(steps[reader], step):
                    passed.append(reader)
                else:
                    after[reader].setdefault(at, False)
            if passed:
                readers[value] = passed
            if value in writer and writer[value] != at:
                after[writer[value]].setdefault(at, False)
            writer[value] = at
            if value < 0:
                stores.setdefault(value, []).append(at)
                if step.place is None:
                    stores[value] = [at]
        if step.last:
            for earlier in range(at):
                after[earlier].setdefault(at, False)
    before = [0] * len(steps)
    for laters in after:
        for later in laters:
            before[later] += 1
    return after, before


def _apart(one: Step, other: Step) -> bool:
    """Whether two accesses have the same base and no byte in common."""
    if one.place is None or other.place is None or one.place[0] != other.place[0]:
        return False
    (_, first, size), (_, second, other_size) = one.place, other.place
    return first + size <= second or second + other_size <= first
