"""``wgmma.mma_async``: each warp of a warpgroup makes its sixteen rows, as soon as its lanes are there. At ``.fence`` the threads of
the warpgroup gather, so all of them read what is there when the last one comes. ``.wait_group`` holds a thread until all of them have
committed the groups that it waits for: then no warp reads operands of theirs any more."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .integers import mask
from .matrices import Meet, items
from .memory import OracleError
from .operands import Builder, Step
from .products import BITS, Number, left_place, number, pieces, result_place, summation, together
from .registry import semantics
from .syntax import Vector

if TYPE_CHECKING:
    from .exchange import WarpWait
    from .threads import Thread

#: units of 16 bytes in a line of the pattern, by the swizzling mode of a descriptor
UNITS = {0: 1, 1: 8, 2: 4, 3: 2}
#: of a warpgroup
THREADS = 128


@semantics("wgmma")
def ordering(b: Builder) -> Step:
    if b.mods[0] != "commit_group":
        raise b.fail("the oracle does not know this instruction")

    def step(t: Thread) -> None:
        come(t, t.cta.groups)

    return step


class GroupWait:
    """A thread that waits for others of its warpgroup."""


def come(t: Thread, counter: Counter[int]) -> None:
    """A thread has come to the next group, or fence: those go on that waited for it."""
    counter[t.number] += 1
    now, group = counter[t.number], t.number // THREADS
    met = [
        item
        for item in t.cta.awaiting
        if item[1] is counter and item[2] == now and item[0].number // THREADS == group
    ]
    if met and is_complete(t, counter, now):
        for item in met:
            t.cta.awaiting.remove(item)
            item[0].waiting = None


def is_complete(t: Thread, counter: Counter[int], wanted: int) -> bool:
    """Whether all threads of a thread's warpgroup have come so far."""
    first = t.number // THREADS * THREADS
    members = range(first, min(first + THREADS, len(t.cta.threads)))
    # who has the highest number comes last in most cases
    return all(counter[member] >= wanted for member in reversed(members))


def wait(b: Builder) -> Callable[[Thread], None]:
    """``wgmma.fence``, where the threads of a warpgroup gather, and ``wgmma.wait_group``, for all groups but the last ones."""
    left = constant(b, 0) if b.has("wait_group") else 0

    def step(t: Thread) -> None:
        counter = t.cta.groups if b.has("wait_group") else t.cta.fences
        if counter is t.cta.fences:
            come(t, counter)
        item = (t, counter, counter[t.number] - left)
        if not is_complete(*item):
            t.waiting = GroupWait()
            t.cta.awaiting.append(item)

    return step


def places(descriptor: int, bits: int, across: bool) -> Callable[[Any, Any], Any]:
    """From row (of B: column) and k of an element, numbers or arrays of them, to its byte in shared memory (manual, "Matrix
    Descriptor Format", "Canonical Layouts"). ``across``: k is not the direction in which elements are neighbours."""
    start = (descriptor & mask(14)) << 4
    leading, stride = ((descriptor >> at & mask(14)) << 4 for at in (16, 32))
    base, units = descriptor >> 49 & 7, UNITS[descriptor >> 62]
    unit = 128 // bits  # elements in 16 bytes

    def place(line: Any, k: Any) -> Any:
        """Canonical layouts of units of 16 bytes, in bytes."""
        if across:
            inner, group, lines = line % unit, line // unit, k
        else:
            inner, group, lines = k % unit, k // unit, line
        offset = inner * bits // 8 + lines % 8 * 16 * units
        if across and units == 1:
            offset += group * stride + lines // 8 * leading
        elif across:
            offset += group % units * 16 + group // units * leading + lines // 8 * stride
        else:
            offset += lines // 8 * stride + group * (leading if units == 1 else 16)
        address = start + offset
        return address ^ ((address >> 7) - base & units - 1) << 4

    return place


def product(b: Builder, meet: Meet) -> Step:
    shape = next(found for word in b.mods if (found := re.fullmatch(r"m64n(\d+)k(\d+)", word)))
    columns, depth = int(shape[1]), int(shape[2])
    kinds = [word for word in b.mods if word in BITS]
    if b.has("sp") or len(kinds) != 3:
        raise b.fail("the oracle multiplies no such matrices")
    d, left, right = kinds
    registers = isinstance(b.operands[1], Vector)
    a_gets = [b.get(item, 32) for item in items(b, 1)] if registers else [b.get(1, 64)]
    signs = [1, 1]
    across = [False, False]
    if d != "s32":  # … scale-d, imm-scale-a, imm-scale-b{, imm-trans-a}{, imm-trans-b}
        signs = [constant(b, 4), constant(b, 5)]
        turns = [bool(constant(b, at)) for at in range(6, len(b.operands))]
        across = [False, *turns][-2:] if turns else across
    gets = [b.get(3, 1), b.get(2, 64), *(b.get(item, 32) for item in items(b, 0)), *a_gets]
    results = len(items(b, 0))
    puts = [b.put(item, 32) for item in items(b, 0)]
    op = "and" if left == "b1" else ""
    add = summation(d, d, op, b.has("satfinite"))

    def matrix(t: Thread, descriptor: int, kind: str, lines: range, turned: bool) -> list[list[Number]]:
        bits, memory = BITS[kind], np.frombuffer(t.cta.shared, np.uint8)
        place, size = places(descriptor, bits, turned), max(1, bits // 8)
        at = place(np.array(lines)[:, None], np.arange(depth)[None])
        if at.max() + size > len(memory):
            raise OracleError(f"line {b.statement.line}: a descriptor points past shared memory")
        patterns = sum(memory[at + i].astype(np.int64) << 8 * i for i in range(size))
        patterns = patterns >> np.arange(depth) * bits % 8 & mask(bits)
        return [[number(kind, pattern) for pattern in line] for line in patterns.tolist()]

    def exchange(waits: dict[int, WarpWait]) -> dict[int, tuple[int, ...]]:
        thread = waits[0].thread
        first = 16 * (thread.number // 32 % 4)
        held = waits[0].values
        if registers:
            rows: list[list[Number]] = [[0] * depth for _ in range(16)]
            for lane, wait in waits.items():
                for i, bits in enumerate(pieces(wait.values[2 + results :], 32, BITS[left])):
                    row, k = left_place(lane, i, BITS[left], 16)
                    rows[row][k] = number(left, bits)
        else:
            rows = matrix(thread, held[2 + results], left, range(first, first + 16), across[0])
        lines = matrix(thread, held[1], right, range(columns), across[1])
        if signs != [1, 1]:
            rows = [[signs[0] * signs[1] * x for x in row] for row in rows]
        starts = [[0] * columns for _ in range(16)]
        for lane, wait in waits.items():
            if wait.values[0]:
                for i, start in enumerate(pieces(wait.values[2 : 2 + results], 32, BITS[d])):
                    row, column = result_place(lane, i)
                    starts[row][column] = start
        sums = add(starts, rows, lines)
        mine = range(16 * columns // 32)
        return {
            lane: together([sums[row][at] for row, at in (result_place(lane, i) for i in mine)], 32, BITS[d])
            for lane in waits
        }

    return meet(b, gets, puts, exchange)


def constant(b: Builder, at: int) -> int:
    value = b.statement.operands[at]
    return int(value.value)  # type: ignore[attr-defined]
