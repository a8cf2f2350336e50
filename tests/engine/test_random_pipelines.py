"""Random rings between threads that fill and threads that empty: both backends and the interpreter leave the same memory and counts.

``GPUPERF_RANDOM_KERNELS=N`` runs N of them (default 8; ``GPUPERF_RANDOM_FIRST`` is the first seed, default 0).
"""

from __future__ import annotations

import os

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.engine.random_kernels import Seeded
from tests.engine.random_pipelines import WORDS, Pipeline
from tests.engine.test_oracle_counts import compare_counts
from tests.oracle import scalar

MORE = int(os.environ.get("GPUPERF_RANDOM_KERNELS", "8"))
FIRST = int(os.environ.get("GPUPERF_RANDOM_FIRST", "0"))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + MORE))
def test_backends_and_interpreter_agree(seed: int) -> None:
    kernel = Pipeline(Seeded(seed))
    text, grid, threads = kernel.text(), kernel.grid, kernel.threads
    print(text)
    host = np.random.default_rng(seed).integers(0, 1 << 32, (grid, kernel.steps, WORDS), np.uint32)
    blank = np.zeros((grid, threads), np.uint32)
    result = scalar.run(text, "k", grid, threads, [scalar.Buffer(host), scalar.Buffer(blank)])
    profiles = []
    for backend in ("reference", "llvm"):
        device = ge.Device(backend=backend, memory_bytes=1 << 20)
        data, out = device.array(host), device.array(blank)
        profiles.append(device.launch(ge.parse(text, path="k.ptx")["k"], grid, threads, [data, out]))
        np.testing.assert_array_equal(out.numpy(), result.memory[1])
        compare_counts(profiles[-1], result)
    assert profiles[0] == profiles[1]
