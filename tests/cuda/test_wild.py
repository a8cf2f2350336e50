"""Kernels as others write them, against NumPy, Python and its standard library."""

from __future__ import annotations

import base64
import hashlib
import math
from functools import cache
from typing import Any

import numpy as np

import gpuperf_engine as ge
from tests.support import BACKENDS

from .running import Array, module, run

FILE = "wild"


@cache
def entry(name: str) -> str:
    """The mangled name of a kernel."""
    return next(kernel for kernel in _names() if f"{len(name)}{name}" in kernel)


def _names() -> list[str]:
    return [item if isinstance(item, str) else item.name for item in module(FILE).kernels]


def wild(name: str, grid: Any, block: Any, args: list[object], **options: Any) -> list[Array]:
    return run(FILE, entry(name), grid, block, args, **options)[0]


def test_nbody() -> None:
    n = 70
    bodies = np.random.default_rng(1).uniform(-1, 1, (n, 4)).astype(np.float32)
    bodies[:, 3] = np.abs(bodies[:, 3])
    _, forces = wild(
        "nbody", 3, 32, [bodies, np.zeros_like(bodies), np.int32(n), np.float32(0.01)], shared_bytes=32 * 16
    )
    p = bodies.astype(np.float64)
    r = p[None, :, :3] - p[:, None, :3]
    weight = p[None, :, 3] * ((r**2).sum(2) + 0.01) ** -1.5
    np.testing.assert_allclose(forces[:, :3], (r * weight[:, :, None]).sum(1), rtol=2e-4, atol=1e-3)


def test_black_scholes() -> None:
    n = 100
    rng = np.random.default_rng(2)
    price, strike, years = (
        rng.uniform(low, high, n).astype(np.float32) for low, high in ((5, 30), (1, 100), (0.25, 10))
    )
    out, *_ = wild(
        "black_scholes",
        2,
        32,
        [np.zeros((n, 2), np.float32), price, strike, years, np.float32(0.02), np.float32(0.3), np.int32(n)],
    )
    for (call, put), s, x, t in zip(out, price.tolist(), strike.tolist(), years.tolist(), strict=True):
        d1 = (math.log(s / x) + (0.02 + 0.045) * t) / (0.3 * math.sqrt(t))
        below = [0.5 * math.erfc(-d / math.sqrt(2)) for d in (d1, d1 - 0.3 * math.sqrt(t))]
        exact = s * below[0] - x * math.exp(-0.02 * t) * below[1]
        assert abs(call - exact) < 1e-4
        assert abs(put - (exact + x * math.exp(-0.02 * t) - s)) < 1e-4


def test_monte_carlo() -> None:
    (hits,) = wild("monte_carlo_pi", 2, 64, [np.zeros(1, np.uint64), np.int32(20)])
    inside = 0
    for seed in range(128):
        x, y, z, w = (seed * 2654435761 + 1) % 2**32, 362436069, 521288629, 88675123
        draws = []
        for _ in range(40):
            t = (x ^ x << 11) % 2**32
            x, y, z = y, z, w
            w = w ^ w >> 19 ^ t ^ t >> 8
            draws.append(np.float32(w) * np.float32(2**-32))
        for a, b in zip(draws[::2], draws[1::2], strict=True):
            inside += float(a) ** 2 + float(b) ** 2 <= 1
    assert abs(int(hits[0]) - inside) <= 1  # a point on the circle may round either way


def test_convolution() -> None:
    image = np.random.default_rng(3).uniform(0, 1, (21, 37)).astype(np.float32)
    weights = np.random.default_rng(4).uniform(-1, 1, (5, 5)).astype(np.float32)
    _, _, out = wild(
        "conv2d", (3, 2), (16, 16), [image, weights, np.zeros_like(image), np.int32(37), np.int32(21)]
    )
    padded = np.pad(image.astype(np.float64), 2, mode="edge")
    exact = sum(weights[dy, dx] * padded[dy : dy + 21, dx : dx + 37] for dy in range(5) for dx in range(5))
    np.testing.assert_allclose(out, exact, rtol=1e-4, atol=1e-5)


def test_sobel() -> None:
    image = np.random.default_rng(5).integers(0, 256, (20, 33)).astype(np.uint8)
    _, edges = wild("sobel", (3, 3), (16, 8), [image, np.zeros_like(image), np.int32(33), np.int32(20)])
    p = image.astype(int)
    gx = p[:-2, 2:] + 2 * p[1:-1, 2:] + p[2:, 2:] - p[:-2, :-2] - 2 * p[1:-1, :-2] - p[2:, :-2]
    gy = p[2:, :-2] + 2 * p[2:, 1:-1] + p[2:, 2:] - p[:-2, :-2] - 2 * p[:-2, 1:-1] - p[:-2, 2:]
    exact = np.minimum(255, (np.sqrt((gx * gx + gy * gy).astype(np.float32)) + np.float32(0.5)).astype(int))
    assert (edges[1:-1, 1:-1] == exact).all()
    assert not edges[0].any()


