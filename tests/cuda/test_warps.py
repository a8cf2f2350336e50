"""Warp intrinsics, barriers, cooperative groups and atomics against what the CUDA C++ Programming Guide says they do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .running import Array, run

N = 128  # two blocks of two warps


def _lanes(x: Array) -> Array:
    return x.reshape(-1, 32)


def _from(x: Array, source: Callable[[int], int]) -> Array:
    """Each lane's value from the lane that ``source`` names."""
    return _lanes(x)[:, [source(lane) for lane in range(32)]].reshape(-1)


def _within(lane: int, to: int, width: int) -> int:
    return to if lane // width == to // width and 0 <= to < 32 else lane


def test_shuffles() -> None:
    x = np.random.default_rng(1).integers(0, 1 << 32, N).astype(np.uint32)
    (_, out), _ = run("warps", "shuffles", 2, 64, [x, np.zeros((16, N), np.uint32)])
    lane = np.arange(N) % 32
    wide = _from(
        x.astype(np.uint64) << np.uint64(20) | lane.astype(np.uint64), lambda i: _within(i, i + 4, 32)
    )
    expected = [
        _from(x, lambda i: 5),
        _from(x, lambda i: i * 7 % 32),
        _from(x, lambda i: i // 8 * 8 + 3),
        _from(x, lambda i: _within(i, i - 3, 32)),
        _from(x, lambda i: _within(i, i - 3, 16)),
        _from(x, lambda i: _within(i, i + 5, 32)),
        _from(x, lambda i: _within(i, i + 1, 4)),
        _from(x, lambda i: i ^ 9),
        _from(x, lambda i: i ^ 1),
        _from(x, lambda i: i ^ 2),
        wide & np.uint64(0xFFFFFFFF),
        wide >> np.uint64(32),
        _from(x, lambda i: _within(i, i - 2, 32)),
        lane ^ 1,
        _from(x, lambda i: (i + (2 if i & 1 else 4)) % 32),
    ]
    for place, want in enumerate(expected):
        assert (out[place] == want).all(), f"shuffle {place}"


def _fold(x: Array, function: Any) -> Array:
    return np.repeat(function(_lanes(x)), 32)


def test_votes() -> None:
    x = np.random.default_rng(2).integers(0, 60, N).astype(np.uint32)
    x[64:96] |= np.uint32(1 << 31)
    (_, out), _ = run("warps", "votes", 2, 64, [x, np.zeros((16, N), np.uint32)])
    lane = np.arange(N) % 32
    powers = (1 << np.arange(32)).astype(np.uint64)

    def ballot(held: Array) -> Array:
        return np.repeat((_lanes(held) * powers).sum(1), 32)

    def matches(key: Array) -> Array:
        rows = _lanes(key)
        return ((rows[:, :, None] == rows[:, None, :]) * powers).sum(2).reshape(-1)

    signed = x.view(np.int32).astype(np.int64)
    upper = lane >= 16
    halves = x.reshape(-1, 16) & np.uint32(7)
    expected = [
        _fold(x < 1000, lambda r: r.all(1)),
        _fold(x == 3, lambda r: r.any(1)),
        ballot(x & 1 != 0),
        matches(x & 3),
        matches(x & 1),
        np.full(N, 0xFFFFFFFF),
        np.ones(N),
        _fold(x.astype(np.uint64), lambda r: r.sum(1)) & np.uint64(0xFFFFFFFF),
        _fold(x, lambda r: r.min(1)),
        _fold((signed - 50 + 2**31) % 2**32 - 2**31, lambda r: r.max(1)) & 0xFFFFFFFF,
        _fold(x, lambda r: np.bitwise_and.reduce(r, 1)),
        _fold(x, lambda r: np.bitwise_or.reduce(r, 1)),
        _fold(x, lambda r: np.bitwise_xor.reduce(r, 1)),
        np.full(N, 32),
        np.where(lane < 11, ballot((x & 2 != 0) & (lane < 11)), 0),
        np.where(upper, np.repeat(halves.sum(1), 16), np.repeat(halves.min(1), 16)),
    ]
    for place, want in enumerate(expected):
        assert (out[place] == want).all(), f"vote {place}"


def test_barriers() -> None:
    x = np.random.default_rng(3).integers(0, 60, N).astype(np.uint32)
    (_, out), _ = run("warps", "barriers", 2, 64, [x, np.zeros((6, N), np.uint32)])
    blocks = x.reshape(2, 64)

    def every(function: Any) -> Array:
        return np.repeat(function(blocks), 64)

    staged = blocks.copy()
    staged[:, 32:] = np.arange(32) * 3
    expected = [
        every(lambda b: (b & 1).sum(1)),
        every(lambda b: (b < 1000).all(1)),
        every(lambda b: (b == 3).any(1)),
        blocks[:, ::-1].reshape(-1),
        staged.reshape(-1),
        every(lambda b: (b < 50).any(1)),
    ]
    for place, want in enumerate(expected):
        assert (out[place] == want).all(), f"barrier {place}"


def test_cooperative_groups() -> None:
    x = np.random.default_rng(4).integers(0, 40, N).astype(np.int32)
    (_, out), _ = run("warps", "tiles", 2, 64, [x, np.zeros((14, N), np.int32)])
    warps, quads = x.reshape(-1, 32), x.reshape(-1, 4)
    lane = np.arange(N) % 32

    def group(key: Array, function: Callable[[Array], Any]) -> Array:
        """function over the lanes of the same warp with the same key"""
        found = np.zeros(N, np.int64)
        for warp in range(N // 32):
            for value in np.unique(key[warp * 32 : warp * 32 + 32]):
                mine = np.flatnonzero((key == value) & (np.arange(N) // 32 == warp))
                found[mine] = function(x[mine])
        return found

    large = x > 20
    rank = np.concatenate([np.cumsum(row) - row for row in large.reshape(-1, 32)])
    size = np.repeat(large.reshape(-1, 32).sum(1), 32)
    first = np.repeat([row[row > 20][0] if (row > 20).any() else 0 for row in warps], 32)
    down = quads[:, [1, 2, 3, 3]].reshape(-1)
    expected = [
        np.repeat(warps.sum(1), 32),
        np.repeat(quads.max(1), 4),
        down,
        lane // 4,
        np.repeat(((quads & 1) * (1 << np.arange(4))).sum(1), 4),
        np.repeat((warps == 5).any(1), 32),
        np.cumsum(warps, 1).reshape(-1),
        (np.cumsum(quads, 1) - quads).reshape(-1),
        group(x & 1, np.sum),
        group(x % 3, len),
        group(x % 3, np.bitwise_xor.reduce),
        np.where(large, size * 100 + rank, -1),
        np.where(large, first, -2),
        np.arange(N) % 64 + np.arange(N) // 64 * 1000,
    ]
    for place, want in enumerate(expected):
        assert (out[place] == want).all(), f"group {place}"


def test_large_tiles() -> None:
    x = np.random.default_rng(1).integers(0, 8, 2 * N).astype(np.int32)
    (_, out), _ = run("warps", "large_tiles", 2, N, [x, np.zeros_like(x)])
    tiles, blocks = x.reshape(-1, 64), x.reshape(-1, N)
    expected = np.repeat(tiles.sum(1), 64) + 10000 * (np.arange(2 * N) % 64)
    assert (out == expected + np.repeat(blocks[:, 40] * 1000000 + (blocks == 7).any(1), N)).all()


def test_whole_grid() -> None:
    x = np.arange(N, dtype=np.int32)
    arrays = [x, np.zeros(4, np.int32), np.zeros(N, np.int32)]
    (_, partial, total), _ = run("warps", "whole_grid", 2, 64, arrays, cooperative=True)
    assert (partial == x.reshape(4, 32).sum(1)).all()
    assert (total == x.sum()).all()


def test_block_sums() -> None:
    x = np.arange(1000, dtype=np.float32)
    (_, single, twice), _ = run(
        "warps", "sums", 3, 96, [x, np.int32(1000), np.zeros(1, np.float32), np.zeros(1)]
    )
    assert single[0] == twice[0] == x.sum()


# Atomics


def test_integer_atomics() -> None:
    x = np.random.default_rng(5).integers(-(2**31), 2**31, N).astype(np.int32)
    start = [np.zeros(9, np.int32), np.zeros(7, np.uint32), np.zeros(6, np.uint64), np.zeros(2, np.int64)]
    start[0][4], start[1][1], start[2][1], start[2][3] = -1, 0xFFFFFFFF, 2**64 - 1, 2**64 - 1
    (_, i32, u32, u64, i64), _ = run("atomics", "integer_atomics", 2, 64, [x, *start])
    wide = x.astype(np.int64)
    words = x.view(np.uint32)
    extended = wide.view(np.uint64)
    total = int(wide.sum())
    single = (total + 2**31) % 2**32 - 2**31
    bits = 0
    flipped = 0
    for v in x.tolist():
        bits |= 1 << (v & 63)
        flipped ^= 1 << (v & 63)
    assert i32.tolist() == [
        single,
        (-total + 2**31) % 2**32 - 2**31,
        min(0, x.min()),
        max(0, x.max()),
        np.bitwise_and.reduce(x),
        np.bitwise_or.reduce(x),
        np.bitwise_xor.reduce(x),
        N,
        2 * N,
    ]
    assert u32.tolist() == [total % 2**32, words.min(), words.max(), N % 7, (-N) % 7, 63, 63]
    assert u64.tolist() == [total % 2**64, extended.min(), extended.max(), 2**64 - 1 - bits, bits, flipped]
    assert i64.tolist() == [min(0, wide.min()), max(0, wide.max()) << 20]


def test_tickets() -> None:
    (counter, out, swapped), _ = run(
        "atomics", "tickets", 2, 64, [np.zeros(3, np.uint32), np.zeros(N, np.uint32), np.zeros(N, np.uint32)]
    )
    assert sorted(out.tolist()) == list(range(N))
    assert sorted([*swapped.tolist(), int(counter[1])]) == list(range(N + 1))
    assert counter[0] == N
    assert counter[2] == N % 5


def test_float_atomics() -> None:
    zeros = [np.zeros(2, np.float32), np.zeros(1), *(np.zeros(2, np.uint16) for _ in range(4))]
    (f, d, h, hh, b, bb), _ = run("atomics", "float_atomics", 2, 64, zeros)
    assert f.tolist() == [N // 4 * 6, 3.5]
    assert d[0] == N // 4 * 6
    assert h.view(np.float16).tolist() == [64, 64]
    assert hh.view(np.float16).tolist() == [128, 256]
    assert [int(v) << 16 for v in [*b, *bb]] == np.array([64, 64, 128, 256], np.float32).view(
        np.uint32
    ).tolist()


def test_compare_and_swap() -> None:
    (s, w, d), _ = run(
        "atomics",
        "compare_and_swap",
        2,
        64,
        [np.zeros(2, np.uint16), np.zeros(1, np.uint32), np.zeros(1, np.uint64)],
    )
    assert s.tolist() == [N, 0]
    assert w.view(np.float32)[0] == N
    assert d.view(np.float64)[0] == N / 2


def test_shared_histogram() -> None:
    x = np.random.default_rng(6).integers(0, 256, 1000).astype(np.uint8)
    (_, bins), _ = run("atomics", "shared_histogram", 3, 64, [x, np.int32(1000), np.zeros(65, np.uint32)])
    assert bins.tolist() == [*np.bincount(x & 63, minlength=64), 1000]


def test_atomic_refs() -> None:
    (words, f, d), _ = run(
        "atomics",
        "atomic_refs",
        2,
        64,
        [np.zeros(5, np.uint32), np.zeros(1, np.float32), np.zeros(1, np.uint64)],
    )
    assert words.tolist() == [N, 63, 0, 7, 7]
    assert f[0] == N / 2
    assert d[0] == 3 * N


def test_lock() -> None:
    (lock, value), _ = run("atomics", "locked", 2, 64, [np.zeros(1, np.int32), np.zeros(1, np.int32)])
    assert lock[0] == 0
    assert value[0] == N
