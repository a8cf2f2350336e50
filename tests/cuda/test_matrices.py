"""Matrix products as nvcc compiles nvcuda::wmma, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge

from .running import module, run

FILE = "matrices"


@pytest.mark.parametrize(("m", "n", "k"), [(32, 32, 32), (48, 80, 64)])
def test_product_with_an_epilogue(m: int, n: int, k: int) -> None:
    rng = np.random.default_rng(m)
    a, b = (rng.integers(-4, 5, shape).astype(np.float16) for shape in ((m, k), (n, k)))
    c = rng.integers(-9, 9, (m, n)).astype(np.float32)
    grid = (-(-n // 32), -(-m // 32))
    sizes = (np.int32(m), np.int32(n), np.int32(k), np.float32(0.5), np.float32(2))
    (*_, found), profile = run(FILE, "gemm_f16", grid, (64, 2), [*sizes, a, b, c])
    assert (found == 0.5 * (a.astype(np.float32) @ b.T.astype(np.float32)) + 2 * c).all()
    tiles = -(-m // 16) * -(-n // 16)
    products = sum(count for opcode, count in profile.warp_opcodes.items() if opcode.startswith("wmma.mma"))
    assert products == tiles * k // 16


def test_tiles_in_shared_memory() -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-2, 3, shape).astype(np.float16) for shape in ((32, 16), (16, 16)))
    (*_, found), _ = run(FILE, "tiles_f16", 1, 64, [a, b, np.zeros((32, 16), np.float16)])
    assert (found == a.astype(np.float32) @ b.astype(np.float32) + 1).all()


def test_bytes_into_columns() -> None:
    rng = np.random.default_rng(4)
    a, b = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((32, 16), (8, 16)))
    (*_, found), _ = run(FILE, "tall_s8", 1, 32, [a, b, np.zeros((8, 32), np.int32)])
    expected = a.astype(np.int32) @ b.T.astype(np.int32) + 7
    assert (found == expected.T).all()


def test_single_precision_through_tf32() -> None:
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal((16, 8), np.float32) for _ in range(2))
    (*_, found), _ = run(FILE, "single_tf32", 1, 32, [a, b, np.zeros((16, 16), np.float32)])
    # ten bits of fraction each: products are off by at most 2 · 2⁻¹¹ of their size
    bound = 2.0**-10 * np.abs(a).astype(np.float64) @ np.abs(b.T).astype(np.float64)
    assert (np.abs(found - a.astype(np.float64) @ b.T.astype(np.float64)) <= bound).all()
    assert (found != a @ b.T).any()


@pytest.mark.parametrize(("entry", "grid", "block"), [("gemm_f16", (3, 2), (64, 2)), ("tiles_f16", 1, 64)])
def test_slices_count_the_same(backend: str, entry: str, grid: object, block: object) -> None:
    m, n, k = 48, 80, 64
    sizes = (np.int32(m), np.int32(n), np.int32(k), np.float32(0.5), np.float32(2))
    shapes = ((m, k), (n, k), (m, n)) if entry == "gemm_f16" else ((32, 16), (16, 16), (32, 16))
    arrays = [np.zeros(shape, np.float16) for shape in shapes]
    if entry == "gemm_f16":
        arrays[2] = arrays[2].astype(np.float32)
    found = []
    for demand in ("values", "addresses", "control"):
        device = ge.Device(backend=backend)
        args = [*(sizes if entry == "gemm_f16" else ()), *map(device.array, arrays)]
        found.append(device.launch(module(FILE)[entry], grid, block, args, demand=demand))
    whole, addresses, control = found
    assert whole.opcodes == addresses.opcodes == control.opcodes
    assert whole.warp_opcodes == addresses.warp_opcodes == control.warp_opcodes
    assert whole.memory == addresses.memory
