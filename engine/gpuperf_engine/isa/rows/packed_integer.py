"""Bytes and halves of a word as integers (manual: add, sub, min, max, neg and set with u8x4, s8x4, u16x2, s16x2). ``evaluation`` runs
packed types lane by lane.
"""

from __future__ import annotations

from ..model import Accepts
from ..primitives import Value, maximum, minimum, select
from ..table import Options, instruction
from ..types import scalar_type
from .compare import INTEGER_OPS, comparable, compare_values

S64 = scalar_type("s64")
BYTES, HALVES = "u8x4 s8x4", "u16x2 s16x2"
PACKED: Options = {"category": "integer", "unit": "alu", "since": (9, 2), "only": "107f 120f"}


@instruction("add.sat.u32 d, a, b", **PACKED)
@instruction("add.sat.type d, a, b", type=HALVES, **PACKED)
@instruction("add{.sat}.type d, a, b", type=BYTES, **PACKED)
def add(a: Value, b: Value, *, sat: bool | None) -> Value:
    """a + b in every lane, modulo 2^n; .sat: limited to the lane's range."""
    return (a.convert(S64) + b.convert(S64)).convert(a.type, saturate=True) if sat else a + b


@instruction("sub{.sat}.type d, a, b", type=BYTES, **PACKED)
def sub(a: Value, b: Value, *, sat: bool | None) -> Value:
    """a − b in every lane, modulo 2^n; .sat: limited to the lane's range."""
    return (a.convert(S64) - b.convert(S64)).convert(a.type, saturate=True) if sat else a - b


@instruction("min{.relu}.type d, a, b", type="s8x4", **PACKED)
@instruction("min.type d, a, b", type="u8x4", **PACKED)
def smaller(a: Value, b: Value, *, relu: bool | None) -> Value:
    """The smaller of a and b in every lane; .relu: at least 0."""
    least = minimum(a, b)
    return maximum(least, 0) if relu else least


@instruction("max{.relu}.type d, a, b", type="s8x4", **PACKED)
@instruction("max.type d, a, b", type="u8x4", **PACKED)
def larger(a: Value, b: Value, *, relu: bool | None) -> Value:
    """The larger of a and b in every lane; .relu: at least 0."""
    most = maximum(a, b)
    return maximum(most, 0) if relu else most


@instruction("neg.type d, a", type="s8x4", **PACKED)
def neg(a: Value) -> Value:
    """−a in every lane, modulo 2^n."""
    return -a


@instruction(
    "set.cmp.type d, a, b",
    cmp=INTEGER_OPS,
    type=f"{BYTES} {HALVES}",
    accepts=Accepts(valid=comparable),
    category="compare_select",
    unit="alu",
    since=(9, 4),
    only="107f",
)
def set_lanes(a: Value, b: Value, *, cmp: str) -> Value:
    """All ones in every lane where a cmp b, else 0."""
    return select(compare_values(cmp, a, b), a.constant(-1, a.type), 0)
