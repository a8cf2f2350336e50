"""Root mean square normalisation of each row, in blocks of columns: rows need not fit."""

import torch
import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(out, x, weight, stride, columns, epsilon, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    squares = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        values = tl.load(x + row * stride + start + at, start + at < columns, other=0.0).to(tl.float32)
        squares += values * values
    scale = tl.rsqrt(tl.sum(squares, 0) / columns + epsilon)
    for start in range(0, columns, BLOCK):
        inside = start + at < columns
        values = tl.load(x + row * stride + start + at, inside, other=0.0).to(tl.float32)
        factors = tl.load(weight + start + at, inside, other=0.0).to(tl.float32)
        tl.store(out + row * stride + start + at, values * scale * factors, inside)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, epsilon: float = 1e-6) -> torch.Tensor:
    rows, columns = x.shape
    out = torch.empty_like(x)
    rms_norm_kernel[(rows,)](out, x, weight, x.stride(0), columns, epsilon, BLOCK=512)
    return out
