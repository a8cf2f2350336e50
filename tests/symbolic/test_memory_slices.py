"""Control flow that goes through memory: slices see what was stored, whoever stored it and through whatever pointer.

``GPUPERF_RANDOM_KERNELS=N`` runs N kernels from seeds (default 14; ``GPUPERF_RANDOM_FIRST`` is the first, default 0).
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

import gpuperf_engine as ge
from tests.engine.random_kernels import Choices, Seeded
from tests.engine.random_memory import ROW, memory_kernel
from tests.engine.test_random_kernels import Drawn
from tests.symbolic.test_demands import check

MORE = int(os.environ.get("GPUPERF_RANDOM_KERNELS", "14"))
FIRST = int(os.environ.get("GPUPERF_RANDOM_FIRST", "0"))
BLOCKS: tuple[Any, ...] = (1, 5, 32, 33, 48, (8, 5))


def launch(text: str, backend: str, demand: str, grid: int, block: Any, how: str) -> ge.Profile:
    """Launch on the same data. ``how``: array b is another one than a, the same, or a view of its second half."""
    threads = int(np.prod(block)) * grid
    random = np.random.default_rng(threads)
    device = ge.Device(set() if demand == "control" else {"memory"}, backend=backend, memory_bytes=1 << 22)
    rows = random.integers(0, 256, (2, 2 * threads + 2, ROW), np.uint8)
    a, other = device.array(rows[0], name="a"), device.array(rows[1], name="b")
    words = device.array(random.integers(0, 2**32, threads, np.uint32), name="c")
    b = {"other": other, "same": a, "view": a[threads:]}[how]
    return device.launch(ge.parse(text, path="k.ptx")["k"], grid, block, [a, b, words], demand=demand)


def compare(choices: Choices, backend: str, show: Any) -> None:
    text = memory_kernel(choices)
    block, grid = BLOCKS[choices.number(0, len(BLOCKS) - 1)], choices.number(1, 2)
    how = ("other", "same", "view")[choices.number(0, 2)]
    show(f"// grid {grid}, block {block}, b: {how}\n{text}")
    check(*(launch(text, backend, demand, grid, block, how) for demand in ("values", "addresses", "control")))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + MORE))
def test_seeded(seed: int) -> None:
    compare(Seeded(seed), "reference" if seed % 5 == 0 else "llvm", print)


@settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_drawn(data: st.DataObject) -> None:
    compare(Drawn(data), "llvm", note)
