"""Single and double precision (manual: "Floating Point Instructions")."""

from __future__ import annotations

from ..availability import Available
from ..primitives import Value, copysign, fma, is_nan, maximum, minimum, select, sqrt
from ..table import instruction
from ..types import scalar_type

F32, F64 = scalar_type("f32"), scalar_type("f64")
ROUNDINGS = "rn rz rm rp"
CATEGORY = {"f64": "fp64", "": "fp32"}
PROPERTIES = "finite infinite number notanumber normal subnormal"


@instruction(
    "testp.op.type p:pred, a",
    op=PROPERTIES,
    type="f32 f64",
    category="compare_select",
    unit="alu",
    since=(2, 0),
)
def testp(a: Value, *, op: str) -> Value:
    """Whether a is of that class; infinities and NaN are not normal, zeros are."""
    magnitude = abs(a).bits(scalar_type(f"u{a.type.bits}"))
    fraction = 23 if a.type is F32 else 52
    smallest = 1 << fraction
    infinity = ((1 << (a.type.bits - 1 - fraction)) - 1) << fraction
    if op == "finite":
        return magnitude.compare("lt", infinity)
    if op == "infinite":
        return magnitude.compare("eq", infinity)
    if op == "number":
        return magnitude.compare("le", infinity)
    if op == "notanumber":
        return magnitude.compare("gt", infinity)
    if op == "normal":
        return (magnitude.compare("ge", smallest) & magnitude.compare("lt", infinity)) | magnitude.compare(
            "eq", 0
        )
    return magnitude.compare("ne", 0) & magnitude.compare("lt", smallest)


@instruction("copysign.type d, a, b", type="f32 f64", category=CATEGORY, unit="alu", since=(2, 0))
def copy_sign(a: Value, b: Value) -> Value:
    """b with the sign of a."""
    return copysign(b, a)


@instruction("add{.rnd}.f64 d, a, b", rnd=ROUNDINGS, category="fp64", unit="fp64", target=13, flop="add")
@instruction(
    "add{.rnd}{.ftz}{.sat}.f32 d, a, b",
    rnd=ROUNDINGS,
    category="fp32",
    unit="fma",
    flop="add",
    requires={"rm": ((1, 4), 20), "rp": ((1, 4), 20)},
)
def add(a: Value, b: Value, *, rnd: str) -> Value:
    """a + b."""
    return a.add(b, rounding=rnd)


@instruction("sub{.rnd}.f64 d, a, b", rnd=ROUNDINGS, category="fp64", unit="fp64", target=13, flop="add")
@instruction(
    "sub{.rnd}{.ftz}{.sat}.f32 d, a, b",
    rnd=ROUNDINGS,
    category="fp32",
    unit="fma",
    flop="add",
    requires={"rm": ((1, 4), 20), "rp": ((1, 4), 20)},
)
def sub(a: Value, b: Value, *, rnd: str) -> Value:
    """a − b."""
    return a.sub(b, rounding=rnd)


@instruction("mul{.rnd}.f64 d, a, b", rnd=ROUNDINGS, category="fp64", unit="fp64", target=13, flop="mul")
@instruction(
    "mul{.rnd}{.ftz}{.sat}.f32 d, a, b",
    rnd=ROUNDINGS,
    category="fp32",
    unit="fma",
    flop="mul",
    requires={"rm": ((1, 4), 20), "rp": ((1, 4), 20)},
)
def mul(a: Value, b: Value, *, rnd: str) -> Value:
    """a · b."""
    return a.mul(b, rounding=rnd)


# Rounding is optional up to PTX 3.2 and on sm_1x, for which later GPUs fuse it too (manual, "mad": "JIT-compiled for SM 2.0 devices").
@instruction(
    "mad{.ftz}{.sat}.f32 d, a, b, c",
    category="fp32",
    unit="fma",
    flop="fma",
    available=Available(removed=((3, 2), 20)),
)
@instruction("mad.rnd.f64 d, a, b, c", rnd=ROUNDINGS, category="fp64", unit="fp64", target=13, flop="fma")
@instruction(
    "mad.rnd{.ftz}{.sat}.f32 d, a, b, c",
    rnd=ROUNDINGS,
    category="fp32",
    unit="fma",
    since=(2, 0),
    target=20,
    flop="fma",
)
@instruction(
    "fma.rnd.f64 d, a, b, c", rnd=ROUNDINGS, category="fp64", unit="fp64", since=(1, 4), target=13, flop="fma"
)
@instruction(
    "fma.rnd{.ftz}{.sat}.f32 d, a, b, c",
    rnd=ROUNDINGS,
    category="fp32",
    unit="fma",
    since=(2, 0),
    target=20,
    flop="fma",
)
def fused(a: Value, b: Value, c: Value, *, rnd: str) -> Value:
    """a · b + c with one rounding."""
    return fma(a, b, c, rounding=rnd)


@instruction("div.rnd.f64 d, a, b", rnd=ROUNDINGS, category="fp64", unit="fp64", target=13, flop="special")
@instruction(
    "div.rnd{.ftz}.f32 d, a, b",
    rnd=ROUNDINGS,
    category="fp32",
    unit="xu",
    since=(1, 4),
    target=20,
    flop="special",
)
def div(a: Value, b: Value, *, rnd: str) -> Value:
    """a / b, rounded once."""
    return a.div(b, rounding=rnd)


