"""The kernels that the cost of counting is measured on, with what their counts are by hand, for any size.

``expected`` maps a part of an instruction's text to how many lanes execute it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

import gpuperf_engine as ge

__all__ = ["LARGE", "SMALL", "Case", "at", "lanes_at"]


@dataclass(frozen=True)
class Case:
    """A launch of ``entry(out, n, m, p)``. ``seconds``: what counting it may take."""

    title: str
    entry: str
    grid: Any
    block: Any
    numbers: tuple[Any, Any, Any]
    expected: Mapping[str, int]
    #: executed and divergent branches
    branches: tuple[int, int] | None = None
    seconds: float = 0.1


def at(kernel: ge.Kernel, text: str, part: str) -> list[int]:
    """Indices of the instructions of a kernel whose line has this part."""
    lines = text.splitlines()
    return [item.index for item in kernel.instructions if part in lines[item.span.line - 1]]


def lanes_at(program: Any, lanes: list[int], text: str, part: str) -> int:
    """Executions by lanes of the one instruction with this part."""
    (index,) = at(program.kernel, text, part)
    return lanes[program.block_of[program.kernel.instructions[index]]]


def _threads(grid: Any, block: Any) -> int:
    return prod(np.atleast_1d(grid).tolist()) * prod(np.atleast_1d(block).tolist())


def _narrow(*numbers: int) -> tuple[Any, ...]:
    return tuple(np.int32((number + 2**31) % 2**32 - 2**31) for number in numbers)


def saxpy_wide(grid: int, block: int, n: int) -> Case:
    threads = _threads(grid, block)
    return Case(
        "saxpy, 64-bit index, ragged",
        "saxpy_wide",
        grid,
        block,
        (np.int64(n), np.int64(0), np.int64(0)),
        {"st.global": min(n, threads)},
        (threads // 32, int(n < threads and n % 32 > 0)),
    )


def saxpy_narrow(grid: int, block: int, n: int) -> Case:
    """Threads 2³¹ … 2³²−1 of every 2³² have a negative index and pass the test."""
    threads = _threads(grid, block)
    whole, rest = divmod(threads, 2**32)
    return Case(
        "saxpy, 32-bit index, which wraps 512 times",
        "saxpy_narrow",
        grid,
        block,
        _narrow(n, 0, 0),
        {"st.global": whole * (n + 2**31) + min(rest, n) + max(0, rest - 2**31)},
        (threads // 32, (whole + (rest > n)) * (n % 32 > 0)),
        seconds=0.5,
    )


def grid_stride(grid: int, block: int, n: int) -> Case:
    threads = _threads(grid, block)
    trips, longer = divmod(n, threads)
    by_four = longer * ((trips + 1) // 4) + (threads - longer) * (trips // 4)
    return Case(
        "grid-stride loop, unrolled by 4",
        "grid_stride",
        grid,
        block,
        (np.int64(n), np.int64(0), np.int64(0)),
        {", 158984081": by_four, ", 1664525": n - 4 * by_four, "st.global": threads},
    )


def stencil(grid: tuple[int, int], block: tuple[int, int], n: int, m: int) -> Case:
    return Case(
        "2-D stencil with borders",
        "stencil",
        grid,
        block,
        _narrow(n, m, 0),
        {"+4], %r20": (n - 2) * (m - 2), "+8], %r19": n * m - (n - 2) * (m - 2), "ld.global": n * (m - 1)},
    )


def rows(grid: int, block: int, n: int) -> Case:
    """n a multiple of 32: warp w makes 32·w + 32 trips, and lanes leave it in 31 of them."""
    warps = n // 32
    launched = _threads(grid, block) // 32
    return Case(
        "row loop `j <= i`",
        "rows",
        grid,
        block,
        _narrow(n, 0, 0),
        {", 1664525": n * (n + 1) // 2, "st.global": n},
        (launched + warps + 16 * warps * (warps + 1), 31 * warps),
    )


def after(grid: int, block: int, n: int) -> Case:
    """n a multiple of 4: the trips are 0 … n − 1, one lane each."""
    quarter = n // 4
    return Case(
        "`j = i+1 … n`, unrolled by 4",
        "after",
        grid,
        block,
        _narrow(n, 0, 0),
        {", 158984081": 2 * quarter * (quarter - 1), ", 1664525": 6 * quarter, "st.global": n},
    )


def triple(grid: int, block: int, n: int) -> Case:
    return Case(
        "triple nest `j = i … n, k = 0 … j`",
        "triple",
        grid,
        block,
        _narrow(n, 0, 0),
        {", 1664525": (n - 1) * n * (n + 1) // 3, "add.s32 \t%r20, %r20, 1": n * (n + 1) // 2},
        seconds=1.0,
    )


def lower_triangle(grid: tuple[int, int], block: tuple[int, int], n: int) -> Case:
    return Case(
        "lower triangle `j <= i`",
        "lower_triangle",
        grid,
        block,
        _narrow(n, 0, 0),
        {"st.global": n * (n + 1) // 2},
    )


def all_pairs(grid: int, block: int, n: int) -> Case:
    """n a multiple of 32: each warp parts once for each of its lanes, at the test that leaves out the lane itself."""
    warps, launched = n // 32, _threads(grid, block) // 32
    return Case(
        "all pairs, self skipped",
        "all_pairs",
        grid,
        block,
        _narrow(n, 0, 0),
        {"+12], %r20": n * (n - 1)},
        (launched + warps + 2 * n * warps, n),
        seconds=0.2,
    )


def flat_picture(grid: int, block: int, n: int, width: int, height: int) -> Case:
    lines, rest = divmod(n, width)
    return Case(
        f"`t / w`, `t % w` borders, w = {width}",
        "flat_picture",
        grid,
        block,
        _narrow(n, width, height),
        {
            "+16], %r19": lines * (width - 2) + (min(rest - 1, width - 2) if rest else 0),
            "+20], %r19": (min(height, lines) - 1) * width + (rest if height > lines else 0),
        },
        seconds=0.5,
    )


def digits(grid: int, block: int, n: int, m: int, p: int) -> Case:
    """t = p … n − 1."""

    def high_sevenths(t: int) -> int:
        """How many of 0 … t − 1 have floor(t / 224) mod 7 > 3: the last 3 · 224 of every 7 · 224."""
        return t // 1568 * 672 + max(0, t % 1568 - 896)

    return Case(
        "`t/224`, `t%224`, then `/7`, `%7`, t near 2³¹",
        "digits",
        grid,
        block,
        _narrow(n, m, p),
        {
            "+16], %r30": -(-n // 224) - -(-p // 224),
            "+20], %r30": high_sevenths(n) - high_sevenths(p),
            "+24], %r30": max(0, min(n, 1568 * m) - p),
        },
        seconds=0.5,
    )


def swizzle(n: int, m: int, p: int) -> Case:
    """Every tile is visited once, whatever the order."""
    return Case(
        f"grouped tile swizzle, groups of {p} of {m} rows",
        "swizzle",
        n * m,
        64,
        _narrow(n, m, p),
        {"+16], %r31": n * (64 * m - 5), "+20], %r31": m * (n // 2) * 64},
        seconds=0.5,
    )


def sgemm(grid: tuple[int, int], n: int, m: int, p: int) -> Case:
    return Case(
        "sgemm 16 × 16, ragged M, N and K",
        "sgemm",
        grid,
        (16, 16),
        _narrow(n, m, p),
        {"mad.lo.s32 \t%r41,": _threads(grid, 256) * -(-p // 16), "st.global": n * m},
    )


#: the closed forms themselves, where every block can be run
SMALL = (
    saxpy_wide(7, 128, 801),
    saxpy_wide(7, 128, 2000),
    saxpy_narrow(9, 256, 2000),
    grid_stride(3, 64, 1234),
    grid_stride(3, 64, 100),
    stencil((3, 4), (32, 8), 85, 30),
    stencil((5, 3), (16, 16), 71, 41),
    rows(4, 64, 224),
    after(4, 64, 228),
    triple(2, 32, 45),
    lower_triangle((4, 4), (16, 16), 59),
    all_pairs(3, 64, 160),
    flat_picture(9, 64, 555, 100, 3),
    flat_picture(9, 64, 500, 100, 9),
    flat_picture(9, 64, 570, 37, 100),
    digits(30, 256, 7000, 3, 500),
    swizzle(10, 12, 4),
    swizzle(10, 12, 5),
    sgemm((3, 2), 41, 27, 50),
)
GIGA = 10**9
LARGE = (
    saxpy_wide(2**31 - 1, 1024, 10**12 + 17),
    saxpy_narrow(2**31 - 1, 1024, GIGA + 17),
    grid_stride(4096, 256, 10**12),
    stencil((65535, 65535), (32, 8), 65535 * 32 - 17, 65535 * 8 - 3),
    stencil((65535, 65535), (16, 16), 65535 * 16 - 5, 65535 * 16 - 6),
    rows(3_906_250, 256, GIGA),
    after(3_906_250, 256, GIGA),
    triple(3_907, 256, 10**6),
    lower_triangle((62_501, 62_501), (16, 16), 10**6),
    all_pairs(3_907, 256, 10**6),
    flat_picture(10**6, 256, 256 * 10**6 - 100, 1000, 100_000),
    flat_picture(10**6, 256, 256 * 10**6 - 100, 1009, 100_000),
    digits(8 * 10**6, 256, 2**31 + 5 * 10**7, 1_234_567, 3 * 10**8),
    swizzle(2000, 3000, 8),
    swizzle(2000, 3000, 7),
    sgemm((4000, 4000), 63_993, 63_991, 63_991),
)
