"""Special registers and their types (PTX manual, "Special Registers")."""

from __future__ import annotations

from ..isa.types import ScalarType, scalar_type

__all__ = ["special_names", "special_type"]

_VECTORS = ("tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid")
_U32 = (
    *("laneid", "warpid", "nwarpid", "smid", "nsmid", "cluster_ctarank", "cluster_nctarank"),
    *("lanemask_eq", "lanemask_le", "lanemask_lt", "lanemask_ge", "lanemask_gt"),
    *("clock", "clock_hi", "globaltimer_lo", "globaltimer_hi"),
    *("total_smem_size", "aggr_smem_size", "dynamic_smem_size"),
    *("reserved_smem_offset_begin", "reserved_smem_offset_end", "reserved_smem_offset_cap"),
    "perctamemorysize",
)
_U64 = ("clock64", "globaltimer", "gridid", "current_graph_exec", "perctamemoryoffset")

_TYPES: dict[str, ScalarType] = {name: scalar_type("u32") for name in _U32}
_TYPES.update({name: scalar_type("u64") for name in _U64})
_TYPES.update({f"{name}.{part}": scalar_type("u32") for name in _VECTORS for part in "xyzwrgba"})
_TYPES["is_explicit_cluster"] = scalar_type("pred")
_TYPES.update({f"envreg{index}": scalar_type("b32") for index in range(32)})
_TYPES.update({f"pm{index}": scalar_type("u32") for index in range(8)})
_TYPES.update({f"pm{index}_64": scalar_type("u64") for index in range(8)})
_TYPES.update({f"reserved_smem_offset_{index}": scalar_type("b32") for index in range(2)})


def special_type(name: str) -> ScalarType | None:
    """The type of a special register, named without the percent sign, or ``None`` if there is none of that name."""
    return _TYPES.get(name)


def special_names() -> tuple[str, ...]:
    """All special registers, with the percent sign, components spelled out."""
    return tuple(f"%{name}" for name in _TYPES)
