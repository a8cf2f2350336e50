"""What matrix products are made of: the numbers that bit patterns stand for, sums, and where a lane's registers lie in a matrix.

Products are exact. A sum begins with c and adds the products in ascending k, in double precision (Python's float), and is rounded
once to the type of d: the order that the product documents, where the manual leaves it open. ``f64`` has one ``fma`` per step,
integers wrap (or with ``.satfinite`` clamp) at the end.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cache

from . import floats
from .integers import clamp, mask, signed
from .narrow import NARROW, decode

#: bits of the elements of matrices by type
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "f64": 64, "e4m3": 8, "e5m2": 8, "e3m2": 6, "e2m3": 6, "e2m1": 4,
        "s32": 32, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1}  # fmt: skip

Number = float | int


@cache
def number(kind: str, bits: int) -> Number:
    """The number of a pattern; ``f64`` and bits stay patterns."""
    if kind in ("f64", "b1"):
        return bits
    if kind[0] in "su":
        return signed(bits, BITS[kind]) if kind[0] == "s" else bits
    if kind == "tf32":
        return floats.to_python(floats.F32, bits & ~mask(13))
    if kind in NARROW:
        return floats.to_python(floats.F16, decode(NARROW[kind], bits))
    return floats.to_python(floats.FORMATS[kind], bits)


def single(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def rounded(kind: str, total: float) -> int:
    """The pattern of a floating-point sum."""
    if total != total:
        return floats.FORMATS[kind].nan
    if kind == "f32":
        try:
            return int.from_bytes(struct.pack("<f", total), "little")
        except OverflowError:
            return floats.F32.infinity | (floats.F32.sign_bit if total < 0 else 0)
    return floats.from_python(floats.FORMATS[kind], float(total))


Sum = Callable[[int, Sequence[Number], Sequence[Number]], int]


def summation(d: str, c: str, op: str = "", saturates: bool = False, mode: str = "rn") -> Sum:
    """Of the types of d and c: from the pattern of c, a row of A and a column of B to the pattern of d. ``op`` is that of bits,
    ``mode`` the rounding of ``f64``."""

    def doubles(start: int, row: Sequence[Number], column: Sequence[Number]) -> int:
        for x, y in zip(row, column, strict=True):
            start = floats.fma(floats.F64, int(x), int(y), start, mode)
        return start

    def bits(start: int, row: Sequence[Number], column: Sequence[Number]) -> int:
        pairs = zip(row, column, strict=True)
        return start + sum(int(x) ^ int(y) if op == "xor" else int(x) & int(y) for x, y in pairs) & mask(32)

    def integers(start: int, row: Sequence[Number], column: Sequence[Number]) -> int:
        total = signed(start, 32) + sum(int(x) * int(y) for x, y in zip(row, column, strict=True))
        return (clamp(total, 32, True) if saturates else total) & mask(32)

    def reals(start: int, row: Sequence[Number], column: Sequence[Number]) -> int:
        total = single(start) if c == "f32" else number(c, start)
        for x, y in zip(row, column, strict=True):
            total = total + x * y  # one after the other: the built-in sum may compensate
        return rounded(d, total)

    return {"f64": doubles, "s32": bits if op else integers}.get(d, reals)


def pieces(registers: Sequence[int], width: int, bits: int) -> list[int]:
    """The elements in registers of ``width`` bits, the lowest first."""
    return [register >> bits * i & mask(bits) for register in registers for i in range(width // bits)]


def together(elements: Sequence[int], width: int, bits: int) -> tuple[int, ...]:
    """The other way round."""
    per = width // bits
    return tuple(
        sum(element << bits * i for i, element in enumerate(elements[first : first + per]))
        for first in range(0, len(elements), per)
    )


# -- fragments of ``mma`` and ``wgmma`` (manual, "Matrix Fragments"): eight groups of four lanes


def left_place(lane: int, i: int, bits: int, rows: int) -> tuple[int, int]:
    """Row and k of element ``i`` of A in a lane."""
    per = max(1, 32 // bits)
    block = i // per
    group, high = lane // 4, block % 2 if rows > 8 else 0
    further = block // 2 if rows > 8 else block
    return group + 8 * high, per * (lane % 4) + i % per + 4 * per * further


def right_place(lane: int, i: int, bits: int) -> tuple[int, int]:
    """k and column of element ``i`` of B in a lane."""
    per = max(1, 32 // bits)
    return per * (lane % 4) + i % per + 4 * per * (i // per), lane // 4


def result_place(lane: int, i: int) -> tuple[int, int]:
    """Row and column of element ``i`` of C and D in a lane."""
    return lane // 4 + 8 * (i // 2 % 2), 2 * (lane % 4) + i % 2 + 8 * (i // 4)
