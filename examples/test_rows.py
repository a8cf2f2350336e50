"""Softmax and layer normalisation over the rows of a matrix, one block per row."""

import numpy as np
import pytest


@pytest.mark.gpuperf(targets=["a100-sxm-80gb", "h100-sxm"])
@pytest.mark.parametrize(("rows", "cols"), [(256, 1024), (7, 333)])
def test_softmax(gpuperf, rows, cols):
    """The row waits in dynamic shared memory between the passes: third value of the launch configuration."""
    host = 4 * np.random.default_rng(12).standard_normal((rows, cols), np.float32)
    data, out = gpuperf.array(host), gpuperf.empty((rows, cols), np.float32)

    softmax = gpuperf.kernel("kernels/softmax.ptx", entry="softmax")
    softmax[rows, 128, 4 * cols](np.int32(cols), data, out)

    powers = np.exp(host.astype(np.float64) - host.max(axis=1, keepdims=True))
    np.testing.assert_allclose(out.numpy(), powers / powers.sum(axis=1, keepdims=True), rtol=2e-5, atol=1e-9)


@pytest.mark.gpuperf(targets=["a100-sxm-80gb", "h100-sxm"])
@pytest.mark.parametrize(("rows", "cols"), [(256, 768), (7, 333)])
def test_layernorm(gpuperf, rows, cols):
    rng = np.random.default_rng(13)
    host = 2 * rng.standard_normal((rows, cols), np.float32) + 3
    host_gamma, host_beta = rng.standard_normal(cols, np.float32), rng.standard_normal(cols, np.float32)
    data, out = gpuperf.array(host), gpuperf.empty((rows, cols), np.float32)

    layernorm = gpuperf.kernel("kernels/layernorm.ptx", entry="layernorm")
    gamma, beta = gpuperf.array(host_gamma), gpuperf.array(host_beta)
    layernorm[rows, 128](np.int32(cols), np.float32(1e-5), data, gamma, beta, out)

    x = host.astype(np.float64)
    scaled = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(out.numpy(), scaled * host_gamma + host_beta, rtol=1e-4, atol=1e-5)
