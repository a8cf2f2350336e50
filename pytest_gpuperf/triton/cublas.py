"""cuBLAS as Triton's NVIDIA backend offers it to tests and benchmarks (``triton._C.libtriton.nvidia.cublas``), computed by torch on
the CPU.

Sums are those of tensor cores, and rounded once; cuBLAS multiplies ``float32`` in TF32. No counts are collected. Imports
torch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .precision import product

__all__ = ["CublasLt"]

_TYPES = (torch.float8_e4m3fn, torch.float16, torch.bfloat16, torch.float32)
#: values of E2M1 by its four bits (OCP Microscaling Formats, 5.3.3)
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


class CublasLt:
    """A replacement for Triton's class. ``workspace`` is not used. Matrices are row-major, ``b`` is given transposed: (n, k). Types
    and shapes that Triton's class does not accept raise ``RuntimeError``."""

    def __init__(self, workspace: object) -> None:
        pass

    def matmul(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        """c (m, n) = a (m, k) · bᵀ."""
        _check(a, b, c)
        c.copy_(_product(a, b))

    def gemm(
        self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor, alpha: float, beta: float
    ) -> None:
        """d (m, n) = alpha · a (m, k) · bᵀ + beta · c."""
        _check(a, b, d)
        _need(c.dtype == torch.float16, f"C dtype must be float16, got {c.dtype}")
        _need(c.shape == d.shape, "C and D shapes must match")
        d.copy_(alpha * _product(a, b) + beta * c.float())

    def block_scaled_matmul_mxfp8(
        self,
        a: torch.Tensor,
        b: torch.Tensor,
        output: torch.Tensor,
        scale_a: torch.Tensor,
        scale_b: torch.Tensor,
    ) -> None:
        """output (m, n) in ``float16``; inputs are E4M3 with an E8M0 scale for every 32 elements along k."""
        _need({a.dtype, b.dtype} == {torch.float8_e4m3fn}, "block_scaled_matmul_mxfp8 takes float8_e4m3fn")
        scales = (_e8m0(scale_a), _e8m0(scale_b))
        _scaled_product(output, (a.float(), b.float()), scales, 32)

    def block_scaled_matmul_nvfp4(
        self,
        a: torch.Tensor,
        b: torch.Tensor,
        output: torch.Tensor,
        scale_a: torch.Tensor,
        scale_b: torch.Tensor,
    ) -> None:
        """output (m, n) in ``float16``; inputs are E2M1, two per byte, with an E4M3 scale for every 16 elements along k."""
        _need({a.dtype, b.dtype} == {torch.uint8}, "block_scaled_matmul_nvfp4 takes uint8, two E2M1 in each")
        scales = (_e4m3(scale_a), _e4m3(scale_b))
        _scaled_product(output, (_e2m1(a), _e2m1(b)), scales, 16)


def _need(condition: bool, message: str) -> None:
    if not condition:
        raise RuntimeError(message)


def _check(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    _need(a.dtype == b.dtype == c.dtype, "Data types do not match.")
    _need(a.dtype in _TYPES, f"Unsupported data type {a.dtype}.")
    _need(a.ndim == b.ndim == c.ndim == 2, "Only 2D matrices are supported.")
    shapes = (a.shape[0], b.shape[0]), tuple(c.shape), a.shape[1], b.shape[1]
    _need(
        shapes[0] == shapes[1] and shapes[2] == shapes[3],
        f"Matrix dimensions do not match: A {tuple(a.shape)}, B {tuple(b.shape)} (transposed), C {tuple(c.shape)}.",
    )


def _product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    if a.dtype == torch.float32:
        return a @ b.T
    return product(a[None], b.T[None])[0]


def _scaled_product(
    output: torch.Tensor, factors: Sequence[torch.Tensor], scales: Sequence[torch.Tensor], group: int
) -> None:
    _need(output.dtype == torch.float16, f"the output must be float16, got {output.dtype}")
    a, b = (values * _of_elements(scale, values.shape, group) for values, scale in zip(factors, scales))
    _need(a.shape[1] == b.shape[1], "K dimensions must match.")
    output.copy_(a.double() @ b.double().T)


def _of_elements(scale: torch.Tensor, shape: Sequence[int], group: int) -> torch.Tensor:
    """The scale of each element, from tiles of 128 rows and 4 groups (cuBLAS, "1D Block Scaling Factors Layout": the scale of row r
    and group g of a tile has the index 16 · (r mod 32) + 4 · ⌊r ÷ 32⌋ + g)."""
    rows, columns = shape
    down, along = -(-rows // 128), -(-columns // (4 * group))
    _need(scale.numel() == down * along * 512, f"{scale.numel()} scales for ({rows}, {columns})")
    tiles = scale.reshape(down, along, 32, 4, 4).permute(0, 3, 2, 1, 4)
    return tiles.reshape(128 * down, 4 * along)[:rows].repeat_interleave(group, dim=1)[:, :columns]


def _e8m0(scale: torch.Tensor) -> torch.Tensor:
    return torch.exp2(scale.view(torch.uint8).float() - 127)


def _e4m3(scale: torch.Tensor) -> torch.Tensor:
    return scale.view(torch.float8_e4m3fn).float()


def _e2m1(packed: torch.Tensor) -> torch.Tensor:
    table = torch.tensor([*_E2M1, *(-value for value in _E2M1)])
    nibbles = torch.stack((packed & 15, packed >> 4), dim=-1).reshape(packed.shape[0], -1)
    return table[nibbles.long()]
