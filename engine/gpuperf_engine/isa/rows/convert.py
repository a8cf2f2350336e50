"""Conversion between types (manual: cvt)."""

from __future__ import annotations

from collections.abc import Mapping

from ..model import Accepts
from ..primitives import Value, is_nan, maximum, minimum, select
from ..table import Modifier, Options, instruction
from ..types import ScalarType, scalar_type

INTEGERS = "u8 u16 u32 u64 s8 s16 s32 s64"
IEEE = "f16 f32 f64"
ROUNDINGS = "rn rz rm rp"
INTEGER_ROUNDINGS = "rni rzi rmi rpi"
UNIT = {"f64": "fp64", "": "xu"}
F32, U32 = scalar_type("f32"), scalar_type("u32")
CONVERT: Options = {"category": "bit_convert", "unit": UNIT}


def _saturable(modifiers: Mapping[str, Modifier]) -> str:
    """Saturation is for results that do not hold every number of the source."""
    target, source = scalar_type(str(modifiers["dtype"])), scalar_type(str(modifiers["atype"]))
    holds = (
        target.bits >= source.bits
        if target.kind == source.kind
        else target.is_signed and target.bits > source.bits
    )
    return (
        f"'.sat' has no use from {source} to {target}, which holds all its numbers"
        if modifiers["sat"] and holds
        else ""
    )


@instruction(
    "cvt{.sat}.dtype.atype d:dtype+, a:atype+",
    dtype=INTEGERS,
    atype=INTEGERS,
    accepts=Accepts(valid=_saturable),
    category="bit_convert",
    unit="alu",
)
def integer_to_integer(a: Value, *, dtype: ScalarType, sat: bool | None) -> Value:
    """a extended by its signedness or truncated; .sat: limited to the range of the result."""
    return a.convert(dtype, saturate=bool(sat))


def _flushable(modifiers: Mapping[str, Modifier]) -> str:
    if modifiers.get("ftz") and "f32" not in (modifiers["dtype"], modifiers["atype"]):
        return "'.ftz' needs f32 as source or result"
    return ""


@instruction(
    "cvt.rnd.dtype.atype d:dtype, a:atype",
    rnd=ROUNDINGS,
    dtype="bf16",
    atype=INTEGERS,
    since=(7, 8),
    target=90,
    **CONVERT,
)
@instruction(
    "cvt.rnd{.ftz}{.sat}.dtype.atype d:dtype+, a:atype+",
    rnd=ROUNDINGS,
    dtype=IEEE,
    atype=INTEGERS,
    accepts=Accepts(valid=_flushable),
    **CONVERT,
)
def integer_to_float(a: Value, *, dtype: ScalarType, rnd: str) -> Value:
    """a rounded to a floating-point number."""
    return a.convert(dtype, rounding=rnd)


@instruction(
    "cvt.rnd.dtype.atype d:dtype, a:atype",
    rnd=INTEGER_ROUNDINGS,
    dtype=INTEGERS,
    atype="bf16",
    since=(7, 8),
    target=90,
    **CONVERT,
)
@instruction(
    "cvt.rnd{.ftz}{.sat}.dtype.atype d:dtype+, a:atype+",
    rnd=INTEGER_ROUNDINGS,
    dtype=INTEGERS,
    atype=IEEE,
    accepts=Accepts(valid=_flushable),
    **CONVERT,
)
def float_to_integer(a: Value, *, dtype: ScalarType, rnd: str) -> Value:
    """a rounded to an integer and limited to the range of the result; for NaN 0, but from f64 or to 64 bits the top bit."""
    result = a.convert(dtype, rounding=rnd)
    if a.type.bits < 64 and dtype.bits < 64:
        return result
    return select(is_nan(a), result.constant_bits(1 << (dtype.bits - 1), dtype), result)


#: Exact conversions.
_WIDER = {("f16", "f32"), ("f16", "f64"), ("f32", "f64")}
BFLOAT: Options = {**CONVERT, "since": (7, 8), "target": 90}
AMPERE: Options = {**CONVERT, "target": 80}


def _narrowing(modifiers: Mapping[str, Modifier]) -> str:
    if modifiers["dtype"] == modifiers["atype"] or (modifiers["atype"], modifiers["dtype"]) in _WIDER:
        return "a rounding is for results that are narrower than the source"
    return _flushable(modifiers)


def _exact(modifiers: Mapping[str, Modifier]) -> str:
    target, source = modifiers["dtype"], modifiers["atype"]
    if target != source and (source, target) not in _WIDER:
        return f"a rounding (.rn .rz .rm .rp) is needed from {source} to {target}"
    return _flushable(modifiers)


