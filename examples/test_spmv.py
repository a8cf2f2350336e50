"""Sparse matrix times vector in compressed sparse rows, one thread per row and one warp per row."""

import numpy as np
import pytest


def random_rows(rows, cols, mean):
    """Offsets, columns and values; row lengths are geometrically distributed: skewed, as in a real graph."""
    rng = np.random.default_rng(11)
    offsets = np.concatenate([[0], np.cumsum(rng.geometric(1 / (mean + 1), rows) - 1)]).astype(np.int32)
    columns = rng.integers(0, cols, offsets[-1], np.int32)
    return (
        offsets,
        columns,
        rng.standard_normal(offsets[-1], np.float32),
        rng.standard_normal(cols, np.float32),
    )


@pytest.mark.gpuperf(targets=["a100-sxm-80gb", "h100-sxm"])
@pytest.mark.parametrize(("entry", "threads_per_row"), [("spmv_scalar", 1), ("spmv_vector", 32)])
@pytest.mark.parametrize(("rows", "mean"), [(8192, 8), (1001, 60)], ids=["short-rows", "long-rows"])
def test_spmv(gpuperf, entry, threads_per_row, rows, mean):
    host = random_rows(rows, 4096, mean)
    offsets, columns, values, x = (gpuperf.array(part) for part in host)
    y = gpuperf.empty(rows, np.float32)

    spmv = gpuperf.kernel("kernels/spmv.ptx", entry=entry)
    spmv[(rows * threads_per_row + 127) // 128, 128](np.int32(rows), offsets, columns, values, x, y)

    row_of = np.repeat(np.arange(rows), np.diff(host[0]))
    expected = np.bincount(row_of, weights=host[2].astype(np.float64) * host[3][host[1]], minlength=rows)
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-4, atol=1e-4)
