"""Attributes of a kernel before its launch (``cudaFuncGetAttributes``)."""

from __future__ import annotations

import math

from ..ptx.module import Function
from ..results import KernelAttributes, Resources
from ..simt.launch import MAX_THREADS, shared_limit
from ..simt.program import Program, declared_registers

__all__ = ["attributes_of"]

#: of every compute capability from 5.0 on but 5.3 and 6.2 (CUDA C++ Programming Guide, "Technical Specifications per Compute
#: Capability": registers per block; "Register allocation unit size" and warps in CUDA's occupancy calculator)
_REGISTERS, _UNIT, _WARPS = 65536, 256, 4


def attributes_of(program: Program, resources: Resources) -> KernelAttributes:
    """``resources``: without dynamic shared memory."""
    kernel = program.kernel
    bounds = [math.prod(bound) for bound in (kernel.maxntid, kernel.reqntid) if bound is not None]
    registers = resources.registers
    spilled = max(resources.spill_stores, resources.spill_loads)
    if resources.source == "estimate":
        registers = min(registers, _declared(kernel, bounds))
        spilled = 4 * (program.registers_spilled + resources.registers - registers)
    per_warp = -(-registers * 32 // _UNIT) * _UNIT
    fitting = 32 * (_REGISTERS // per_warp // _WARPS * _WARPS)
    constant = sum(
        item.size
        for item in kernel.module.variables.values()
        if item.space == "const" and item.linkage != "extern"
    )
    return KernelAttributes(
        registers=registers,
        shared_bytes=resources.shared_bytes,
        local_bytes=resources.local_bytes,
        constant_bytes=constant,
        spill_bytes=spilled,
        largest_block=min([MAX_THREADS, fitting, *bounds]),
        largest_shared=shared_limit(kernel.module.target),
        parameter_bytes=kernel.param_bytes,
        source=resources.source,
    )


def _declared(kernel: Function, bounds: list[int]) -> int:
    """The register limit per thread at which a block of the declared number of threads fits on an SM."""
    limit = declared_registers(kernel.maxnreg) if kernel.maxnreg else _REGISTERS
    if bounds:
        warps = -(-min(bounds) // (32 * _WARPS)) * _WARPS
        limit = min(limit, _REGISTERS // warps // _UNIT * _UNIT // 32)
    return limit
