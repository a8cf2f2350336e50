"""Results and counts of compiled kernels against the scalar interpreter, thread and warp level, branches and divergence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.oracle import scalar

from .running import Array, module, run, text


def _named(file: str, part: str) -> str:
    names = [item if isinstance(item, str) else item.name for item in module(file).kernels]
    return next(name for name in names if part in name)


def _rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def _ints(low: int, high: int, *shape: int, seed: int = 0) -> Array:
    return _rng(seed).integers(low, high, shape).astype(np.int32)


def _zeros(*shape: int, dtype: Any = np.int32) -> Array:
    return np.zeros(shape, dtype)


#: file, part of the kernel's name, grid, block, arguments, shared bytes
CASES: list[tuple[str, str, Any, Any, list[Any], int]] = [
    ("language", "control", 2, 32, [_ints(0, 31, 64), np.int32(60), _zeros(64)], 0),
    (
        "language",
        "dense_switch",
        1,
        32,
        [_rng(4).permutation(24).astype(np.int32), _ints(-99, 99, 32), np.int32(4), _zeros(32)],
        0,
    ),
    ("language", "recursion", 1, 16, [_zeros(16, 3)], 0),
    (
        "language",
        "virtual_functions",
        1,
        32,
        [np.linspace(1, 5, 32).astype(np.float32), _zeros(32, dtype=np.float32), _zeros(32)],
        0,
    ),
    ("language", "function_pointers", 1, 32, [_ints(0, 40, 32), _zeros(32, 2)], 0),
    ("language", "local_arrays", 1, 32, [_ints(0, 99, 32, 8), _zeros(32, 8), _zeros(32)], 0),
    (
        "language",
        "cache_hints",
        1,
        32,
        [
            _ints(0, 99, 32, 4),
            _ints(0, 9, 32),
            _zeros(32, 4),
            _zeros(32, 2, dtype=np.float64),
            _zeros(32, 4, dtype=np.uint8),
            _zeros(32, 2, dtype=np.int16),
        ],
        0,
    ),
    (
        "integers",
        "wide_integers",
        1,
        8,
        [
            _rng(1).integers(0, 1 << 63, (8, 2)).astype(np.uint64),
            _rng(2).integers(0, 1 << 62, (8, 2)).astype(np.uint64),
            _zeros(14, 8, 2, dtype=np.uint64),
        ],
        0,
    ),
    ("warps", "shuffles", 1, 32, [_ints(0, 99, 32), _zeros(16, 32)], 0),
    ("warps", "votes", 1, 32, [_ints(0, 60, 32), _zeros(16, 32)], 0),
    (
        "wild",
        "4life",
        2,
        32,
        [_ints(0, 2, 54).astype(np.uint8), _zeros(54, dtype=np.uint8), np.int32(9), np.int32(6)],
        0,
    ),
    (
        "wild",
        "6base64",
        1,
        32,
        [_ints(0, 256, 50).astype(np.uint8), np.int32(50), _zeros(68, dtype=np.uint8)],
        0,
    ),
    (
        "wild",
        "10merge_path",
        1,
        32,
        [
            np.sort(_ints(0, 99, 40)),
            np.int32(40),
            np.sort(_ints(0, 99, 30, seed=1)),
            np.int32(30),
            _zeros(70),
            np.int32(3),
        ],
        0,
    ),
    ("wild", "9quicksort", 1, 32, [_ints(0, 99, 20, 12), np.int32(12), np.int32(20)], 0),
    ("wild", "8lu_small", 1, 32, [_rng(3).uniform(1, 2, (6, 6)) + 5 * np.eye(6), np.int32(6)], 288),
    (
        "wild",
        "5nbody",
        1,
        32,
        [
            _rng(5).uniform(0, 1, (20, 4)).astype(np.float32),
            _zeros(20, 4, dtype=np.float32),
            np.int32(20),
            np.float32(0.5),
        ],
        512,
    ),
    ("async_copy", "partial", 1, 32, [_ints(0, 99, 32, 4), _zeros(32, 4), _zeros(32, 4)], 0),
]
#: kernels with approximate instructions, whose last bits are each interpreter's own
APPROXIMATE = ("5nbody",)


@pytest.mark.parametrize(
    ("file", "part", "grid", "block", "args", "shared"), CASES, ids=[case[1] for case in CASES]
)
def test_counts(file: str, part: str, grid: Any, block: Any, args: list[Any], shared: int) -> None:
    name = _named(file, part)
    given = [scalar.Buffer(arg.copy()) if isinstance(arg, np.ndarray) else arg for arg in args]
    expected = scalar.run(text(file), name, grid, block, given, shared)
    arrays, profile = run(file, name, grid, block, args, shared_bytes=shared)
    for want, found in zip(expected.memory, arrays, strict=True):
        if part in APPROXIMATE:
            np.testing.assert_allclose(found, want, rtol=1e-5)
        else:
            assert (want.view(np.uint8) == found.view(np.uint8)).all()
    assert profile.thread_instructions == expected.thread_instructions
    assert profile.warp_instructions == expected.warp_instructions
    assert profile.opcodes == expected.opcodes
    assert profile.warp_opcodes == expected.warp_opcodes
    assert profile.branches.executed == expected.branches_executed
    assert profile.branches.divergent == expected.branches_divergent
