"""Triton kernels, compiled ahead of time for two architectures.

A Triton entry takes two pointers more than its Python function, to scratch and to profiling memory; these
kernels use neither and get None. The block is 32 threads for each of the four warps that the kernels were
compiled for.
"""

import numpy as np
import pytest

NO_SCRATCH = (None, None)

architectures = pytest.mark.parametrize(
    "arch",
    [
        pytest.param("sm_80", marks=pytest.mark.gpuperf(targets=["a100-sxm-80gb", "rtx-4090"])),
        pytest.param("sm_90", marks=pytest.mark.gpuperf(targets=["h100-sxm"])),
    ],
)


@architectures
@pytest.mark.parametrize("n", [1 << 20, 98_432])
def test_vector_add(gpuperf, arch, n):
    rng = np.random.default_rng(16)
    host_x, host_y = rng.standard_normal(n, np.float32), rng.standard_normal(n, np.float32)
    x, y, out = gpuperf.array(host_x), gpuperf.array(host_y), gpuperf.empty(n, np.float32)

    add = gpuperf.kernel(f"triton/vector_add.{arch}.ptx", entry="add_kernel")
    add[(n + 1023) // 1024, 128](x, y, out, np.int32(n), *NO_SCRATCH)

    np.testing.assert_array_equal(out.numpy(), host_x + host_y)


@architectures
@pytest.mark.parametrize(("rows", "cols"), [(256, 1024), (7, 333)])
def test_softmax(gpuperf, arch, rows, cols):
    host = 4 * np.random.default_rng(17).standard_normal((rows, cols), np.float32)
    data, out = gpuperf.array(host), gpuperf.empty((rows, cols), np.float32)

    softmax = gpuperf.kernel(f"triton/softmax.{arch}.ptx", entry="softmax_kernel")
    softmax[rows, 128, 16](out, data, np.int32(cols), np.int32(cols), *NO_SCRATCH)

    powers = np.exp(host.astype(np.float64) - host.max(axis=1, keepdims=True))
    np.testing.assert_allclose(out.numpy(), powers / powers.sum(axis=1, keepdims=True), rtol=2e-5, atol=1e-9)


@architectures
@pytest.mark.parametrize(("rows", "cols"), [(256, 768), (7, 336)])
def test_layernorm(gpuperf, arch, rows, cols):
    rng = np.random.default_rng(18)
    host = 2 * rng.standard_normal((rows, cols), np.float32) + 3
    host_gamma, host_beta = rng.standard_normal(cols, np.float32), rng.standard_normal(cols, np.float32)
    data, out = gpuperf.array(host), gpuperf.empty((rows, cols), np.float32)
    gamma, beta = gpuperf.array(host_gamma), gpuperf.array(host_beta)

    layernorm = gpuperf.kernel(f"triton/layernorm.{arch}.ptx", entry="layernorm_kernel")
    size = (np.int32(cols), np.int32(cols), np.float32(1e-5))  # row stride, columns, epsilon
    layernorm[rows, 128, 16](data, gamma, beta, out, *size, *NO_SCRATCH)

    x = host.astype(np.float64)
    scaled = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(out.numpy(), scaled * host_gamma + host_beta, rtol=1e-4, atol=1e-5)


@architectures
@pytest.mark.parametrize(("m", "n", "k"), [(256, 192, 128), (80, 144, 48)])
def test_matmul(gpuperf, arch, m, n, k):
    """On tensor cores: asynchronous copies, and ldmatrix and mma or products of warp groups. The factors are small integers, so
    that every sum is exact."""
    rng = np.random.default_rng(19)
    host_a, host_b = (rng.integers(-8, 9, shape).astype(np.float16) for shape in ((m, k), (k, n)))
    a, b, c = gpuperf.array(host_a), gpuperf.array(host_b), gpuperf.empty((m, n), np.float32)

    matmul = gpuperf.kernel(f"triton/matmul.{arch}.ptx", entry="matmul_kernel")
    tiles = -(-m // 64) * -(-n // 64)
    shared = {"sm_80": 16384, "sm_90": 24576}
    matmul[tiles, 128, shared[arch]](a, b, c, np.int32(m), np.int32(n), np.int32(k), *NO_SCRATCH)

    np.testing.assert_array_equal(c.numpy(), host_a.astype(np.float32) @ host_b.astype(np.float32))


@architectures
@pytest.mark.parametrize(("heads", "length"), [(2, 256), (3, 144)])
def test_attention(gpuperf, arch, heads, length):
    """Flash attention, causal: scores in tiles on tensor cores, maxima and sums of powers corrected as keys come in."""
    rng = np.random.default_rng(20)
    host = [rng.standard_normal((heads, length, 64)).astype(np.float16) for _ in range(3)]
    q, k, v = (gpuperf.array(item) for item in host)
    out = gpuperf.empty((heads, length, 64), np.float16)

    attention = gpuperf.kernel(f"triton/attention.{arch}.ptx", entry="attention_kernel")
    shared = {"sm_80": 24576, "sm_90": 32768}
    attention[(-(-length // 64), heads), 128, shared[arch]](
        q, k, v, out, np.int32(length), np.float32(0.125), *NO_SCRATCH
    )

    wide_q, wide_k, wide_v = (item.astype(np.float64) for item in host)
    scores = wide_q @ wide_k.transpose(0, 2, 1) / 8
    scores[:, np.triu(np.ones((length, length), dtype=bool), 1)] = -np.inf
    powers = np.exp(scores - scores.max(axis=2, keepdims=True))
    expected = powers / powers.sum(axis=2, keepdims=True) @ wide_v
    # weights are rounded to half precision before they meet v, and so is the result
    half = 2.0**-11 + 2.0**-20
    np.testing.assert_allclose(out.numpy(), expected, rtol=half, atol=half * np.abs(wide_v).max())


@architectures
@pytest.mark.parametrize("threshold", [1.0, -1.0])
def test_choose(gpuperf, arch, threshold):
    """A branch that all programs take alike."""
    n = 100_000
    host = np.random.default_rng(21).standard_normal(n, np.float32)
    x, out = gpuperf.array(host), gpuperf.empty(n, np.float32)

    choose = gpuperf.kernel(f"triton/choose.{arch}.ptx", entry="choose_kernel")
    choose[(n + 1023) // 1024, 128](x, out, np.int32(n), np.float32(threshold), *NO_SCRATCH)

    moved = np.append(host[1:], np.float32(0)) + 1
    np.testing.assert_array_equal(out.numpy(), 2 * host if threshold > 0 else moved)


@pytest.mark.gpuperf(targets=["h100-sxm"])
def test_tiles(gpuperf):
    """Tensor descriptors that the host makes: each is five parameters, the map, shape and strides."""
    rows, columns = 256, 64
    host = np.random.default_rng(22).standard_normal((rows, columns)).astype(np.float16)
    x, out = gpuperf.array(host), gpuperf.empty((rows, columns), np.float16)
    described = []
    for array in (x, out):
        box = gpuperf.tensor_map(array, (16, 64), swizzle="128B")
        described += [box, np.int32(rows), np.int32(columns), np.int64(columns), np.int64(1)]

    tiles = gpuperf.kernel("triton/tiles.sm_90.ptx", entry="tiles_kernel")
    tiles[rows // 16, 128, 2056](*described, *NO_SCRATCH)

    np.testing.assert_array_equal(out.numpy(), host + host)
