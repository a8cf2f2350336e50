"""Products that Triton's programs take from cuBLAS. Skipped without torch; expected values by NumPy and by hand."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from pytest_gpuperf.triton.cublas import CublasLt  # noqa: E402


def integers(rows: int, columns: int, dtype: object) -> object:
    return torch.from_numpy(np.random.default_rng(rows).integers(-3, 4, (rows, columns))).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float8_e4m3fn])
def test_products(dtype) -> None:
    a, b, c = integers(5, 8, dtype), integers(3, 8, dtype), torch.zeros(5, 3, dtype=dtype)
    CublasLt(torch.empty(0)).matmul(a, b, c)
    exact = torch.from_numpy(a.double().numpy() @ b.double().numpy().T)
    assert torch.equal(c.double(), exact.to(dtype).double())
    bias, out = torch.ones(5, 3, dtype=torch.float16), torch.zeros(5, 3, dtype=dtype)
    CublasLt(torch.empty(0)).gemm(a, b, bias, out, 2.0, -3.0)
    assert torch.equal(out.double(), (2 * exact - 3).to(dtype).double())


def test_scales_lie_in_tiles() -> None:
    """Row 37 and groups 5: tile (0, 1), 16 · (37 mod 32) + 4 · ⌊37 ÷ 32⌋ + 1; of the other factor all scales are 1."""
    m, n, k = 128, 128, 256
    a, b = (torch.ones(rows, k).to(torch.float8_e4m3fn) for rows in (m, n))
    ones = torch.full((m * k // 32,), 127, dtype=torch.uint8)
    scale = ones.clone()
    scale[512 + 16 * 5 + 4 * 1 + 1] = 130
    out = torch.empty(m, n, dtype=torch.float16)
    CublasLt(torch.empty(0)).block_scaled_matmul_mxfp8(a, b, out, scale, ones)
    expected = np.full((m, n), 256.0)
    expected[37] = 256 - 32 + 32 * 8
    assert (out.numpy() == expected).all()


def test_two_elements_in_a_byte() -> None:
    """0.5 and −6 in each byte of the one, 1 in all of the other, scales of 2 and 1.5: 32 · (0.5 − 6) · 3."""
    a, b = torch.full((128, 32), 0xF1, dtype=torch.uint8), torch.full((128, 32), 0x22, dtype=torch.uint8)
    scales = (torch.full((512,), value).to(torch.float8_e4m3fn) for value in (2.0, 1.5))
    out = torch.empty(128, 128, dtype=torch.float16)
    CublasLt(torch.empty(0)).block_scaled_matmul_nvfp4(a, b, out, *scales)
    assert (out.numpy() == 32 * (0.5 - 6) * 3).all()


def test_what_triton_refuses_is_refused() -> None:
    blas, half = CublasLt(torch.empty(0)), torch.float16
    a, b, c = integers(5, 8, half), integers(3, 8, half), torch.zeros(5, 3, dtype=half)
    for arguments, message in (
        ((a, b.float(), c), "Data types do not match"),
        ((a.double(), b.double(), c.double()), "Unsupported data type"),
        ((a, b[:, :7], c), "Matrix dimensions do not match"),
        ((a[0], b, c), "Only 2D matrices"),
    ):
        with pytest.raises(RuntimeError, match=message):
            blas.matmul(*arguments)
    with pytest.raises(RuntimeError, match="must be float16"):
        blas.gemm(a, b, c.float(), c, 1.0, 1.0)
    with pytest.raises(RuntimeError, match="takes float8_e4m3fn"):
        blas.block_scaled_matmul_mxfp8(a, b, c, a, b)
    with pytest.raises(RuntimeError, match="takes uint8"):
        blas.block_scaled_matmul_nvfp4(a, b, c, a, b)
