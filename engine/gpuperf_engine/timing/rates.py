"""Operations of a warp instruction of a unit, by the kinds that ``Profile.flops`` counts, and the peak rates that follow."""

from __future__ import annotations

from .machine import Machine
from .occupancy import WARP_SIZE

__all__ = ["OPERATIONS", "peak_rate"]

OPERATIONS = {
    "sp": ("fma", 2 * WARP_SIZE),
    "dp": ("fp64", 2 * WARP_SIZE),
    "hp": ("fp16", 4 * WARP_SIZE),
    "tensor_fp64": ("tensor", 128),
    "tensor_tf32": ("tensor", 1024),
    "tensor_bf16": ("tensor", 2048),
    "tensor_fp16": ("tensor", 2048),
    "tensor_fp8": ("tensor", 4096),
    "tensor_fp6": ("tensor", 4096),
    "tensor_fp4": ("tensor", 16384),
    "tensor_int8": ("tensor", 4096),
    "tensor_int4": ("tensor", 8192),
    "tensor_int1": ("tensor", 32768),
}
"""Kind → unit, operations. A multiply-add is two; of the tensor unit they are those of an instruction in ``machines/expansion.yaml``,
where m16n8k8 of halves is one."""


def peak_rate(kind: str, machine: Machine) -> float:
    """Operations per cycle of an SM, 0 for a unit that the machine has not."""
    unit, operations = OPERATIONS[kind]
    return machine.lanes.get(unit, 0.0) * machine.sub_partitions / WARP_SIZE * operations
