"""What matrix products are made of: the numbers that bit patterns stand for, sums, and where a lane's registers lie in a matrix.

Products are exact. A sum begins with c and adds the products in ascending k, in double precision (Python's float), and is rounded
once to the type of d: the order that the product documents, where the manual leaves it open. ``f64`` has one ``fma`` per step,
integers wrap (or with ``.satfinite`` clamp) at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from . import floats
from .integers import mask, signed
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


def rounded(kind: str, total: float) -> int:
    """The pattern of a floating-point sum."""
    return floats.FORMATS[kind].nan if total != total else floats.from_python(floats.FORMATS[kind], total)


#: matrices of numbers or patterns
Matrix = Sequence[Sequence[Number]]
Sum = Callable[[Sequence[Sequence[int]], Matrix, Matrix], list[list[int]]]


def summation(d: str, c: str, op: str = "", saturates: bool = False, mode: str = "rn") -> Sum:
    """Of the types of d and c: from the patterns of C, the rows of A and the columns of B to the patterns of D. ``op`` is that of
    bits, ``mode`` the rounding of ``f64``."""

    def doubles(start: Sequence[Sequence[int]], rows: Matrix, columns: Matrix) -> list[list[int]]:
        sums = [list(line) for line in start]
        for line, row in zip(sums, rows, strict=True):
            for at, column in enumerate(columns):
                for x, y in zip(row, column, strict=True):
                    line[at] = floats.fma(floats.F64, int(x), int(y), line[at], mode)
        return sums

    def integers(start: Sequence[Sequence[int]], rows: Matrix, columns: Matrix) -> list[list[int]]:
        a, b = np.array(rows, np.int64), np.array(columns, np.int64)
        total = np.array(start, np.uint32).view(np.int32).astype(np.int64)
        if op:
            pairs = (np.bitwise_xor if op == "xor" else np.bitwise_and)(a[:, None], b[None])
            total = total + pairs.sum(axis=2)
        else:
            total = total + a @ b.T  # of 8 bits and less: far from 64 bits
        if saturates:
            total = total.clip(-(1 << 31), (1 << 31) - 1)
        found: list[list[int]] = (total & mask(32)).tolist()
        return found

    def reals(start: Sequence[Sequence[int]], rows: Matrix, columns: Matrix) -> list[list[int]]:
        a, b = np.array(rows, np.float64), np.array(columns, np.float64)
        with np.errstate(all="ignore"):  # a signalling NaN is invalid even when it is converted
            if c == "f32":
                total = np.array(start, np.uint32).view(np.float32).astype(np.float64)
            else:
                total = np.array([[number(c, bits) for bits in line] for line in start], np.float64)
            for k in range(a.shape[1]):  # one product after the other, all sums at once
                total = total + a[:, k, None] * b[None, :, k]
            if d == "f32":
                single = total.astype(np.float32).view(np.uint32)
                found: list[list[int]] = np.where(np.isnan(total), floats.F32.nan, single).tolist()
                return found
        return [[rounded(d, x) for x in line] for line in total.tolist()]

    return {"f64": doubles, "s32": integers}.get(d, reals)


def pieces(registers: Sequence[int], width: int, bits: int) -> list[int]:
    """The elements in registers of ``width`` bits, the lowest first."""
    if width == bits:
        return [register & mask(bits) for register in registers]
    low, shifts = mask(bits), range(0, width, bits)
    return [register >> shift & low for register in registers for shift in shifts]


def together(elements: Sequence[int], width: int, bits: int) -> tuple[int, ...]:
    """The other way round."""
    per = width // bits
    if per == 1:
        return tuple(elements)
    return tuple(
        sum(element << bits * i for i, element in enumerate(elements[first : first + per]))
        for first in range(0, len(elements), per)
    )


# -- fragments of ``mma`` and ``wgmma`` (manual, "Matrix Fragments"): eight groups of four lanes


@cache
def left_place(lane: int, i: int, bits: int, rows: int) -> tuple[int, int]:
    """Row and k of element ``i`` of A in a lane."""
    per = max(1, 32 // bits)
    block = i // per
    group, high = lane // 4, block % 2 if rows > 8 else 0
    further = block // 2 if rows > 8 else block
    return group + 8 * high, per * (lane % 4) + i % per + 4 * per * further


@cache
def right_place(lane: int, i: int, bits: int) -> tuple[int, int]:
    """k and column of element ``i`` of B in a lane."""
    per = max(1, 32 // bits)
    return per * (lane % 4) + i % per + 4 * per * (i // per), lane // 4


@cache
def result_place(lane: int, i: int) -> tuple[int, int]:
    """Row and column of element ``i`` of C and D in a lane."""
    return lane // 4 + 8 * (i // 2 % 2), 2 * (lane % 4) + i % 2 + 8 * (i // 4)
