"""Operations per warp instruction of each unit, by the kinds that ``Profile.flops`` counts, and the resulting peak rates."""

from __future__ import annotations

from functools import cache

from .machine import Machine
from .occupancy import WARP_SIZE
from .products import rate_of

__all__ = ["KINDS", "operations", "peak_rate", "unit_of"]

_LANES = {"sp": ("fma", 2), "dp": ("fp64", 2), "hp": ("fp16", 4)}
"""Kind → unit, operations per lane. A multiply-add is two operations; a lane of half precision holds a pair."""

_FACTORS = {
    "tensor_fp64": "f64",
    "tensor_tf32": "tf32",
    "tensor_bf16": "bf16",
    "tensor_fp16": "f16",
    "tensor_fp8": "e4m3",
    "tensor_fp6": "e3m2",
    "tensor_fp4": "e2m1",
    "tensor_int8": "s8",
    "tensor_int4": "s4",
    "tensor_int1": "b1",
}
"""Kind → type of the factors of a matrix product (``machines/products.yaml``)."""

_PACKED = {"tensor_fp4": "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0"}
"""Kind → an instruction that is faster than others with such factors."""

_FULL = frozenset(["tensor_fp4", "tensor_int8", "tensor_int4", "tensor_int1"])
"""Kinds with the rate of products with FP16 accumulators where FP32 accumulators halve that of others."""

KINDS = (*_LANES, *_FACTORS)


def unit_of(kind: str, capability: tuple[int, int]) -> str:
    """The unit that executes operations of a kind, on a compute capability."""
    return _LANES[kind][0] if kind in _LANES else _product(kind, capability)[0]


@cache
def operations(kind: str, capability: tuple[int, int]) -> float:
    """Operations per warp instruction of the unit, on a compute capability."""
    if kind in _LANES:
        return float(_LANES[kind][1] * WARP_SIZE)
    return 2.0 * _product(kind, capability)[1]


def _product(kind: str, capability: tuple[int, int]) -> tuple[str, int]:
    return rate_of(_FACTORS[kind], capability, _PACKED.get(kind, ""))


def peak_rate(kind: str, machine: Machine) -> float:
    """Operations per cycle of an SM; 0 if the machine lacks the unit."""
    lanes = machine.lanes.get(unit_of(kind, machine.compute_capability), 0.0)
    if kind in _FULL:
        lanes = machine.tensor_fp16_accumulate or lanes
    return lanes * machine.sub_partitions / WARP_SIZE * operations(kind, machine.compute_capability)
