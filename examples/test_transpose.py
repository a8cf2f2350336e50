"""Transpose through shared memory, with 32-way bank conflicts and, one word of padding per row, without."""

import numpy as np
import pytest


@pytest.mark.gpuperf(targets=["a100-sxm-80gb", "h100-sxm"])
@pytest.mark.parametrize(("rows", "cols"), [(1024, 1024), (333, 150)])
@pytest.mark.parametrize("entry", ["transpose_conflicts", "transpose_padded"])
def test_transpose(gpuperf, entry, rows, cols):
    host = np.random.default_rng(7).standard_normal((rows, cols), np.float32)
    matrix, out = gpuperf.array(host), gpuperf.empty((cols, rows), np.float32)

    transpose = gpuperf.kernel("kernels/transpose.ptx", entry=entry)
    transpose[((cols + 31) // 32, (rows + 31) // 32), (32, 8)](np.int32(rows), np.int32(cols), matrix, out)

    np.testing.assert_array_equal(out.numpy(), host.T)
