"""Barriers and pipelines of the CUDA C++ library, for sm_80 (test_wait) and sm_90 (try_wait, bulk copies)."""

from __future__ import annotations

import numpy as np
import pytest

from .running import Array, run

FILES = ("barriers", "barriers_hopper")


def ring(threads: int, rounds: int) -> Array:
    values = np.arange(threads)
    for trip in range(rounds):
        values = values + np.roll(values, -1) + trip
    return values


@pytest.mark.parametrize("file", FILES)
def test_arrive_and_wait(file: str) -> None:
    (out,), profile = run(file, "ring", 2, 96, [np.zeros(192, np.int32), np.int32(4)])
    assert (out == np.tile(ring(96, 4), 2)).all()
    # two arrivals and two waits a round, and no wait runs twice
    waits = {name: count for name, count in profile.warp_opcodes.items() if "_wait" in name}
    arrivals = {name: count for name, count in profile.warp_opcodes.items() if "mbarrier.arrive" in name}
    assert sum(waits.values()) == sum(arrivals.values()) == 2 * 3 * 4 * 2


@pytest.mark.parametrize("file", FILES)
def test_arrive_and_drop(file: str) -> None:
    """Warp w takes part in w + 1 phases."""
    (out,), _ = run(file, "drops", 2, 96, [np.zeros(2, np.int32)])
    assert out.tolist() == [32 * (1 + 2 + 3)] * 2


@pytest.mark.parametrize("file", FILES[:1])
def test_copies_that_arrive(file: str) -> None:
    x = np.arange(2048, dtype=np.int32)
    (_, out), _ = run(file, "copies", 4, 64, [x, np.zeros_like(x)])
    assert (out == x.reshape(4, 512)[:, ::-1].ravel()).all()


@pytest.mark.parametrize("file", FILES)
def test_pipelines(file: str) -> None:
    x = np.random.default_rng(1).integers(0, 50, (6, 128)).astype(np.float32)
    (_, out), _ = run(file, "staged", 1, 128, [x, np.zeros(128, np.float32), np.int32(6)])
    assert (out == x.sum(0)[np.arange(128) ^ 1]).all()
    (_, out), _ = run(file, "partitioned", 1, 96, [x[:, :64].copy(), np.zeros(64, np.float32), np.int32(6)])
    assert (out == x[:, :64].sum(0)).all()
