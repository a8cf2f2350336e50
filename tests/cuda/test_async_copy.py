"""cp.async: copies, partial and ignored ones, what they cost, and copies from outside."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge

from .running import module, run, run_on

FILE = "async_copy"


def test_pipeline() -> None:
    tiles = 5
    x = np.random.default_rng(1).integers(0, 100, (tiles, 32, 4)).astype(np.float32)
    (_, sums), profile = run(FILE, "pipeline", 1, 32, [x, np.zeros(32, np.float32), np.int32(tiles)])
    assert (sums == (x[:, ::-1] * np.array([1, 2, 3, 4])).sum((0, 2))).all()
    memory = profile.memory
    assert memory.global_load_requests == tiles
    assert memory.global_load_sectors == tiles * 32 * 16 // 32
    assert memory.shared_store_wavefronts == 4 * tiles  # 512 bytes, 128 at a time
    assert memory.shared_conflicts == 0


def test_group_copy() -> None:
    x = np.arange(150, dtype=np.int32)
    (_, out), _ = run(FILE, "group_copy", 1, 64, [x, np.zeros_like(x), np.int32(150)], shared_bytes=600)
    assert (out == x[::-1]).all()


def test_partial_copies() -> None:
    x = np.arange(32 * 16, dtype=np.uint8).reshape(32, 16) + np.uint8(1)
    (_, out, ignored), _ = run(FILE, "partial", 1, 32, [x, np.zeros_like(x), np.zeros_like(x)])
    for lane in range(32):
        kept = (16, 8, 0, 3)[lane & 3]
        expected = np.where(np.arange(16) < kept, x[lane], 0)
        assert (out[lane] == (np.tile([7, 0, 0, 0], 4) if lane % 7 == 6 else expected)).all()
        copied = np.zeros(8) if lane % 5 == 4 else x[lane, :8]
        assert (ignored[lane] == np.concatenate([copied, np.tile([9, 0, 0, 0], 2)])).all()


def test_copy_from_outside(backend: str) -> None:
    with pytest.raises(ge.MemoryFault, match=r"out-of-bounds cp\.async.*4-byte load") as caught:
        run_on(backend, module(FILE)["outside"], 1, 32, [np.zeros(20, np.int32), np.zeros(32, np.int32)])
    assert "thread (20, 0, 0)" in str(caught.value)
