"""Counts and sectors of kernels at full size equal formulas worked out by hand from their PTX."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.examples import closed_forms
from tests.examples.closed_forms import Counts

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def kernel(stem: str, entry: str, folder: str = "kernels") -> ge.Kernel:
    path = EXAMPLES / folder / f"{stem}.ptx"
    return ge.parse(path.read_text(encoding="utf-8"), path=path.name)[entry]


def agree(profile: ge.Profile, expected: Counts) -> None:
    assert profile.thread_instructions == expected.thread_instructions
    assert profile.warp_instructions == expected.warp_instructions
    assert profile.branches.executed == expected.branches_executed
    assert profile.branches.divergent == expected.branches_divergent
    assert profile.memory.global_load_sectors == expected.load_sectors
    assert profile.memory.global_store_sectors == expected.store_sectors
    assert {opcode: profile.opcodes[opcode] for opcode in expected.opcodes} == expected.opcodes


@pytest.mark.parametrize("n", [1 << 20, 1_000_003, 31])
def test_saxpy(n: int) -> None:
    device = ge.Device()
    x, y = device.array(np.arange(n, dtype=np.float32)), device.array(np.ones(n, np.float32))
    profile = device.launch(kernel("saxpy", "saxpy"), -(-n // 256), 256, [np.int32(n), np.float32(2), x, y])
    agree(profile, closed_forms.saxpy(n))
    np.testing.assert_array_equal(y.numpy(), 2 * np.arange(n, dtype=np.float32) + 1)


@pytest.mark.parametrize("entry", ["transpose_conflicts", "transpose_padded"])
def test_transpose(entry: str) -> None:
    rows, cols = 512, 1024
    device = ge.Device()
    source = np.arange(rows * cols, dtype=np.float32).reshape(rows, cols)
    given, out = device.array(source), device.zeros((cols, rows), np.float32)
    profile = device.launch(
        kernel("transpose", entry),
        (cols // 32, rows // 32),
        (32, 8),
        [np.int32(rows), np.int32(cols), given, out],
    )
    agree(profile, closed_forms.transpose(entry, rows, cols))
    # a column of a tile of 32 words lies in one bank: 32 wavefronts where one is needed; 33 words spread it out
    reads = rows * cols // 32
    assert profile.memory.shared_conflicts == (31 * reads if entry == "transpose_conflicts" else 0)
    np.testing.assert_array_equal(out.numpy(), source.T)


def test_sgemm() -> None:
    m, n, k = 256, 256, 128
    device = ge.Device()
    rng = np.random.default_rng(0)
    a = rng.integers(-8, 8, (m, k)).astype(np.float32)
    b = rng.integers(-8, 8, (k, n)).astype(np.float32)
    c = device.empty((m, n), np.float32)
    profile = device.launch(
        kernel("sgemm", "sgemm_tiled"),
        (n // 16, m // 16),
        (16, 16),
        [np.int32(m), np.int32(n), np.int32(k), device.array(a), device.array(b), c],
    )
    agree(profile, closed_forms.sgemm_tiled(m, n, k))
    assert profile.flops["sp"] == 2 * m * n * k
    np.testing.assert_array_equal(c.numpy(), a @ b)


def test_relu6() -> None:
    values = np.random.default_rng(1).integers(-9, 10, 1 << 18).astype(np.float32)
    device = ge.Device()
    data, quads = device.array(values), values.size // 4
    relu = kernel("elementwise", "relu6_activation", "cnn")
    profile = device.launch(relu, quads // 256, 256, [np.int32(quads), data])
    agree(profile, closed_forms.relu6(values.size, 256))
    np.testing.assert_array_equal(data.numpy(), values.clip(0, 6))


def test_convolution() -> None:
    """A pointwise convolution of one image is a matrix product."""
    channels, side, filters = 48, 32, 128
    rng = np.random.default_rng(2)
    image = rng.integers(-8, 8, (channels, side * side)).astype(np.float32)
    weights = rng.integers(-8, 8, (filters, channels)).astype(np.float32)
    shape = np.array([1, channels, side, side, filters, side, side, 1, 0], np.int32).tobytes()
    device = ge.Device()
    out = device.empty((filters, side * side), np.float32)
    profile = device.launch(
        kernel("convolution", "convolution_1x1", "cnn"),
        (side * side // 64, filters // 64),
        256,
        [shape, device.array(image), device.array(weights), out],
    )
    agree(profile, closed_forms.convolution_1x1(channels, side * side, filters))
    np.testing.assert_array_equal(out.numpy(), weights @ image)
