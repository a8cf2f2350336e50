"""y = a * x + y in single and in half precision."""

import numpy as np
import pytest


@pytest.mark.gpuperf(targets=["a100-sxm-80gb", "h100-sxm"])
@pytest.mark.parametrize("n", [1 << 20, 100_001])
def test_saxpy(gpuperf, n):
    rng = np.random.default_rng(1)
    host_x, host_y = rng.standard_normal(n, np.float32), rng.standard_normal(n, np.float32)
    x, y = gpuperf.array(host_x), gpuperf.array(host_y)

    saxpy = gpuperf.kernel("kernels/saxpy.ptx", entry="saxpy")
    saxpy[(n + 255) // 256, 256](np.int32(n), np.float32(2.5), x, y)

    np.testing.assert_allclose(y.numpy(), 2.5 * host_x + host_y, rtol=1e-5, atol=1e-6)


@pytest.mark.gpuperf(targets=["a100-sxm-80gb", "h100-sxm"])
def test_grid_stride(gpuperf):
    """A fixed grid, here two blocks for each of 108 multiprocessors, strides over any length."""
    n = 1_000_003
    rng = np.random.default_rng(2)
    host_x, host_y = rng.standard_normal(n, np.float32), rng.standard_normal(n, np.float32)
    x, y = gpuperf.array(host_x), gpuperf.array(host_y)

    saxpy = gpuperf.kernel("kernels/saxpy.ptx", entry="saxpy_grid_stride")
    saxpy[216, 256](np.int32(n), np.float32(-0.75), x, y)

    np.testing.assert_allclose(y.numpy(), -0.75 * host_x + host_y, rtol=1e-5, atol=1e-6)


@pytest.mark.gpuperf(targets=["a100-sxm-80gb", "rtx-4090"])
@pytest.mark.parametrize("n", [1 << 20, 100_001])
def test_haxpy(gpuperf, n):
    rng = np.random.default_rng(3)
    host_x = rng.standard_normal(n, np.float32).astype(np.float16)
    host_y = rng.standard_normal(n, np.float32).astype(np.float16)
    x, y = gpuperf.array(host_x), gpuperf.array(host_y)

    haxpy = gpuperf.kernel("kernels/haxpy.ptx", entry="haxpy")
    haxpy[(n + 511) // 512, 256](np.int32(n), np.float32(1.5), x, y)  # two elements per thread

    expected = 1.5 * host_x.astype(np.float32) + host_y
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-3, atol=1e-7)
