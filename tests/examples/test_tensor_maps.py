"""The warp-specialised product whose tiles the tensor memory accelerator brings: both backends, every demand, against NumPy and
the one-thread-at-a-time interpreter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.engine.test_oracle_counts import compare_counts, compare_groups
from tests.oracle import scalar

PTX = Path(__file__).resolve().parents[2] / "examples" / "kernels" / "warpgroup_gemm_tma.ptx"


def factors(m: int, n: int, k: int) -> list[np.ndarray]:
    """A and the transpose of B: small integers, so that every sum is exact."""
    rng = np.random.default_rng(31)
    return [rng.integers(-8, 9, shape).astype(np.float16) for shape in ((m, k), (n, k))]


def product(host: list[np.ndarray]) -> np.ndarray:
    return host[0].astype(np.float32) @ host[1].astype(np.float32).T


def launch(backend: str, m: int, n: int, k: int, demand: str) -> tuple[ge.Profile, bool]:
    """The profile, and whether the product is right."""
    host = factors(m, n, k)
    device = ge.Device(backend=backend)
    a, b = (device.array(item) for item in host)
    c = device.zeros((m, n), np.float32)
    maps = [ge.TensorMap(item, (128, 64), swizzle="128B") for item in (a, b)]
    kernel = ge.parse(PTX.read_text(encoding="utf-8"), path=PTX.name)["hgemm_tma"]
    args = [np.int32(n), np.int32(k), *maps, c]
    profile = device.launch(kernel, (n // 128, m // 128), 384, args, shared_bytes=98304, demand=demand)
    return profile, demand == "values" and np.array_equal(c.numpy(), product(host))


@pytest.mark.parametrize(("m", "n", "k"), [(128, 128, 64), (128, 256, 320)])
def test_backends_and_demands_agree(m: int, n: int, k: int) -> None:
    profiles = [launch(backend, m, n, k, "values") for backend in ("llvm", "reference")]
    assert all(right for _, right in profiles)
    assert profiles[0][0].to_dict() == profiles[1][0].to_dict()
    for demand in ("addresses", "control"):
        other, _ = launch("llvm", m, n, k, demand)
        assert other.thread_instructions == profiles[0][0].thread_instructions
        assert other.opcodes == profiles[0][0].opcodes
        assert other.branches == profiles[0][0].branches
    # each block of 128 x 128 results: two warpgroups, 8 warps, 4 products of depth 16 for each 64 of k
    product = "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16"
    assert profiles[0][0].warp_opcodes[product] == (m // 128) * (n // 128) * 8 * 4 * (k // 64)


@pytest.mark.parametrize(("m", "n", "k"), [(128, 128, 64), (128, 128, 256)])
def test_interpreter_agrees(m: int, n: int, k: int) -> None:
    """With one step of the ring, and with more than it has stages."""
    host = factors(m, n, k)
    c = scalar.Buffer(np.full((m, n), np.nan, np.float32))
    maps = [scalar.TensorMap(scalar.Buffer(item), (128, 64), "128B") for item in host]
    args = [np.int32(n), np.int32(k), *maps, c]
    result = scalar.run(
        PTX.read_text(encoding="utf-8"), "hgemm_tma", (n // 128, m // 128), 384, args, shared_bytes=98304
    )
    np.testing.assert_array_equal(c.numpy(), product(host))
    for backend in ("llvm", "reference"):
        profile, right = launch(backend, m, n, k, "values")
        assert right
        compare_counts(profile, result)
        compare_groups(profile, result)


TILES = PTX.parents[1] / "triton" / "tiles.sm_90.ptx"


def test_descriptors_of_triton() -> None:
    """Each is a map whose address is held in 32 bits, with shape and strides behind it."""
    host, text = np.arange(64 * 64, dtype=np.float16).reshape(64, 64) / 8, TILES.read_text(encoding="utf-8")
    shape = [np.int32(64), np.int32(64), np.int64(64), np.int64(1)]
    buffers = [scalar.Buffer(host), scalar.Buffer(np.zeros_like(host))]
    maps = [scalar.TensorMap(item, (16, 64), "128B") for item in buffers]
    args = [item for box in maps for item in (box, *shape)]
    result = scalar.run(text, "tiles_kernel", 4, 128, [*args, None, None], shared_bytes=2056)
    np.testing.assert_array_equal(buffers[1].numpy(), host + host)
    for backend in ("llvm", "reference"):
        device = ge.Device(backend=backend)
        x, out = device.array(host), device.zeros(host.shape, host.dtype)
        args = [
            item for array in (x, out) for item in (ge.TensorMap(array, (16, 64), swizzle="128B"), *shape)
        ]
        kernel = ge.parse(text, path=TILES.name)["tiles_kernel"]
        profile = device.launch(kernel, 4, 128, [*args, None, None], shared_bytes=2056)
        np.testing.assert_array_equal(out.numpy(), host + host)
        compare_counts(profile, result)
