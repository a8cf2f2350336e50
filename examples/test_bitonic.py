"""Bitonic sort: blocks of 1 024 keys in shared memory, then merges over the whole array."""

import numpy as np
import pytest


@pytest.mark.gpuperf(targets=["a100-sxm-80gb", "h100-sxm"])
@pytest.mark.parametrize("count", [1 << 14, 3000])
def test_bitonic_sort(gpuperf, count):
    host = np.random.default_rng(15).integers(0, 1 << 32, count, np.uint32)
    n = max(1024, 1 << (count - 1).bit_length())
    data = gpuperf.array(
        np.pad(host, (0, n - count), constant_values=2**32 - 1)
    )  # the padding sorts to the end
    sort_blocks = gpuperf.kernel("kernels/bitonic.ptx", entry="bitonic_sort_blocks")
    merge_step = gpuperf.kernel("kernels/bitonic.ptx", entry="bitonic_merge_step")
    merge_blocks = gpuperf.kernel("kernels/bitonic.ptx", entry="bitonic_merge_blocks")

    sort_blocks[n // 1024, 512](data)
    size = 2048
    while size <= n:
        stride = size // 2
        while stride >= 1024:
            merge_step[n // 512, 256](data, np.int32(size), np.int32(stride))
            stride //= 2
        merge_blocks[n // 1024, 512](data, np.int32(size))
        size *= 2

    np.testing.assert_array_equal(data.numpy()[:count], np.sort(host))
