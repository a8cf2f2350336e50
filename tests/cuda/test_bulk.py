"""Bulk copies, reductions and stores of cuda::ptx and of the CUDA C++ library, on sm_90."""

from __future__ import annotations

import numpy as np

from .running import run

FILE = "bulk"


def test_in_place() -> None:
    data = np.arange(4 * 1024 + 8, dtype=np.int32)
    (found,), profile = run(FILE, "add_one", 4, 128, [data, np.int32(4)])
    expected = data.copy()
    expected[4:-4] += 1
    assert (found == expected).all()
    assert profile.memory.global_load_bytes == profile.memory.global_store_bytes == 4 * 4096


def test_producer_and_consumers() -> None:
    """As many waits as tiles, whoever is faster."""
    tiles = 11
    x = np.random.default_rng(1).integers(0, 100, (tiles, 128)).astype(np.float32)
    (_, sums), profile = run(FILE, "columns", 1, 160, [x, np.zeros(128, np.float32), np.int32(tiles)])
    assert (sums == x.sum(0)).all()
    waits = sum(count for name, count in profile.warp_opcodes.items() if "try_wait" in name)
    assert waits == 4 * tiles + tiles - 4


def test_library_copies() -> None:
    x = np.arange(2048, dtype=np.int32)
    (_, out), profile = run("barriers_hopper", "copies", 4, 64, [x, np.zeros_like(x)])
    assert (out == x.reshape(4, 512)[:, ::-1].ravel()).all()
    assert any("cp.async.bulk" in name for name in profile.opcodes)


def test_histogram() -> None:
    x = np.random.default_rng(2).integers(0, 256, 5000).astype(np.uint8)
    (_, counts), profile = run(FILE, "histogram", 3, 128, [x, np.zeros(256, np.uint32), np.int32(5000)])
    assert (counts == np.bincount(x, minlength=256)).all()
    assert profile.memory.global_atomic_sectors == 3 * 1024 // 32


def test_ring_of_blocks() -> None:
    x = np.arange(512, dtype=np.int32)
    (_, out), _ = run(FILE, "rotate", 8, 64, [x, np.zeros_like(x)])
    assert (out == np.roll(x.reshape(2, 4, 64), 1, axis=1).ravel()).all()
