"""The sum of a vector in two launches: partial sums, one per block, then their sum."""

import numpy as np
import pytest


@pytest.mark.gpuperf(targets=["a100-sxm-80gb", "h100-sxm"])
@pytest.mark.parametrize("n", [1 << 20, 77_777])
def test_reduce_shared(gpuperf, n):
    """One element per thread, a tree in shared memory, until one block is left."""
    host = np.random.default_rng(4).random(n, np.float32)
    reduce = gpuperf.kernel("kernels/reduce.ptx", entry="reduce_shared")

    values, count = gpuperf.array(host), n
    while count > 1:
        blocks = (count + 255) // 256
        partial = gpuperf.empty(blocks, np.float32)
        reduce[blocks, 256](np.int32(count), values, partial)
        values, count = partial, blocks

    np.testing.assert_allclose(values.numpy(), [host.sum(dtype=np.float64)], rtol=1e-6)


@pytest.mark.gpuperf(targets=["a100-sxm-80gb", "h100-sxm"])
@pytest.mark.parametrize("n", [1 << 20, 77_777])
def test_reduce_shuffle(gpuperf, n):
    """A fixed grid sums in registers and exchanges by shuffles: far fewer instructions and barriers."""
    host = np.random.default_rng(4).random(n, np.float32)
    values, partial, total = gpuperf.array(host), gpuperf.empty(216, np.float32), gpuperf.empty(1, np.float32)

    reduce = gpuperf.kernel("kernels/reduce.ptx", entry="reduce_shuffle")
    reduce[216, 256](np.int32(n), values, partial)
    reduce[1, 256](np.int32(216), partial, total)

    np.testing.assert_allclose(total.numpy(), [host.sum(dtype=np.float64)], rtol=1e-6)
