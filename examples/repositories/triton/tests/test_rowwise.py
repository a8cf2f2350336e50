import pytest
import torch
from rowwise import rms_norm, softmax


@pytest.fixture(autouse=True)
def _same_numbers():
    torch.manual_seed(0)


@pytest.mark.parametrize("rows, columns", [(4, 256), (3, 1000)])
def test_softmax(rows, columns):
    x = torch.randn(rows, columns, device="cuda")
    torch.testing.assert_close(softmax(x), torch.softmax(x, 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_rms_norm(dtype):
    x, weight = torch.randn(4, 1000, device="cuda", dtype=dtype), torch.rand(1000, device="cuda", dtype=dtype)
    wide = x.float()
    wanted = wide * torch.rsqrt(wide.square().mean(1, keepdim=True) + 1e-6) * weight.float()
    torch.testing.assert_close(rms_norm(x, weight), wanted.to(dtype))


def test_rows_sum_to_one():
    total = softmax(torch.randn(2, 100, device="cuda")).sum(1)
    torch.testing.assert_close(total, torch.ones(2, device="cuda"))
