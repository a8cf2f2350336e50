"""``wmma``: which lane holds which element of a fragment the manual leaves open. Here element e, counted row by row, is number
e // 32 of lane e % 32; registers that are left over hold nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from .integers import mask
from .matrices import Meet, items
from .operands import Builder, Step
from .products import BITS, number, pieces, summation, together
from .registry import semantics

if TYPE_CHECKING:
    from .exchange import WarpWait
    from .threads import Thread


def sizes(b: Builder) -> tuple[int, int, int]:
    shape = next(found for word in b.mods if (found := re.fullmatch(r"m(\d+)n(\d+)k(\d+)", word)))
    return int(shape[1]), int(shape[2]), int(shape[3])


def places(b: Builder) -> tuple[int, int, str, Callable[[Thread, int, int], tuple[int, int]]]:
    """Of a load or store: rows, columns, type, and the byte address and bit there of a row and column."""
    m, n, k = sizes(b)
    rows, columns = {"a": (m, k), "b": (k, n)}.get(b.mods[1], (m, n))
    kind = b.mods[-1]
    at = 1 if b.has("load") else 0
    by_rows = b.has("row")
    address = b.address(at)
    pitch = b.get(2, 32) if len(b.operands) > 2 else (lambda t: columns if by_rows else rows)

    def place(t: Thread, row: int, column: int) -> tuple[int, int]:
        line, inner = (row, column) if by_rows else (column, row)
        bit = (line * pitch(t) + inner) * BITS[kind]
        return address(t) + bit // 8, bit % 8

    return rows, columns, kind, place


@semantics("wmma")
def move(b: Builder) -> Step:
    """A load or store: each lane moves the elements that are its own."""
    rows, columns, kind, place = places(b)
    bits, space = BITS[kind], b.space()
    size, width = max(1, bits // 8), 64 if kind == "f64" else 32
    registers = items(b, 0 if b.has("load") else 1)
    count = rows * columns // 32

    def load(t: Thread) -> None:
        elements = []
        for e in range(t.lane, rows * columns, 32):
            start, bit = place(t, e // columns, e % columns)
            elements.append(t.load(space, start, size) >> bit & mask(bits))
        elements += [0] * (len(registers) * width // bits - count)
        for put, value in zip(puts, together(elements, width, bits), strict=True):
            put(t, value)

    def store(t: Thread) -> None:
        elements = pieces([get(t) for get in gets], width, bits)[:count]
        for e, element in zip(range(t.lane, rows * columns, 32), elements, strict=True):
            t.store(space, place(t, e // columns, e % columns)[0], size, element)

    if b.has("load"):
        puts = [b.put(item, width) for item in registers]
        return load
    gets = [b.get(item, width) for item in registers]
    return store


def product(b: Builder, meet: Meet) -> Step:
    m, n, k = sizes(b)
    kinds = [word for word in b.mods[b.mods.index(f"m{m}n{n}k{k}") + 1 :] if word in BITS]
    d, left, right, c = kinds if len(kinds) == 4 else (kinds[0], "f16", "f16", kinds[1])
    width = 64 if d == "f64" else 32
    counts = [len(items(b, at)) for at in (1, 2, 3)]
    gets = [b.get(item, width) for at in (1, 2, 3) for item in items(b, at)]
    puts = [b.put(item, width) for item in items(b, 0)]
    op = next((word for word in b.mods if word in ("xor", "and")), "")
    add = summation(d, c, op, b.has("satfinite"))

    def matrix(waits: dict[int, WarpWait], first: int, count: int, kind: str, size: int) -> list[int]:
        """The patterns, row by row."""
        held = {
            lane: pieces(wait.values[first : first + count], width, BITS[kind])
            for lane, wait in waits.items()
        }
        return [held[e % 32][e // 32] for e in range(size)]

    def exchange(waits: dict[int, WarpWait]) -> dict[int, tuple[int, ...]]:
        a = [number(left, bits) for bits in matrix(waits, 0, counts[0], left, m * k)]
        other = [number(right, bits) for bits in matrix(waits, counts[0], counts[1], right, k * n)]
        start = matrix(waits, counts[0] + counts[1], counts[2], c, m * n)
        lines = [a[at : at + k] for at in range(0, m * k, k)]
        made = add([start[at : at + n] for at in range(0, m * n, n)], lines, [other[i::n] for i in range(n)])
        sums = [bits for line in made for bits in line]
        return {lane: together(sums[lane::32], width, BITS[d]) for lane in waits}

    return meet(b, gets, puts, exchange)
