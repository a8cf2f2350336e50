"""Operations per warp instruction of each unit, by the kinds that ``Profile.flops`` counts, and the resulting peak rates."""

from __future__ import annotations

import re
from functools import cache

from .expansion import expansion_of
from .machine import Machine
from .occupancy import WARP_SIZE

__all__ = ["UNIT_OF", "operations", "peak_rate"]

_LANES = {"sp": ("fma", 2), "dp": ("fp64", 2), "hp": ("fp16", 4)}
"""Kind → unit, operations per lane. A multiply-add is two operations; a lane of half precision holds a pair."""

_PRODUCTS = {
    "tensor_fp64": "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64",
    "tensor_tf32": "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
    "tensor_bf16": "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
    "tensor_fp16": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "tensor_fp8": "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32",
    "tensor_fp6": "mma.sync.aligned.m16n8k32.row.col.f32.e3m2.e3m2.f32",
    "tensor_fp4": "mma.sync.aligned.m16n8k64.row.col.f32.e2m1.e2m1.f32",
    "tensor_int8": "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32",
    "tensor_int4": "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32",
    "tensor_int1": "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc",
}
"""Kind → a matrix product, whose expansion in ``machines/expansion.yaml`` gives its number of tensor instructions."""

_INTEGERS = frozenset(["tensor_int8", "tensor_int4", "tensor_int1"])

UNIT_OF = {**{kind: unit for kind, (unit, _) in _LANES.items()}, **dict.fromkeys(_PRODUCTS, "tensor")}
"""Kind → the unit that executes it."""


@cache
def operations(kind: str, capability: tuple[int, int]) -> float:
    """Operations per warp instruction of the unit, on a compute capability."""
    if kind in _LANES:
        return float(_LANES[kind][1] * WARP_SIZE)
    opcode = _PRODUCTS[kind]
    shape = re.search(r"\.m(\d+)n(\d+)k(\d+)\.", opcode)
    expansion = expansion_of(opcode, capability)
    assert shape is not None and expansion is not None
    return 2 * int(shape[1]) * int(shape[2]) * int(shape[3]) / expansion.units["tensor"]


def peak_rate(kind: str, machine: Machine) -> float:
    """Operations per cycle of an SM; 0 if the machine lacks the unit."""
    lanes = machine.lanes.get(UNIT_OF[kind], 0.0)
    if kind in _INTEGERS:
        lanes = machine.tensor_fp16_accumulate or lanes
    return lanes * machine.sub_partitions / WARP_SIZE * operations(kind, machine.compute_capability)
