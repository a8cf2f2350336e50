"""Operations of matrix products: their number and element type, from the shape and the types in an opcode."""

from __future__ import annotations

import re
from functools import lru_cache

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
_WIDEST = tuple(TENSOR)
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
_OTHERS = ("f32", "s32")
_WARPGROUP = 4 * LANES


@lru_cache(maxsize=1024)
def matrix_work(opcode: str) -> tuple[str, int] | None:
    """Name and operations per thread of a matrix product; ``None`` for all other instructions.

    A multiply-add counts as two operations. With a sparse matrix A, only its stored elements count. The operations of a warp (of
    ``wgmma``: a warpgroup) are divided evenly among its threads.
    """
    name, *words = opcode.split(".")
    if name not in ("mma", "wmma", "wgmma"):
        return None
    shape = next((match for match in map(_SHAPE.fullmatch, words) if match), None)
    if shape is None or words[0] in ("load", "store"):
        return None
    types = [word for word in words if word in TENSOR or word in _OTHERS]
    factors = ["f16"] if name == "wmma" and len(types) == 2 else types[1:3]
    m, n, k = map(int, shape.groups())
    if shape[0] == "m8n8k4" and name == "mma" and "f16" in factors:
        m *= 4  # four independent products, one per quad pair
    if words[0].startswith("sp") or "sp" in words:
        k //= 2
    threads = _WARPGROUP if name == "wgmma" else LANES
    return TENSOR[min(factors, key=_WIDEST.index)], 2 * m * n * k // threads
