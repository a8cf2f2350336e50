"""Inclusive prefix sum of a vector of any length, out of block scans of 256 elements."""

import numpy as np
import pytest

BLOCK = 256


@pytest.mark.gpuperf(targets=["a100-sxm-80gb", "h100-sxm"])
@pytest.mark.parametrize("n", [200, 256, 5000, 300_000])
def test_scan(gpuperf, n):
    host = np.random.default_rng(5).integers(-100, 100, n, np.int32)
    data = gpuperf.array(host)
    scan_block = gpuperf.kernel("kernels/scan.ptx", entry="scan_block")
    add_totals = gpuperf.kernel("kernels/scan.ptx", entry="scan_add_totals")

    def scan_in_place(values, count):
        blocks = (count + BLOCK - 1) // BLOCK
        if blocks == 1:
            scan_block[1, BLOCK](np.int32(count), values, values, None)
            return
        totals = gpuperf.empty(blocks, np.int32)
        scan_block[blocks, BLOCK](np.int32(count), values, values, totals)
        scan_in_place(totals, blocks)
        add_totals[blocks, BLOCK](np.int32(count), values, totals)

    scan_in_place(data, n)

    np.testing.assert_array_equal(data.numpy(), np.cumsum(host, dtype=np.int32))
