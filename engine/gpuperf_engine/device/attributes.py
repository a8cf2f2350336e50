"""What is known of a kernel before it is launched (``cudaFuncGetAttributes``)."""

from __future__ import annotations

import math

from ..results import KernelAttributes, Resources
from ..simt.launch import MAX_THREADS, shared_limit
from ..simt.program import Program

__all__ = ["attributes_of"]

#: of every compute capability from 5.0 on but 5.3 and 6.2 (CUDA C++ Programming Guide, "Technical Specifications per Compute
#: Capability": registers per block; "Register allocation unit size" and warps in CUDA's occupancy calculator)
_REGISTERS, _UNIT, _WARPS = 65536, 256, 4


def attributes_of(program: Program, resources: Resources) -> KernelAttributes:
    """``resources``: without dynamic shared memory."""
    kernel = program.kernel
    per_warp = -(-resources.registers * 32 // _UNIT) * _UNIT
    fitting = 32 * (_REGISTERS // per_warp // _WARPS * _WARPS)
    bounds = [math.prod(bound) for bound in (kernel.maxntid, kernel.reqntid) if bound is not None]
    estimated = resources.source == "estimate"
    spilled = (
        4 * program.registers_spilled if estimated else max(resources.spill_stores, resources.spill_loads)
    )
    constant = sum(
        item.size
        for item in kernel.module.variables.values()
        if item.space == "const" and item.linkage != "extern"
    )
    return KernelAttributes(
        registers=resources.registers,
        shared_bytes=resources.shared_bytes,
        local_bytes=resources.local_bytes,
        constant_bytes=constant,
        spill_bytes=spilled,
        largest_block=min([MAX_THREADS, fitting, *bounds]),
        largest_shared=shared_limit(kernel.module.target),
        parameter_bytes=kernel.param_bytes,
        source=resources.source,
    )
