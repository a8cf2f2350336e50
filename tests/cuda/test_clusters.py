"""Clusters as nvcc compiles them: places, distributed shared memory, barriers in two halves, atomics; against NumPy and the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.oracle import scalar

from .running import Array, run, text


def against_oracle(
    entry: str, grid: Any, block: Any, args: list[Any], cluster: Any = None, shared_bytes: int = 0
) -> list[Array]:
    """On both backends and in the oracle: same memory, same counts. The arrays afterwards."""
    arrays, profile = run("clusters", entry, grid, block, args, cluster=cluster, shared_bytes=shared_bytes)
    buffers = [scalar.Buffer(arg) if isinstance(arg, np.ndarray) else arg for arg in args]
    result = scalar.run(text("clusters"), entry, grid, block, buffers, shared_bytes, cluster=cluster)
    for found, expected in zip(arrays, result.memory, strict=True):
        np.testing.assert_array_equal(found, expected.reshape(found.shape))
    assert profile.opcodes == result.opcodes
    assert profile.warp_opcodes == result.warp_opcodes
    return arrays


@pytest.mark.parametrize("cluster", [(2, 2, 1), (1, 2, 2), (4, 1, 1), (4, 2, 2), (1, 1, 1)], ids=str)
def test_places(cluster: tuple[int, int, int]) -> None:
    grid, threads = (4, 4, 2), 48
    (out,) = against_oracle("places", grid, threads, [np.zeros((32, threads, 20), np.uint32)], cluster)
    x, y, z = cluster
    size = x * y * z
    for block in range(32):
        place = (block % 4, block // 4 % 4, block // 16)
        index = [here % side for here, side in zip(place, cluster)]
        rank = index[0] + x * (index[1] + y * index[2])
        rows = out[block]
        assert (rows[:, :9] == [*index, *cluster, threads * x, y, z]).all()
        thread = np.arange(threads)
        assert (rows[:, 9] == index[0] * threads + thread).all()
        assert (rows[:, 10:14] == [index[1], index[2], rank, size]).all()
        assert (rows[:, 14] == rank * threads + thread).all()
        assert (rows[:, 15:18] == [size * threads, rank, size - 1]).all()
        # in the window of the cluster always, in that of the block only for the block itself
        assert (rows[:, 18:] == [3, 2 + (rank == size - 1)]).all()


@pytest.mark.parametrize(("cluster", "threads", "rounds"), [(1, 32, 2), (3, 40, 4), (8, 64, 9), (16, 33, 3)])
def test_passing_on(cluster: int, threads: int, rounds: int) -> None:
    blocks = 2 * cluster
    args = [np.zeros((blocks, threads), np.int32), np.int32(rounds)]
    (out,) = against_oracle("pass_on", blocks, threads, args, cluster, 8 * threads)
    numbers = np.arange(blocks * threads).reshape(2, cluster, threads)
    expected = np.roll(numbers, rounds, axis=1) + rounds * (rounds - 1)
    np.testing.assert_array_equal(out, expected.reshape(blocks, threads))


@pytest.mark.parametrize(("cluster", "threads"), [(2, 64), (5, 96)])
def test_atomics_of_a_whole_cluster(cluster: int, threads: int) -> None:
    args = [
        np.zeros((2, 2), np.uint64),
        np.zeros((2, 2), np.uint32),
        np.zeros(2, np.float32),
        np.zeros(2, np.int32),
    ]
    wide, words, floats, locked = run("clusters", "meet", 2 * cluster, threads, args, cluster=cluster)[0]
    count = cluster * threads
    assert (wide == [(count << 33) + count * (count - 1) // 2, (count - 1) << 32]).all()
    # wraps after 100
    assert (words == [count % 100, sum(1 << bit for bit in range(min(31, count)))]).all()
    assert (floats == 0.25 * count * (count - 1) / 2).all()
    assert (locked == 3 * cluster * (threads // 32)).all()


def test_a_transpose_across_blocks() -> None:
    n = 96
    matrix = np.random.default_rng(3).normal(size=(n, n)).astype(np.float32)
    _, out = against_oracle("transpose_pairs", (6, 6), (16, 16), [matrix, np.zeros_like(matrix), np.int32(n)])
    np.testing.assert_array_equal(out, matrix.T)


def test_pairs_by_masks() -> None:
    (out,) = against_oracle("pairs", 8, 32, [np.zeros((8, 32, 2, 4), np.int32), np.int32(5)], 4)
    for block in range(8):
        rank = block % 4
        for thread in range(32):
            for place, other in enumerate((rank & ~1, rank ^ 1)):
                assert out[block, thread, place].tolist() == [5, other, thread, block - rank + other]
