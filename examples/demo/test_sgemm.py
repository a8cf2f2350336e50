"""A tiled matrix product C = A * diag(d) * B: right, and as cheap as its baseline says."""

import numpy as np
import pytest


@pytest.mark.gpuperf(targets=["a100-sxm-80gb", "h100-sxm"])
def test_sgemm(gpuperf):
    m = n = k = 128
    rng = np.random.default_rng(0)
    host_a, host_b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
    host_d = rng.standard_normal(k, np.float32)
    a, d, b = gpuperf.array(host_a), gpuperf.array(host_d), gpuperf.array(host_b)
    c = gpuperf.empty((m, n), np.float32)

    sgemm = gpuperf.kernel("sgemm_tiled.ptx", entry="sgemm_tiled")
    sgemm[(n // 16, m // 16), (16, 16)](np.int32(m), np.int32(n), np.int32(k), a, d, b, c)

    np.testing.assert_allclose(c.numpy(), (host_a.astype(np.float64) * host_d) @ host_b, rtol=1e-4, atol=1e-4)
