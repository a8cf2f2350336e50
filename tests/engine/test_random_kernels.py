"""Random kernels: both backends and the one-thread-at-a-time interpreter agree on memory and on every count.

``GPUPERF_RANDOM_KERNELS=N`` runs N of each shape from seeds (default 4; ``GPUPERF_RANDOM_FIRST`` is the first, default 0).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

import gpuperf_engine as ge
from tests.engine.random_kernels import (
    ACCUMULATORS,
    INPUTS,
    LOCK,
    WORDS,
    Choices,
    Seeded,
    gathered,
    meeting,
    ordered,
    structured,
    tangled,
)
from tests.engine.test_oracle_counts import compare_counts
from tests.oracle.scalar import Buffer, run

SHAPES = {
    "structured": structured,
    "gathered": gathered,
    "tangled": tangled,
    "ordered": ordered,
    "meeting": meeting,
}
#: any order of their threads gives the same memory
DEFINED = ("structured", "gathered", "tangled")
BLOCKS: tuple[Any, ...] = (1, 5, 31, 32, 33, 64, 96, (8, 5), (3, 2), (16, 2))
#: threads that take one lock one by one, which costs the reference backend the square of their number
MOST_IN_LINE = 33
MORE = int(os.environ.get("GPUPERF_RANDOM_KERNELS", "4"))
FIRST = int(os.environ.get("GPUPERF_RANDOM_FIRST", "0"))


class Drawn:
    """Choices of Hypothesis."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data

    def number(self, low: int, high: int) -> int:
        return self.data.draw(st.integers(low, high))


def check(choices: Choices, shape: str, show: Callable[[str], None]) -> None:
    block, grid = BLOCKS[choices.number(0, len(BLOCKS) - 1)], choices.number(1, 3)
    if shape == "ordered" and np.prod(block) * grid > MOST_IN_LINE:
        block, grid = ((33, 1), (6, 2), (4, 3))[grid - 1]
    text = SHAPES[shape](choices)
    show(text)
    threads = int(np.prod(block)) * grid
    inputs = np.random.default_rng(choices.number(0, 99)).integers(0, 2**32, INPUTS, dtype=np.uint64)
    totals = np.arange(ACCUMULATORS, dtype=np.uint32) * 0x1000_0001
    totals[LOCK] = 0
    start = [inputs.astype(np.uint32), np.zeros(threads * WORDS, np.uint32), totals]
    expected = None
    if shape in DEFINED:
        expected = run(text, "k", grid, block, [Buffer(array) for array in start])
    races = None if shape in DEFINED else "off"
    lanes, native = (outcome(backend, text, grid, block, start, races) for backend in ("reference", "llvm"))
    assert lanes == native
    if expected is not None:
        profile, contents = lanes
        assert isinstance(profile, ge.Profile), profile
        for array, after in zip(contents, expected.memory, strict=True):
            assert array == after.tolist()
        compare_counts(profile, expected, warps=shape != "gathered")


def outcome(
    backend: str, text: str, grid: int, block: Any, start: list[np.ndarray], races: str | None = None
) -> tuple[ge.Profile | str, list[list[int]]]:
    """The profile, or the error, and the contents of the arrays afterwards. ``races`` that are looked for are findings that must
    not be."""
    device = ge.Device(backend=backend, memory_bytes=1 << 22, max_instructions=100_000, races=races)
    arrays = [device.array(array, name=f"array{number}") for number, array in enumerate(start)]
    kernel = ge.parse(text, path="k.ptx")["k"]
    found: ge.Profile | str
    try:
        found = device.launch(kernel, grid, block, arrays)
    except (ge.BudgetExceeded, ge.Deadlock) as error:
        found = f"{type(error).__name__}: {error}"
    return found, [array.numpy().tolist() for array in arrays]


@pytest.mark.parametrize("shape", SHAPES)
@settings(
    max_examples=4,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_random_kernels(shape: str, data: st.DataObject) -> None:
    check(Drawn(data), shape, note)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + MORE))
@pytest.mark.parametrize("shape", SHAPES)
def test_seeded_kernels(shape: str, seed: int) -> None:
    check(Seeded(seed), shape, print)
