"""``ldmatrix``, ``stmatrix`` and ``mma.sync``: the lanes of a warp bring rows or fragments (see ``products``)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from .integers import mask
from .operands import Builder
from .products import BITS, Number, left_place, number, pieces, result_place, right_place, summation, together
from .syntax import Vector

if TYPE_CHECKING:
    from .exchange import WarpWait
    from .threads import Thread

Step = Callable[["Thread"], None]
#: makes a step from (builder, value readers, writers, exchange)
Meet = Callable[..., Step]


def items(b: Builder, at: int) -> tuple[object, ...]:
    operand = b.operands[at]
    return operand.items if isinstance(operand, Vector) else (operand,)


def eight_by_eight(b: Builder) -> None:
    if not b.has("m8n8") or not b.has("b16"):
        raise b.fail("the oracle knows matrices of 8 x 8 elements of 16 bits only")


def load(b: Builder, meet: Meet) -> Step:
    eight_by_eight(b)
    puts = [b.put(item, 32) for item in items(b, 0)]
    space, address = b.space(), b.address(1)
    rows, transposed = 8 * len(puts), b.has("trans")

    def row(t: Thread) -> int:
        return t.load(space, address(t), 16) if t.lane < rows else 0

    def exchange(waits: dict[int, WarpWait]) -> dict[int, tuple[int, ...]]:
        halves = {lane: [wait.values[0] >> 16 * i & 0xFFFF for i in range(8)] for lane, wait in waits.items()}
        results = {}
        for lane in waits:
            first, second = lane // 4, 2 * (lane % 4)
            found = []
            for matrix in range(len(puts)):
                at = [(first, second), (first, second + 1)]
                if transposed:
                    at = [(column, line) for line, column in at]
                low, high = (halves[8 * matrix + line][column] for line, column in at)
                found.append(low | high << 16)
            results[lane] = tuple(found)
        return results

    return meet(b, [row], puts, exchange)


def store(b: Builder, meet: Meet) -> Step:
    """The other way round. A lane has what it stores when all have come: it is written when the lane gets its row."""
    eight_by_eight(b)
    gets = [b.get(item, 32) for item in items(b, 1)]
    space, address = b.space(), b.address(0)
    count, transposed = len(gets), b.has("trans")

    def put(t: Thread, value: int) -> None:
        if t.lane < 8 * count:
            t.store(space, address(t), 16, value)

    def exchange(waits: dict[int, WarpWait]) -> dict[int, tuple[int, ...]]:
        results = {}
        for lane in waits:
            matrix, line = lane // 8, lane % 8
            found = []
            for column in range(8) if matrix < count else ():
                row, k = (column, line) if transposed else (line, column)
                found.append(waits[4 * row + k // 2].values[matrix] >> 16 * (k % 2) & 0xFFFF)
            results[lane] = (sum(half << 16 * i for i, half in enumerate(found)),)
        return results

    return meet(b, gets, [put], exchange)


def product(b: Builder, meet: Meet) -> Step:
    shape = re.fullmatch(r"m(16|8)n8k(\d+)", b.mods[2])
    kinds = [word for word in b.mods[3:] if word in BITS]
    unknown = {"sp", "block_scale", "mxf8f6f4"} & set(b.mods) or (
        b.mods[2] == "m8n8k4" and "f64" not in kinds
    )
    if shape is None or len(kinds) != 4 or unknown:
        raise b.fail("the oracle multiplies no such matrices")
    rows, depth = int(shape[1]), int(shape[2])
    d, left, right, c = kinds
    width = 64 if d == "f64" else 32
    counts = [len(items(b, at)) for at in (1, 2, 3)]
    gets = [b.get(item, width) for at in (1, 2, 3) for item in items(b, at)]
    puts = [b.put(item, width) for item in items(b, 0)]
    op = next((word for word in b.mods if word in ("xor", "and")), "")
    add = summation(d, c, op, b.has("satfinite"), b.mode or "rn")
    # .kind::f8f6f4: every element in a byte, one of four bits in the middle of it
    widths = [8 if b.has("kind") else BITS[kind] for kind in (left, right)]

    in_bytes = b.has("kind")

    def value(kind: str, bits: int) -> Number:
        shorter = bits >> 2 if in_bytes and kind == "e2m1" else bits
        return number(kind, shorter & mask(BITS[kind]))

    def exchange(waits: dict[int, WarpWait]) -> dict[int, tuple[int, ...]]:
        lines: list[list[Number]] = [[0] * depth for _ in range(rows)]
        columns: list[list[Number]] = [[0] * depth for _ in range(8)]
        for lane, wait in waits.items():
            first, second = wait.values[: counts[0]], wait.values[counts[0] : counts[0] + counts[1]]
            for i, bits in enumerate(pieces(first, width, widths[0])):
                row, k = left_place(lane, i, widths[0], rows)
                lines[row][k] = value(left, bits)
            for i, bits in enumerate(pieces(second, width, widths[1])):
                k, column = right_place(lane, i, widths[1])
                columns[column][k] = value(right, bits)
        starts = [[0] * 8 for _ in range(rows)]
        for lane, wait in waits.items():
            for i, start in enumerate(pieces(wait.values[counts[0] + counts[1] :], width, BITS[c])):
                row, column = result_place(lane, i)
                starts[row][column] = start
        sums = add(starts, lines, columns)
        mine = range(rows * 8 // 32)
        return {
            lane: together(
                [sums[row][at] for row, at in (result_place(lane, i) for i in mine)], width, BITS[d]
            )
            for lane in waits
        }

    return meet(b, gets, puts, exchange)
