"""Block classes count what running every block counts, block by block of the program, or refuse and say why.

``GPUPERF_CLASS_LAUNCHES=N`` launches each kernel N times (default 1) and makes N·15 random kernels;
``GPUPERF_CLASS_FIRST`` is the first seed (default 0).
"""

from __future__ import annotations

import os
import random
import time
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

import gpuperf_engine as ge
from tests.engine.random_writer import Seeded
from tests.symbolic.control_kernels import control_kernel
from tests.symbolic.measured import LARGE, Case, lanes_at
from tests.symbolic.running import (
    Counts,
    by_classes,
    every_block,
    module,
    random_number,
    random_shape,
    text,
)

LAUNCHES = int(os.environ.get("GPUPERF_CLASS_LAUNCHES", "1"))
FIRST = int(os.environ.get("GPUPERF_CLASS_FIRST", "0"))
FILES = ("measured", "loops", "integers", "divisions", "warps", "refused", "written")
ENTRIES = [f"{file}-{entry}" for file in FILES for entry in module(file).kernels]
MANY = "a number that has to be known takes"
#: what may be refused, and the words that say why
REFUSED = {
    "integers-divided_by_block": MANY,
    "written-by_zero": MANY,
    "refused-hashed": MANY,
    "refused-block_product": MANY,
    "refused-leading_zeros": MANY,
    "refused-data": "ld.global.u32",
    "refused-atomic_order": "atom.global.add.u32",
    "refused-local_array": "st.local.u32",
    "warps-counted_barrier": "bar.red.popc.u32",
    "warps-through_shared": "st.shared.u32",
    "written-barriers_partly": "barrier.sync",
    "written-barriers_of_two_numbers": "several barriers",
    "warps-recursion_by_block": "a recursive function",
    "warps-calls_by_address": "ld.global.u64",
}


def compare(kernel: ge.Kernel, grid: Any, block: Any, numbers: tuple[Any, ...]) -> str:
    """``equal``, ``too long`` to run every block, ``both fail``, or the reason of the refusal; fails if the counts differ, or
    if there are counts of what cannot be run."""
    try:
        expected = every_block(kernel, grid, block, numbers)
    except ge.BudgetExceeded:
        return "too long"
    except ge.Deadlock:
        assert isinstance(by_classes(kernel, grid, block, numbers), str)
        return "both fail"
    found = by_classes(kernel, grid, block, numbers)
    if isinstance(found, str):
        return found
    wrong = difference(found, expected)
    assert not wrong, f"{kernel.name} {grid=} {block=} {numbers=}: {wrong}"
    return "equal"


def difference(found: Counts, expected: Counts) -> str:
    """Where two counts differ first, empty if nowhere."""
    for column in ("warps", "lanes", "divergent", "taken", "predicated"):
        pairs = zip(getattr(found, column), getattr(expected, column), strict=True)
        for index, (one, other) in enumerate(pairs):
            if one is not None and one != other:
                if column == "predicated":
                    where = expected.program.predicated[index]
                else:
                    where = next(iter(expected.program.blocks[index].instructions), None)
                return f"{column} {index} at line {where and where.span.line}: {one}, but {other}"
    return ""


def launch_of(kernel: ge.Kernel, chance: random.Random) -> tuple[Any, Any, tuple[Any, ...]]:
    """A random launch of a kernel of (out, n, m, p)."""
    grid, block = random_shape(chance)
    if kernel.name == "sgemm":
        grid, block = (chance.randint(1, 3), chance.randint(1, 3)), (16, 16)
    if kernel.name in ("recursion_by_block", "calls_by_address"):
        grid = chance.randint(1, 4)  # these run on the slow backend
    threads = prod(np.atleast_1d(grid).tolist()[:1]) * prod(np.atleast_1d(block).tolist())
    wide = kernel.params[1].size == 8
    kind = np.int64 if wide else np.int32
    return grid, block, tuple(kind(random_number(chance, threads, 64 if wide else 32)) for _ in range(3))


@pytest.mark.parametrize("name", ENTRIES)
def test_kernels(name: str) -> None:
    file, entry = name.split("-")
    kernel = module(file)[entry]
    for number in range(FIRST, FIRST + LAUNCHES):
        chance = random.Random(f"{name} {number}")
        reason = compare(kernel, *launch_of(kernel, chance))
        if reason not in ("equal", "too long", "both fail"):
            assert name in REFUSED and REFUSED[name] in reason, reason


@pytest.mark.parametrize("case", LARGE, ids=lambda case: f"{case.entry}-{case.numbers[1]}")
def test_large_launches(case: Case) -> None:
    kernel = module("measured")[case.entry]
    start = time.perf_counter()
    counts = by_classes(kernel, case.grid, case.block, case.numbers)
    seconds = time.perf_counter() - start
    assert isinstance(counts, Counts), counts
    found = {part: lanes_at(counts.program, counts.lanes, text("measured"), part) for part in case.expected}
    assert found == case.expected
    if case.branches is not None:
        assert (counts.executed, sum(counts.divergent)) == case.branches
    # the figures themselves are `make bench`'s: machines that run tests are shared
    assert seconds < 10 * case.seconds + 1


def test_random_kernels() -> None:
    reasons = []
    for seed in range(FIRST, FIRST + 15 * LAUNCHES):
        text = control_kernel(Seeded(seed))
        kernel = ge.parse(text, path=f"seed{seed}.ptx")["k"]
        reasons.append(compare(kernel, *launch_of(kernel, random.Random(seed))))
    assert sum(reason == "equal" for reason in reasons) >= 0.8 * len(reasons), reasons


@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)
@given(st.data())
def test_random_kernels_of_hypothesis(data: st.DataObject) -> None:
    class Drawn:
        def number(self, low: int, high: int) -> int:
            return data.draw(st.integers(low, high))

    text = control_kernel(Drawn())
    note(text)
    kernel = ge.parse(text, path="k.ptx")["k"]
    compare(kernel, *launch_of(kernel, random.Random(data.draw(st.integers(0, 10**6)))))


def test_random_kernels_on_large_grids() -> None:
    """Millions of blocks in a row count as the same blocks in rows do, where the kernel puts the index together."""
    equal = 0
    for seed in range(FIRST, FIRST + 6 * LAUNCHES):
        chance = random.Random(seed)
        wide, tall = chance.choice([(1000, 4001), (65537, 33), (3, 50000), (4096, 4096)])
        block = chance.choice([32, 33, 64, (16, 2), (10, 10), 128])
        about = chance.choice([64 * wide * tall, 1000, 64])
        numbers = tuple(np.int32(random_number(chance, about, 32)) for _ in range(3))
        row = control_kernel(Seeded(seed))
        rows = row.replace("mov.u32 %x1, %ctaid.y;", "mov.u32 %x1, %ctaid.z;").replace(
            "mov.u32 %v4, %ctaid.x;",
            "mov.u32 %x0, %nctaid.x; mov.u32 %x1, %ctaid.y; mov.u32 %x2, %ctaid.x; mad.lo.u32 %v4, %x1, %x0, %x2;",
        )
        one = by_classes(ge.parse(row, path=f"seed{seed}.ptx")["k"], wide * tall, block, numbers)
        if isinstance(one, str):
            continue
        other = by_classes(ge.parse(rows, path=f"seed{seed}.ptx")["k"], (wide, tall), block, numbers)
        if isinstance(other, Counts):
            assert one == other, seed
            equal += 1
    assert equal >= 4 * LAUNCHES
