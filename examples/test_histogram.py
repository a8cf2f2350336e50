"""Counts of byte values, with atomics straight to global memory and with a private histogram per block."""

import numpy as np
import pytest


@pytest.mark.gpuperf(targets=["a100-sxm-80gb", "h100-sxm"])
@pytest.mark.parametrize("n", [1 << 19, 12_345])
@pytest.mark.parametrize("entry", ["histogram_global", "histogram_shared"])
def test_histogram(gpuperf, entry, n):
    # As in an image that is mostly dark: few values make up most of the data, their counters are contended.
    host = np.minimum(np.random.default_rng(8).geometric(0.03, n), 255).astype(np.uint8)
    data, bins = gpuperf.array(host), gpuperf.zeros(256, np.uint32)

    histogram = gpuperf.kernel("kernels/histogram.ptx", entry=entry)
    histogram[64, 256](np.int32(n), data, bins)

    np.testing.assert_array_equal(bins.numpy(), np.bincount(host, minlength=256))