def test_life() -> None:
    board = np.random.default_rng(6).integers(0, 2, (9, 13)).astype(np.uint8)
    _, after = wild("life", 4, 32, [board, np.zeros_like(board), np.int32(13), np.int32(9)])
    around = sum(
        np.roll(board.astype(int), (dy, dx), (0, 1)) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if dy or dx
    )
    assert (after == ((around == 3) | (around == 2) & (board == 1))).all()


def test_scan_with_look_back() -> None:
    n = 500
    x = np.random.default_rng(7).integers(0, 100, n).astype(np.int32)
    _, out, _, _ = wild(
        "scan_look_back",
        8,
        64,
        [x, np.zeros(n, np.int32), np.zeros(8, np.uint64), np.zeros(1, np.uint32), np.int32(n)],
    )
    assert (out == np.cumsum(x)).all()


def test_hash_table() -> None:
    items = np.stack([np.random.default_rng(8).integers(0, 90, 200), np.arange(200)], 1).astype(np.uint32)
    table = np.tile(np.array([0xFFFFFFFF, 0], np.uint32), (128, 1))
    after, _ = wild("hash_insert", 2, 32, [table, np.uint32(128), items, np.int32(200)])
    expected: dict[int, int] = {}
    for key, value in items.tolist():
        expected[key] = expected.get(key, 0) + value
    assert {key: value for key, value in after.tolist() if key != 0xFFFFFFFF} == expected


def test_lu() -> None:
    n = 12
    a = np.random.default_rng(9).uniform(-1, 1, (3, n, n)) + 4 * np.eye(n)
    (found,) = wild("lu_small", 3, 64, [a, np.int32(n)], shared_bytes=n * n * 8)
    for matrix, factors in zip(a, found, strict=True):
        np.testing.assert_allclose(
            (np.tril(factors, -1) + np.eye(n)) @ np.triu(factors), matrix, rtol=1e-12, atol=1e-12
        )


def _times(a: int, b: int) -> int:
    """Product in the field of AES."""
    result = 0
    while b:
        result ^= a * (b & 1)
        a = a << 1 ^ 0x11B * (a >> 7)
        b >>= 1
    return result


def _sbox() -> list[int]:
    found = []
    for value in range(256):
        inverse = next((x for x in range(256) if _times(value, x) == 1), 0)
        rotated = [(inverse << k | inverse >> (8 - k)) & 0xFF for k in range(5)]
        found.append(rotated[0] ^ rotated[1] ^ rotated[2] ^ rotated[3] ^ rotated[4] ^ 0x63)
    return found


def test_aes() -> None:
    """The example of FIPS 197, appendix B."""
    sbox = _sbox()
    words = [list(bytes.fromhex("2b7e151628aed2a6abf7158809cf4f3c")[at : at + 4]) for at in range(0, 16, 4)]
    constant = 1
    for k in range(4, 44):
        last = list(words[-1])
        if k % 4 == 0:
            last = [sbox[v] for v in (*last[1:], last[0])]
            last[0] ^= constant
            constant = _times(constant, 2)
        words.append([a ^ b for a, b in zip(words[k - 4], last, strict=True)])
    keys = np.array(words, np.uint8).reshape(-1)
    plain = np.tile(np.frombuffer(bytes.fromhex("3243f6a8885a308d313198a2e0370734"), np.uint8), 40)
    for backend in BACKENDS:
        device = ge.Device(backend=backend)
        kernel = module(FILE)[entry("aes128")]
        device.symbol(kernel, "sbox").copy_from(np.array(sbox, np.uint8))
        out = device.zeros(640, np.uint8)
        device.launch(kernel, 2, 32, [device.array(keys), device.array(plain), out, np.int32(40)])
        assert (
            out.numpy().reshape(40, 16)
            == np.frombuffer(bytes.fromhex("3925841d02dc09fbdc118597196a0b32"), np.uint8)
        ).all()


def test_sha256() -> None:
    texts = [b"", b"abc", b"a" * 55, *(f"message number {i}".encode() * 2 for i in range(37))]
    packed = np.zeros((40, 64), np.uint8)
    for row, text in zip(packed, texts, strict=True):
        row[: len(text)] = np.frombuffer(text, np.uint8)
    lengths = np.array([len(text) for text in texts], np.int32)
    _, _, digests = wild(
        "sha256", 2, 32, [packed, lengths, np.int32(64), np.zeros((40, 8), np.uint32), np.int32(40)]
    )
    for text, digest in zip(texts, digests, strict=True):
        assert digest.astype(">u4").tobytes() == hashlib.sha256(text).digest()


