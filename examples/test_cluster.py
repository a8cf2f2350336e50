"""Clusters of blocks that work on each other's shared memory: a histogram whose bins they share out, and one sum per cluster."""

import numpy as np
import pytest


@pytest.mark.gpuperf(targets=["h100-sxm"])
@pytest.mark.parametrize("n", [1 << 18, 12_345])
def test_cluster_histogram(gpuperf, n):
    """1,024 bins, a quarter of them in each of four blocks; the kernel itself names the shape of its clusters."""
    host = np.minimum(np.random.default_rng(8).geometric(0.008, n), 1023).astype(np.uint16)
    data, bins = gpuperf.array(host), gpuperf.zeros(1024, np.uint32)

    histogram = gpuperf.kernel("kernels/cluster.ptx", entry="cluster_histogram")
    profile = histogram[64, 256](np.int32(n), data, bins)

    assert profile.cluster == (4, 1, 1)
    np.testing.assert_array_equal(bins.numpy(), np.bincount(host, minlength=1024))


@pytest.mark.gpuperf(targets=["h100-sxm"])
@pytest.mark.parametrize("n", [1 << 18, 12_345])
def test_cluster_sum(gpuperf, n):
    """Eight blocks add up to one number without a word of global memory between them."""
    host = np.random.default_rng(4).random(n, np.float32)
    values, sums = gpuperf.array(host), gpuperf.empty(8, np.float32)

    kernel = gpuperf.kernel("kernels/cluster.ptx", entry="cluster_sum")
    kernel[64, 256](np.int32(n), values, sums, cluster=8)

    np.testing.assert_allclose(sums.numpy().sum(dtype=np.float64), host.sum(dtype=np.float64), rtol=1e-6)
