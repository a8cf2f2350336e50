"""``ldmatrix`` and ``mma.sync`` of half precision, bytes and e4m3: the lanes of a warp bring rows or fragments.

Fragments lie as the manual's figures show. Products are exact; the sum begins with c and adds them in ascending k in double
precision (Python's float) and is rounded once: the order that the product documents.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from .operands import Builder
from .syntax import Vector

if TYPE_CHECKING:
    from .exchange import WarpWait
    from .threads import Thread

MATRIX_NAMES = ("mma", "ldmatrix")
Step = Callable[["Thread"], None]
#: makes a step from (builder, value readers, writers, exchange)
Meet = Callable[..., Step]


def _items(b: Builder, at: int) -> tuple[object, ...]:
    operand = b.operands[at]
    return operand.items if isinstance(operand, Vector) else (operand,)


def build(b: Builder, meet: Meet) -> Step:
    return product(b, meet) if b.statement.base == "mma" else load(b, meet)


def load(b: Builder, meet: Meet) -> Step:
    puts = [b.put(item, 32) for item in _items(b, 0)]
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


def _half(bits: int) -> float:
    return float(struct.unpack("<e", struct.pack("<H", bits))[0])


def _single(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def _signed(bits: int, width: int) -> int:
    return bits - (1 << width) if bits >> (width - 1) else bits


def _eight(bits: int) -> float:
    """e4m3: sign, four bits of exponent with bias 7, three of mantissa; all ones are no number."""
    exponent, mantissa = bits >> 3 & 15, bits & 7
    if bits & 0x7F == 0x7F:
        return float("nan")
    size = (8 + mantissa) * 2.0 ** (exponent - 10) if exponent else mantissa * 2.0**-9
    return -size if bits & 0x80 else size


#: type of A and B: bits of an element, its value, type of C and D
KINDS: dict[str, tuple[int, Callable[[int], float], str]] = {
    "f16": (16, lambda bits: _half(bits), "f32"),
    "s8": (8, lambda bits: _signed(bits, 8), "s32"),
    "e4m3": (8, _eight, "f32"),
}


def product(b: Builder, meet: Meet) -> Step:
    shape, (d, left, right, c) = b.mods[2], b.mods[5:9]
    bits, value_of, added = KINDS.get(left, (0, _half, ""))
    if not shape.startswith("m16n8k") or (right, d, c) != (left, added, added):
        raise b.fail("the oracle multiplies no such matrices")
    depth, per = int(shape[6:]), 32 // bits
    gets = [b.get(item, 32) for at in (1, 2, 3) for item in _items(b, at)]
    puts = [b.put(item, 32) for item in _items(b, 0)]
    a_count, b_count = len(_items(b, 1)), len(_items(b, 2))

    def exchange(waits: dict[int, WarpWait]) -> dict[int, tuple[int, ...]]:
        a, other = {}, {}
        for lane, wait in waits.items():
            group, inner = lane // 4, lane % 4
            for i in range(per * a_count):
                value = value_of(wait.values[i // per] >> bits * (i % per) & (1 << bits) - 1)
                row = group if i % (2 * per) < per else group + 8
                a[row, per * inner + i % per + (4 * per if i >= 2 * per else 0)] = value
            for i in range(per * b_count):
                value = value_of(wait.values[a_count + i // per] >> bits * (i % per) & (1 << bits) - 1)
                other[per * inner + i % per + (4 * per if i >= per else 0), group] = value
        results = {}
        for lane, wait in waits.items():
            sums = []
            for i, start in enumerate(wait.values[a_count + b_count :]):
                row, column = lane // 4 + (8 if i >= 2 else 0), 2 * (lane % 4) + i % 2
                total = _single(start) if added == "f32" else _signed(start, 32)
                for k in range(depth):
                    total = total + a[row, k] * other[k, column]
                if added == "f32":
                    sums.append(int.from_bytes(struct.pack("<f", total), "little"))
                else:
                    sums.append(int(total) & 0xFFFFFFFF)
            results[lane] = tuple(sums)
        return results

    return meet(b, gets, puts, exchange)
