"""One matrix product in four stages of optimisation; the baselines side by side show what each stage buys."""

import numpy as np
import pytest


def ceil_div(a, b):
    return (a + b - 1) // b


STAGES = {
    "sgemm_naive": lambda m, n: ((ceil_div(m, 16), ceil_div(n, 16)), (16, 16)),  # x runs over rows
    "sgemm_coalesced": lambda m, n: ((ceil_div(n, 16), ceil_div(m, 16)), (16, 16)),  # x runs over columns
    "sgemm_tiled": lambda m, n: ((ceil_div(n, 16), ceil_div(m, 16)), (16, 16)),
    "sgemm_register": lambda m, n: ((ceil_div(n, 64), ceil_div(m, 64)), 256),  # 64 x 64 results per block
}


@pytest.mark.gpuperf(targets=["a100-sxm-80gb", "h100-sxm", "rtx-4090"])
@pytest.mark.parametrize(("m", "n", "k"), [(256, 256, 256), (100, 65, 33)], ids=["256", "odd"])
@pytest.mark.parametrize("entry", STAGES)
def test_sgemm(gpuperf, entry, m, n, k):
    rng = np.random.default_rng(6)
    host_a, host_b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
    a, b, c = gpuperf.array(host_a), gpuperf.array(host_b), gpuperf.empty((m, n), np.float32)

    sgemm = gpuperf.kernel("kernels/sgemm.ptx", entry=entry)
    grid, block = STAGES[entry](m, n)
    sgemm[grid, block](np.int32(m), np.int32(n), np.int32(k), a, b, c)

    np.testing.assert_allclose(c.numpy(), host_a.astype(np.float64) @ host_b, rtol=1e-4, atol=1e-4)
