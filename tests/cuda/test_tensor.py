"""Tensor copies of cuda::ptx: maps made in Python, passed where the CUDA driver's would be."""

from __future__ import annotations

from typing import Any

import numpy as np

import gpuperf_engine as ge
from tests.support import BACKENDS

from .running import module


def launch(
    backend: str, entry: str, grid: Any, block: int, args: Any, **arrays: Any
) -> tuple[Any, ge.Profile]:
    """``args`` makes the arguments from the arrays on the device."""
    device = ge.Device(backend=backend, memory_bytes=1 << 26)
    given = {name: device.array(array) for name, array in arrays.items()}
    profile = device.launch(module("tensor")[entry], grid, block, args(**given))
    return given["out"].numpy(), profile


def test_transpose() -> None:
    x = np.random.default_rng(1).standard_normal((80, 100)).astype(np.float32)
    counts = []
    for backend in BACKENDS:
        found, profile = launch(
            backend,
            "transpose",
            (4, 3),
            128,
            lambda x, out: [ge.TensorMap(x, (32, 32)), ge.TensorMap(out, (32, 32))],
            x=x,
            out=np.zeros((100, 80), np.float32),
        )
        assert (found == x.T).all()
        assert not profile.remarks
        counts.append((profile.opcodes, profile.memory))
    assert counts[0] == counts[1]
    assert counts[0][1].global_load_bytes == counts[0][1].global_store_bytes == x.nbytes


def test_swizzled_ring() -> None:
    tiles = 5
    x = np.random.default_rng(2).integers(-4, 5, (128, 64 * tiles)).astype(np.float16)
    weights = np.tile(np.arange(1, 65), tiles)
    for backend in BACKENDS:
        found, profile = launch(
            backend,
            "row_sums",
            2,
            96,
            lambda x, out: [ge.TensorMap(x, (64, 64), swizzle="128B"), out, np.int32(tiles)],
            x=x,
            out=np.zeros(128, np.float32),
        )
        assert (found == (x.astype(np.float64) * weights).sum(1)).all()
        waits = sum(count for name, count in profile.warp_opcodes.items() if "try_wait" in name)
        assert waits == 2 * (2 * tiles + tiles - 2)
        # columns of one row lie in eight different banks for eight rows: what swizzles are for
        assert profile.memory.shared_load_wavefronts > 0
