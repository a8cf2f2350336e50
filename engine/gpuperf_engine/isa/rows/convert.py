"""Conversion between types (manual: cvt)."""

from __future__ import annotations

from collections.abc import Mapping

from ..table import Modifier, instruction
from ..types import ScalarType, scalar_type
from ..words import Value

INTEGERS = "u8 u16 u32 u64 s8 s16 s32 s64"
FLOATS = "f16 f32 f64"
ROUNDINGS = "rn rz rm rp"
INTEGER_ROUNDINGS = "rni rzi rmi rpi"
UNIT = {"f64": "fp64", "": "xu"}


@instruction("cvt{.sat}.dtype.atype d:dtype+, a:atype+", dtype=INTEGERS, atype=INTEGERS, category="bit_convert", unit="alu")
def integer_to_integer(a: Value, *, dtype: ScalarType, sat: bool | None) -> Value:
    """a extended by its signedness or truncated; .sat: limited to the range of the result."""
    return a.convert(dtype, saturate=bool(sat))


def _flushable(modifiers: Mapping[str, Modifier]) -> str:
    if modifiers.get("ftz") and "f32" not in (modifiers["dtype"], modifiers["atype"]):
        return "'.ftz' needs f32 as source or result"
    return ""


@instruction(
    "cvt.rnd{.ftz}{.sat}.dtype.atype d:dtype, a:atype+", rnd=ROUNDINGS, dtype=FLOATS, atype=INTEGERS, category="bit_convert",
    unit=UNIT, valid=_flushable,
)  # fmt: skip
def integer_to_float(a: Value, *, dtype: ScalarType, rnd: str) -> Value:
    """a rounded to a floating-point number."""
    return a.convert(dtype, rounding=rnd)


@instruction(
    "cvt.rnd{.ftz}{.sat}.dtype.atype d:dtype+, a:atype", rnd=INTEGER_ROUNDINGS, dtype=INTEGERS, atype=FLOATS,
    category="bit_convert", unit=UNIT, valid=_flushable,
)  # fmt: skip
def float_to_integer(a: Value, *, dtype: ScalarType, rnd: str) -> Value:
    """a rounded to an integer and limited to the range of the result; 0 for NaN."""
    return a.convert(dtype, rounding=rnd)


def _narrowing(modifiers: Mapping[str, Modifier]) -> str:
    target, source = scalar_type(str(modifiers["dtype"])), scalar_type(str(modifiers["atype"]))
    if target.bits >= source.bits:
        return "a rounding is needed only where the result is narrower than the source"
    return _flushable(modifiers)


def _not_narrowing(modifiers: Mapping[str, Modifier]) -> str:
    target, source = scalar_type(str(modifiers["dtype"])), scalar_type(str(modifiers["atype"]))
    if target.bits < source.bits:
        return f"a rounding (.rn .rz .rm .rp) is needed from {source} to the narrower {target}"
    return _flushable(modifiers)


@instruction(
    "cvt.rnd{.ftz}{.sat}.dtype.atype d:dtype, a:atype", rnd=ROUNDINGS, dtype="f16 f32", atype="f32 f64",
    category="bit_convert", unit=UNIT, valid=_narrowing,
)  # fmt: skip
def float_to_narrower(a: Value, *, dtype: ScalarType, rnd: str) -> Value:
    """a rounded to the narrower type."""
    return a.convert(dtype, rounding=rnd)


@instruction(
    "cvt{.ftz}{.sat}.dtype.atype d:dtype, a:atype", dtype=FLOATS, atype=FLOATS, category="bit_convert", unit=UNIT,
    valid=_not_narrowing,
)  # fmt: skip
def float_to_wider(a: Value, *, dtype: ScalarType) -> Value:
    """a in a type that holds all its values."""
    return a.convert(dtype, rounding="rn") if dtype != a.type else a


def _same(modifiers: Mapping[str, Modifier]) -> str:
    if modifiers["dtype"] != modifiers["atype"]:
        return "rounding to an integral value keeps the type"
    return _flushable(modifiers)


@instruction(
    "cvt.rnd{.ftz}{.sat}.dtype.atype d:dtype, a:atype", rnd=INTEGER_ROUNDINGS, dtype=FLOATS, atype=FLOATS,
    category="bit_convert", unit=UNIT, valid=_same,
)  # fmt: skip
def float_to_integral(a: Value, *, rnd: str) -> Value:
    """a rounded to an integral value of its own type."""
    return a.apply("round_integral", rounding=rnd)


