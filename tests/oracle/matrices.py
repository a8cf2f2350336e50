"""``ldmatrix`` and ``mma.sync.m16n8k8/k16`` of half precision: the lanes of a warp bring rows or fragments.

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


def product(b: Builder, meet: Meet) -> Step:
    shape, (d, left, right, c) = b.mods[2], b.mods[5:9]
    if shape not in ("m16n8k8", "m16n8k16") or (left, right, d, c) != ("f16", "f16", "f32", "f32"):
        raise b.fail("the oracle multiplies no such matrices")
    depth = int(shape[6:])
    gets = [b.get(item, 32) for at in (1, 2, 3) for item in _items(b, at)]
    puts = [b.put(item, 32) for item in _items(b, 0)]
    a_count, b_count = len(_items(b, 1)), len(_items(b, 2))

    def exchange(waits: dict[int, WarpWait]) -> dict[int, tuple[int, ...]]:
        a, other = {}, {}
        for lane, wait in waits.items():
            group, inner = lane // 4, lane % 4
            for i in range(2 * a_count):
                value = _half(wait.values[i // 2] >> 16 * (i % 2) & 0xFFFF)
                row = group if i % 4 < 2 else group + 8
                a[row, 2 * inner + i % 2 + (8 if i >= 4 else 0)] = value
            for i in range(2 * b_count):
                value = _half(wait.values[a_count + i // 2] >> 16 * (i % 2) & 0xFFFF)
                other[2 * inner + i % 2 + (8 if i >= 2 else 0), group] = value
        results = {}
        for lane, wait in waits.items():
            sums = []
            for i, bits in enumerate(wait.values[a_count + b_count :]):
                row, column = lane // 4 + (8 if i >= 2 else 0), 2 * (lane % 4) + i % 2
                total = _single(bits)
                for k in range(depth):
                    total = total + a[row, k] * other[k, column]
                sums.append(int.from_bytes(struct.pack("<f", total), "little"))
            results[lane] = tuple(sums)
        return results

    return meet(b, gets, puts, exchange)
