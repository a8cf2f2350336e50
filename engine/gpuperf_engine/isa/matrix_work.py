"""Operations of matrix products: their number and element type, from the shape and the types in an opcode."""

from __future__ import annotations

from functools import lru_cache

from ..machines.products import FACTORS, product_of
from .fragments import LANES

__all__ = ["TENSOR", "matrix_work"]

#: Type of the factors → name, after Nsight Compute's ``sm__ops_path_tensor_src_fp16…``; for two types, that of the wider one.
TENSOR = {
    "f64": "tensor_fp64",
    "tf32": "tensor_tf32",
    "bf16": "tensor_bf16",
    "f16": "tensor_fp16",
    "e4m3": "tensor_fp8",
    "e5m2": "tensor_fp8",
    "e3m2": "tensor_fp6",
    "e2m3": "tensor_fp6",
    "e2m1": "tensor_fp4",
    "s8": "tensor_int8",
    "u8": "tensor_int8",
    "s4": "tensor_int4",
    "u4": "tensor_int4",
    "b1": "tensor_int1",
}


@lru_cache(maxsize=1024)
def matrix_work(opcode: str) -> tuple[str, int] | None:
    """Name and operations per thread of a matrix product; ``None`` for all other instructions.

    A multiply-add counts as two operations. With a sparse matrix A, only its stored elements count. The operations of a warp (of
    ``wgmma``: a warpgroup) are divided evenly among its threads.
    """
    product = product_of(opcode)
    if product is None:
        return None
    name = TENSOR[min(product.types, key=FACTORS.index)]
    return name, 2 * product.multiply_adds // (product.warps * LANES)
