"""Special registers of the reference backend (PTX manual, "Special Registers").

Registers of the machine are virtual, so that results are the same on every host: ``%smid`` and ``%gridid`` are 0, ``%nsmid``
is 1, ``%warpid`` is the warp's index in its CTA, and all clocks are the number of warp instructions that this warp has executed,
including those of its current block, and more after loops that wait for them (``flow.clock_loops``). Without clusters every CTA is a
cluster of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..errors import Unsupported
from ..isa.types import scalar_type
from ..ptx.special import special_type
from ..ptx.syntax import SpecialRegister
from ..simt.launch import LaunchPlan
from ..simt.program import RESERVED_SHARED, Program, reserved_offset, shared_unit
from .values import Lanes, LaneValue

if TYPE_CHECKING:
    from .warp import ReferenceWarp

__all__ = ["read_special"]

_U32, _U64 = scalar_type("u32"), scalar_type("u64")
_LANES = np.arange(32, dtype=np.uint64)
_ONE = np.uint64(1)
_LANE_MASKS = {
    "lanemask_eq": _ONE << _LANES,
    "lanemask_lt": (_ONE << _LANES) - _ONE,
    "lanemask_le": (_ONE << (_LANES + _ONE)) - _ONE,
    "lanemask_gt": ~((_ONE << (_LANES + _ONE)) - _ONE),
    "lanemask_ge": ~((_ONE << _LANES) - _ONE),
}
_CLOCKS = ("clock", "clock_hi", "clock64", "globaltimer", "globaltimer_lo", "globaltimer_hi")
_ZERO = (
    "smid",
    "gridid",
    "current_graph_exec",
    "perctamemoryoffset",
    "perctamemorysize",
)
_ONES = ("nsmid",)


def _u32(data: Lanes) -> LaneValue:
    return LaneValue(np.asarray(data).reshape(-1).astype(np.uint32), _U32)


def read_special(
    operand: SpecialRegister, program: Program, plan: LaunchPlan
) -> Callable[[ReferenceWarp], LaneValue]:
    """Reads a special register. Raises ``Unsupported`` for those without a value here."""
    name, _, part = operand.name.partition(".")
    axis = "xyzw".find(part) if part else 0
    if name == "tid":
        return lambda warp: warp.tid[axis]
    if name == "ctaid" or (name == "clusterid" and plan.cluster_ctas == 1):
        return lambda warp: warp.cta.coordinates[axis]
    if plan.cluster_ctas > 1 and name in ("clusterid", "cluster_ctaid", "cluster_ctarank"):
        return _in_cluster(name, axis)
    if name in _CLOCKS:
        return _clock(name)
    if name == "warpid":
        return lambda warp: _u32(np.array([warp.index]))
    if name in ("envreg1", "envreg2") and program.grid_workspace is not None:
        address = int(plan.symbols[program.symbol_of[program.grid_workspace]])
        half = _u32(np.array([address >> 32 if name == "envreg1" else address & 0xFFFFFFFF]))
        return lambda warp: half
    if name.startswith("reserved_smem_offset"):
        offset = reserved_offset(program, name)
        word = _u32(np.array([offset]))
        if plan.cluster_ctas > 1:  # an address, which depends on the CTA as those of variables do
            return lambda warp: _u32(np.array([warp.cta.window + offset]))
        return lambda warp: word
    constant = _constant(name, axis, program, plan)
    if constant is None:
        raise Unsupported(f"special register %{operand.name} is not run yet", span=operand.span)
    return lambda warp: constant


def _constant(name: str, axis: int, program: Program, plan: LaunchPlan) -> LaneValue | None:
    shapes = {
        "ntid": plan.block,
        "nctaid": plan.grid,
        "nclusterid": plan.clusters,
        "cluster_nctaid": plan.cluster,
    }
    if name in shapes:
        return _u32(np.array([(*shapes[name], 1)[axis]]))
    if name in ("cluster_ctaid", "cluster_ctarank"):
        return _u32(np.zeros(1))
    if name == "laneid":
        return _u32(_LANES)
    if name in _LANE_MASKS:
        return _u32(_LANE_MASKS[name])
    unit = shared_unit(program.kernel.module.target)
    total = -(-(plan.shared_bytes - RESERVED_SHARED * program.reserves) // unit) * unit
    sizes = {
        "nwarpid": plan.warps_per_cta,
        "cluster_nctarank": plan.cluster_ctas,
        "total_smem_size": total,
        "aggr_smem_size": total + RESERVED_SHARED,
        "dynamic_smem_size": plan.dynamic_shared,
    }
    if name in sizes:
        return _u32(np.array([sizes[name]]))
    type_ = special_type(name) or special_type(f"{name}.x")
    if type_ is None:
        return None
    if name == "is_explicit_cluster":
        return LaneValue(np.array([plan.explicit_cluster]), type_)
    if name in _ONES:
        return _u32(np.ones(1))
    if name in _ZERO or name.startswith(("envreg", "pm")):
        return LaneValue(np.zeros(1, f"u{type_.bytes}"), type_)
    return None


def _in_cluster(name: str, axis: int) -> Callable[[ReferenceWarp], LaneValue]:
    if name == "cluster_ctarank":
        return lambda warp: _u32(np.array([warp.cta.rank]))
    if name == "clusterid":
        return lambda warp: warp.cta.cluster_coordinates[axis]
    return lambda warp: warp.cta.within[axis]


def _clock(name: str) -> Callable[[ReferenceWarp], LaneValue]:
    if name in ("clock64", "globaltimer"):
        return lambda warp: LaneValue(np.array([warp.read_clock()], np.uint64), _U64)
    shift = 32 if name.endswith("_hi") else 0
    return lambda warp: _u32(np.array([warp.read_clock() >> shift & 0xFFFFFFFF], np.uint64))