@instruction("div.full{.ftz}.f32 d, a, b", category="fp32", unit="xu", since=(1, 4), flop="special")
@instruction("div.approx{.ftz}.f32 d, a, b", category="fp32", unit="xu", since=(1, 4), flop="special")
def div_approximate(a: Value, b: Value) -> Value:
    """a / b within 2 ulp; here the correctly rounded quotient."""
    return a.div(b)


@instruction("abs.f64 d, a", category="fp64", unit="fp64", target=13)
@instruction("abs{.ftz}.f32 d, a", category="fp32", unit="alu")
def absolute(a: Value) -> Value:
    """a with the sign bit cleared."""
    return abs(a)


@instruction("neg.f64 d, a", category="fp64", unit="fp64", target=13)
@instruction("neg{.ftz}.f32 d, a", category="fp32", unit="alu")
def neg(a: Value) -> Value:
    """a with the sign bit flipped."""
    return -a


MINIMUM_NEEDS = {"NaN": ((7, 0), 80), "xorsign": ((7, 2), 86)}


@instruction("min.f64 d, a, b", category="fp64", unit="fp64", target=13)
@instruction("min{.ftz}{.NaN}{.xorsign.abs}.f32 d, a, b", category="fp32", unit="alu", requires=MINIMUM_NEEDS)
def smaller(a: Value, b: Value, *, NaN: bool | None, xorsign: bool | None) -> Value:
    """The smaller of a and b, −0 below +0; one NaN loses (.NaN: wins). .xorsign.abs: of the magnitudes, with the exclusive
    or of the signs."""
    if xorsign:
        return of_sign(minimum(abs(a), abs(b), nan=bool(NaN)), a, b)
    return minimum(a, b, nan=bool(NaN))


@instruction("max.f64 d, a, b", category="fp64", unit="fp64", target=13)
@instruction("max{.ftz}{.NaN}{.xorsign.abs}.f32 d, a, b", category="fp32", unit="alu", requires=MINIMUM_NEEDS)
def larger(a: Value, b: Value, *, NaN: bool | None, xorsign: bool | None) -> Value:
    """The larger of a and b, as min."""
    if xorsign:
        return of_sign(maximum(abs(a), abs(b), nan=bool(NaN)), a, b)
    return maximum(a, b, nan=bool(NaN))


@instruction("min{.ftz}{.NaN}{.abs}.f32 d, a, b, c", category="fp32", unit="alu", since=(8, 8), target=100)
def smallest(a: Value, b: Value, c: Value, *, NaN: bool | None, abs: bool | None) -> Value:
    """The smallest of a, b and c (.abs: of their magnitudes)."""
    first, second, third = (_magnitude(x) if abs else x for x in (a, b, c))
    return minimum(minimum(first, second, nan=bool(NaN)), third, nan=bool(NaN))


@instruction("max{.ftz}{.NaN}{.abs}.f32 d, a, b, c", category="fp32", unit="alu", since=(8, 8), target=100)
def largest(a: Value, b: Value, c: Value, *, NaN: bool | None, abs: bool | None) -> Value:
    """The largest of a, b and c (.abs: of their magnitudes)."""
    first, second, third = (_magnitude(x) if abs else x for x in (a, b, c))
    return maximum(maximum(first, second, nan=bool(NaN)), third, nan=bool(NaN))


@instruction(
    "rcp.rnd.f64 d, a", rnd=ROUNDINGS, category="fp64", unit="fp64", since=(1, 4), target=13, flop="special"
)
@instruction(
    "rcp.rnd{.ftz}.f32 d, a",
    rnd=ROUNDINGS,
    category="fp32",
    unit="xu",
    since=(1, 4),
    target=20,
    flop="special",
)
@instruction(
    "rcp.approx{.ftz}.f32 d, a", category="special_function", unit="xu", since=(1, 4), flop="special"
)
def rcp(a: Value, *, rnd: str) -> Value:
    """1 / a; .approx within 1 ulp, here correctly rounded."""
    return a.constant(1.0, a.type).div(a, rounding=rnd)


@instruction(
    "sqrt.rnd.f64 d, a", rnd=ROUNDINGS, category="fp64", unit="fp64", since=(1, 4), target=13, flop="special"
)
@instruction(
    "sqrt.rnd{.ftz}.f32 d, a",
    rnd=ROUNDINGS,
    category="fp32",
    unit="xu",
    since=(1, 4),
    target=20,
    flop="special",
)
@instruction(
    "sqrt.approx{.ftz}.f32 d, a", category="special_function", unit="xu", since=(1, 4), flop="special"
)
def square_root(a: Value, *, rnd: str) -> Value:
    """The square root of a; .approx within 2^−23 relative, here correctly rounded."""
    return sqrt(a, rounding=rnd)


def of_sign(magnitude: Value, a: Value, b: Value) -> Value:
    """magnitude with the exclusive or of both signs; a NaN as it is."""
    raw = scalar_type(f"b{a.type.bits}")
    signs = (a.bits(raw) ^ b.bits(raw)).bits(a.type)
    return select(is_nan(magnitude), magnitude, copysign(magnitude, signs))


def _magnitude(a: Value) -> Value:
    return abs(a)
