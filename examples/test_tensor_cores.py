"""One matrix product, a · bᵀ, on five generations of tensor core instructions; the baselines side by side show what each saves.

The factors are small integers, so that every sum is exact.
"""

import ml_dtypes
import numpy as np
import pytest

AMPERE = pytest.mark.gpuperf(targets=["a100-sxm-80gb", "h100-sxm", "rtx-4090"])
ADA = pytest.mark.gpuperf(targets=["rtx-4090", "h100-sxm"])
HOPPER = pytest.mark.gpuperf(targets=["h100-sxm"])
#: entry: file, rows and columns of a block's results, threads, dynamic shared memory
KERNELS = [
    pytest.param("hgemm_wmma", "tensor_gemm", (32, 32), 128, 0, marks=AMPERE, id="hgemm_wmma"),
    pytest.param("hgemm_mma", "tensor_gemm", (64, 64), 128, 0, marks=AMPERE, id="hgemm_mma"),
    pytest.param("igemm_mma", "tensor_gemm", (64, 64), 128, 0, marks=AMPERE, id="igemm_mma"),
    pytest.param("qgemm_mma", "tensor_gemm_fp8", (64, 64), 128, 0, marks=ADA, id="qgemm_mma"),
    pytest.param("hgemm_wgmma", "warpgroup_gemm", (64, 128), 128, 0, marks=HOPPER, id="hgemm_wgmma"),
    pytest.param(
        "hgemm_specialised", "warpgroup_gemm", (128, 128), 384, 98304, marks=HOPPER, id="hgemm_specialised"
    ),
    pytest.param("hgemm_tma", "warpgroup_gemm_tma", (128, 128), 384, 98304, marks=HOPPER, id="hgemm_tma"),
]


@pytest.mark.parametrize(("entry", "file", "tile", "threads", "shared"), KERNELS)
def test_product(gpuperf, entry, file, tile, threads, shared):
    m, n, k = 256, 256, 512
    rng = np.random.default_rng(21)
    host_a, host_b = (rng.integers(-8, 9, shape) for shape in ((m, k), (n, k)))
    kind = {"igemm_mma": np.int8, "qgemm_mma": ml_dtypes.float8_e4m3fn}.get(entry, np.float16)
    a, b = gpuperf.array(host_a.astype(kind)), gpuperf.array(host_b.astype(kind))
    c = gpuperf.empty((m, n), np.int32 if entry == "igemm_mma" else np.float32)

    gemm = gpuperf.kernel(f"kernels/{file}.ptx", entry=entry)
    if entry == "hgemm_tma":  # boxes of 128 rows with 64 elements of k, 128 bytes
        a, b = (gpuperf.tensor_map(item, (128, 64), swizzle="128B") for item in (a, b))
    gemm[(n // tile[1], m // tile[0]), threads, shared](np.int32(n), np.int32(k), a, b, c)

    np.testing.assert_array_equal(c.numpy(), host_a @ host_b.T)