def test_base64() -> None:
    data = np.random.default_rng(10).integers(0, 256, 94).astype(np.uint8)
    _, out = wild("base64", 2, 32, [data, np.int32(94), np.zeros(128, np.uint8)])
    assert out.tobytes() == base64.b64encode(data.tobytes())


def test_merge_path() -> None:
    rng = np.random.default_rng(11)
    a, b = (np.sort(rng.integers(0, 300, size)).astype(np.int32) for size in (150, 97))
    *_, out = wild(
        "merge_path", 2, 32, [a, np.int32(150), b, np.int32(97), np.zeros(247, np.int32), np.int32(4)]
    )
    assert (out == np.sort(np.concatenate([a, b]))).all()


def test_kmeans() -> None:
    rng = np.random.default_rng(12)
    points, centres = (
        rng.integers(-8, 9, (100, 3)).astype(np.float32),
        rng.integers(-8, 9, (5, 3)).astype(np.float32),
    )
    arrays = [np.zeros(100, np.int32), np.zeros((5, 3), np.float32), np.zeros(5, np.int32)]
    _, _, labels, sums, counts = wild(
        "kmeans_assign", 4, 32, [points, centres, np.int32(100), np.int32(5), np.int32(3), *arrays]
    )
    nearest = ((points[:, None] - centres[None]) ** 2).sum(2).argmin(1)
    assert (labels == nearest).all()
    assert (counts == np.bincount(nearest, minlength=5)).all()
    assert (sums == np.stack([points[nearest == c].sum(0) for c in range(5)])).all()


def test_quicksort() -> None:
    data = np.random.default_rng(13).integers(0, 1000, (40, 50)).astype(np.int32)
    (out,) = wild("quicksort", 2, 32, [data, np.int32(50), np.int32(40)])
    assert (out == np.sort(data, 1)).all()


def test_search() -> None:
    text = b"the cat sat on the mat with the other cat, the end"
    word = b"the"
    arrays = [np.zeros(1, np.int32), np.full(20, -1, np.int32)]
    given = [
        np.frombuffer(text, np.uint8),
        np.int32(len(text)),
        np.frombuffer(word, np.uint8),
        np.int32(len(word)),
    ]
    *_, found, places = wild("search", 2, 32, [*given, *arrays])
    expected = [at for at in range(len(text)) if text.startswith(word, at)]
    assert found[0] == len(expected)
    assert sorted(places[: len(expected)].tolist()) == expected


def test_transpose() -> None:
    small = np.random.default_rng(14).integers(0, 256, (45, 70)).astype(np.uint8)
    large = np.random.default_rng(15).uniform(size=(45, 70, 2))
    for data, suffix in ((small, "transposeIh"), (large, "transposeI7double2")):
        name = next(kernel for kernel in _names() if suffix in kernel)
        (_, out), _ = run(
            FILE,
            name,
            (3, 2),
            (32, 8),
            [data, np.zeros((70, 45, *data.shape[2:]), data.dtype), np.int32(70), np.int32(45)],
        )
        assert (out == data.swapaxes(0, 1)).all()


# CUB


def test_block_radix_sort() -> None:
    rng = np.random.default_rng(16)
    keys, values = (
        rng.integers(-1000, 1000, (2, 256)).astype(np.int32),
        rng.uniform(size=(2, 256)).astype(np.float32),
    )
    (found, moved), _ = run("libraries", "block_radix_sort", 2, 64, [keys, values])
    order = np.argsort(keys, 1, kind="stable")
    assert (found == np.take_along_axis(keys, order, 1)).all()
    assert (moved == np.take_along_axis(values, order, 1)).all()


def test_block_scan_and_reduce() -> None:
    x = np.random.default_rng(17).integers(-50, 50, (2, 256)).astype(np.int32)
    arrays = [x, np.zeros_like(x), np.zeros(2, np.int32), np.zeros(2)]
    (_, scanned, total, largest), _ = run("libraries", "block_scan_and_reduce", 2, 64, arrays)
    assert (scanned == np.cumsum(x, 1) - x).all()
    assert (total == x.sum(1)).all()
    assert (largest == x.max(1) * 0.5).all()


def test_warp_sort_and_histogram() -> None:
    rng = np.random.default_rng(18)
    keys, samples = (
        rng.integers(-500, 500, (4, 128)).astype(np.int16),
        rng.integers(0, 256, 512).astype(np.uint8),
    )
    (found, _, bins), _ = run(
        "libraries", "warp_sort_and_histogram", 2, 64, [keys, samples, np.zeros(256, np.uint32)]
    )
    assert (found == -np.sort(-keys, 1)).all()
    assert (bins == np.bincount(samples, minlength=256)).all()
