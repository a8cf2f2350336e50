"""Two single-precision numbers in a register, and arithmetic on operands of several precisions (manual: "Floating Point
Instructions" with f32x2, "Mixed Precision Floating Point Instructions").
"""

from __future__ import annotations

from collections.abc import Callable

from ..model import Applied
from ..primitives import Value, concat, fma, split
from ..table import Options, instruction
from ..types import ScalarType, scalar_type

F32 = scalar_type("f32")
ROUNDINGS = "rn rz rm rp"
SINGLE: Options = {"category": "fp32", "unit": "fma"}
BLACKWELL: Options = {**SINGLE, "since": (8, 6), "target": 100}
#: Packed operands of several precisions, passed to the semantics whole.
RUBIN: Options = {**SINGLE, "since": (9, 4), "only": "107f", "applied": Applied(whole=True)}
HALVES, PAIRS = "f16 bf16", "f16x2 bf16x2"


@instruction("add{.rnd}{.ftz}.f32x2 d, a, b", rnd=ROUNDINGS, flop="add", **BLACKWELL)
def add(a: Value, b: Value, *, rnd: str) -> Value:
    """a + b in both lanes."""
    return a.add(b, rounding=rnd)


@instruction("sub{.rnd}{.ftz}.f32x2 d, a, b", rnd=ROUNDINGS, flop="add", **BLACKWELL)
def sub(a: Value, b: Value, *, rnd: str) -> Value:
    """a − b in both lanes."""
    return a.sub(b, rounding=rnd)


@instruction("mul{.rnd}{.ftz}.f32x2 d, a, b", rnd=ROUNDINGS, flop="mul", **BLACKWELL)
def mul(a: Value, b: Value, *, rnd: str) -> Value:
    """a · b in both lanes."""
    return a.mul(b, rounding=rnd)


@instruction("fma.rnd{.ftz}.f32x2 d, a, b, c", rnd=ROUNDINGS, flop="fma", **BLACKWELL)
def fused(a: Value, b: Value, c: Value, *, rnd: str) -> Value:
    """a · b + c with one rounding in both lanes."""
    return fma(a, b, c, rounding=rnd)


@instruction(
    "add{.rnd}{.sat}.f32.atype d:f32, a:atype, c:f32", rnd=ROUNDINGS, atype=HALVES, flop="add", **BLACKWELL
)
def add_mixed(a: Value, c: Value, *, rnd: str) -> Value:
    """a, made single precision, + c."""
    return _wide(a).add(c, rounding=rnd)


@instruction(
    "sub{.rnd}{.sat}.f32.atype d:f32, a:atype, c:f32", rnd=ROUNDINGS, atype=HALVES, flop="add", **BLACKWELL
)
def sub_mixed(a: Value, c: Value, *, rnd: str) -> Value:
    """a, made single precision, − c."""
    return _wide(a).sub(c, rounding=rnd)


@instruction(
    "fma.rnd{.sat}.f32.atype d:f32, a:atype, b:atype, c:f32",
    rnd=ROUNDINGS,
    atype=HALVES,
    flop="fma",
    **BLACKWELL,
)
def fused_mixed(a: Value, b: Value, c: Value, *, rnd: str) -> Value:
    """a · b, made single precision, + c with one rounding."""
    return fma(_wide(a), _wide(b), c, rounding=rnd)


@instruction(
    "add{.rnd}.f32x2.atype.f32x2 d:f32x2, a:atype, c:f32x2", rnd=ROUNDINGS, atype=PAIRS, flop="add", **RUBIN
)
def add_pairs(a: Value, c: Value, *, rnd: str, atype: ScalarType) -> Value:
    """a, made single precision, + c in both lanes."""
    return _lanewise(lambda x, z: x.add(z, rounding=rnd), _pair(a, atype), _pair(c))


@instruction(
    "sub{.rnd}.f32x2.atype.f32x2 d:f32x2, a:atype, c:f32x2", rnd=ROUNDINGS, atype=PAIRS, flop="add", **RUBIN
)
def sub_pairs(a: Value, c: Value, *, rnd: str, atype: ScalarType) -> Value:
    """a, made single precision, − c in both lanes."""
    return _lanewise(lambda x, z: x.sub(z, rounding=rnd), _pair(a, atype), _pair(c))


@instruction(
    "fma.rnd.f32x2.atype.f32x2.f32x2 d:f32x2, a:atype, b:f32x2, c:f32x2",
    rnd=ROUNDINGS,
    atype=PAIRS,
    flop="fma",
    **RUBIN,
)
def fused_pairs(a: Value, b: Value, c: Value, *, rnd: str, atype: ScalarType) -> Value:
    """a, made single precision, · b + c with one rounding in both lanes."""
    return _lanewise(lambda x, y, z: fma(x, y, z, rounding=rnd), _pair(a, atype), _pair(b), _pair(c))


@instruction("add.rz.ftz.f16x2.f32x2.f32x2 d:f16x2, a:f32x2, b:f32x2", flop="add", **RUBIN)
@instruction("add.rz.bf16x2.f32x2.f32x2 d:bf16x2, a:f32x2, b:f32x2", flop="add", **RUBIN)
def add_narrowed(a: Value, b: Value, *, ftz: bool | None) -> Value:
    """a + b in both lanes, rounded towards zero to half precision (.ftz: subnormal numbers and results count as 0) or bfloat16."""
    return _narrowed(lambda x, y: x.add(y, rounding="rz"), a, b, ftz)


@instruction("sub.rz.ftz.f16x2.f32x2.f32x2 d:f16x2, a:f32x2, b:f32x2", flop="add", **RUBIN)
@instruction("sub.rz.bf16x2.f32x2.f32x2 d:bf16x2, a:f32x2, b:f32x2", flop="add", **RUBIN)
def sub_narrowed(a: Value, b: Value, *, ftz: bool | None) -> Value:
    """a − b, as add."""
    return _narrowed(lambda x, y: x.sub(y, rounding="rz"), a, b, ftz)


@instruction("mul.rz.ftz.f16x2.f32x2.f32x2 d:f16x2, a:f32x2, b:f32x2", flop="mul", **RUBIN)
@instruction("mul.rz.bf16x2.f32x2.f32x2 d:bf16x2, a:f32x2, b:f32x2", flop="mul", **RUBIN)
def mul_narrowed(a: Value, b: Value, *, ftz: bool | None) -> Value:
    """a · b, as add."""
    return _narrowed(lambda x, y: x.mul(y, rounding="rz"), a, b, ftz)


def _wide(a: Value) -> Value:
    return a.convert(F32, rounding="rn")


def _pair(packed: Value, type: ScalarType | None = None) -> list[Value]:
    """Both lanes in single precision, the lower first."""
    element = F32 if type is None else scalar_type(type.name[:-2])
    return [_wide(lane.bits(element)) if element != F32 else lane.bits(F32) for lane in split(packed, 2)]


def _lanewise(operation: Callable[..., Value], *operands: list[Value]) -> Value:
    return concat([operation(*lane) for lane in zip(*operands)])


def _narrowed(operation: Callable[[Value, Value], Value], a: Value, b: Value, ftz: bool | None) -> Value:
    """Rounding towards zero to single precision and then to the narrow type equals one rounding of the exact result, as the wide type
    contains every number of the narrow one."""
    to = scalar_type("f16" if ftz else "bf16")
    lanes = []
    for x, y in zip(_pair(a), _pair(b)):
        if ftz:
            x, y = x.flush(), y.flush()
        result = operation(x, y).convert(to, rounding="rz")
        lanes.append(result.flush() if ftz else result)
    return concat(lanes)