@instruction("cvt.rnd{.ftz}.dtype.f32 d:dtype, a:f32", rnd="rm rp", dtype="bf16", since=(7, 0), **AMPERE)
@instruction("cvt.rnd.ftz.dtype.f32 d:dtype, a:f32", rnd="rn rz", dtype="bf16", since=(7, 0), **AMPERE)
@instruction("cvt.rnd.dtype.f64 d:dtype, a:f64", rnd=ROUNDINGS, dtype="bf16", **BFLOAT)
@instruction("cvt{.rnd}.dtype.f16 d:dtype, a:f16", rnd=ROUNDINGS, dtype="bf16", **BFLOAT)
@instruction("cvt{.rnd}.dtype.bf16 d:dtype, a:bf16", rnd=ROUNDINGS, dtype="f16", **BFLOAT)
@instruction(
    "cvt.rnd{.ftz}{.sat}.dtype.atype d:dtype+, a:atype+",
    rnd=ROUNDINGS,
    dtype=IEEE,
    atype=IEEE,
    accepts=Accepts(valid=_narrowing),
    **CONVERT,
)
def float_to_narrower(a: Value, *, dtype: ScalarType, rnd: str) -> Value:
    """a rounded to the narrower type; between f16 and bf16 to the nearest even where nothing is said, as ``ptxas`` does."""
    if a.type.bits == dtype.bits:
        a = a.convert(F32, rounding="rn")  # holds both 16-bit formats
    return a.convert(dtype, rounding=rnd)


@instruction("cvt{.rnd}.dtype.bf16 d:dtype, a:bf16", rnd=ROUNDINGS, dtype="f64", **BFLOAT)
@instruction("cvt{.rnd}.ftz.dtype.bf16 d:dtype, a:bf16", rnd=ROUNDINGS, dtype="f32", **BFLOAT)
@instruction("cvt{.rnd}.dtype.bf16 d:dtype, a:bf16", rnd=ROUNDINGS, dtype="f32", since=(7, 1), **AMPERE)
@instruction("cvt.dtype.bf16 d:dtype, a:bf16", dtype="bf16", **BFLOAT)
@instruction(
    "cvt{.ftz}{.sat}.dtype.atype d:dtype+, a:atype+",
    dtype=IEEE,
    atype=IEEE,
    accepts=Accepts(valid=_exact),
    **CONVERT,
)
def float_to_wider(a: Value, *, dtype: ScalarType) -> Value:
    """a in a type that holds all its values."""
    return a if dtype == a.type else a.convert(dtype, rounding="rn")


def _same(modifiers: Mapping[str, Modifier]) -> str:
    if modifiers["dtype"] != modifiers["atype"]:
        return "rounding to an integral value keeps the type"
    return _flushable(modifiers)


@instruction("cvt.rnd.dtype.bf16 d:dtype, a:bf16", rnd=INTEGER_ROUNDINGS, dtype="bf16", **BFLOAT)
@instruction(
    "cvt.rnd{.ftz}{.sat}.dtype.atype d:dtype+, a:atype+",
    rnd=INTEGER_ROUNDINGS,
    dtype=IEEE,
    atype=IEEE,
    accepts=Accepts(valid=_same),
    **CONVERT,
)
def float_to_integral(a: Value, *, rnd: str) -> Value:
    """a rounded to an integral value of its own type."""
    return a.apply("round_integral", rounding=rnd)


def _limited(a: Value, bits: int, signed: bool) -> Value:
    """a (s32) limited to the range of an integer of so many bits."""
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    return minimum(maximum(a, low), high)


PACK: Options = {"category": "bit_convert", "unit": "alu", "since": (6, 5), "target": 72}


@instruction("cvt.pack.sat.to.s32 d:u32, a:s32, b:s32", to="u16 s16", **PACK)
def pack_two(a: Value, b: Value, *, to: str) -> Value:
    """a (upper) and b (lower half), limited to 16 bits."""
    upper, lower = (_limited(lane, 16, to[0] == "s").bits(U32) for lane in (a, b))
    return (upper << 16) | (lower & 0xFFFF)


@instruction("cvt.pack.sat.to.s32.b32 d:u32, a:s32, b:s32, c:b32", to="u2 s2 u4 s4 u8 s8", **PACK)
def pack_more(a: Value, b: Value, c: Value, *, to: str) -> Value:
    """c moved up by two places, a and b (lowest) in them, limited to their bits."""
    bits = int(to[1:])
    mask = (1 << bits) - 1
    upper, lower = (_limited(lane, bits, to[0] == "s").bits(U32) & mask for lane in (a, b))
    return (c.bits(U32) << 2 * bits) | (upper << bits) | lower
