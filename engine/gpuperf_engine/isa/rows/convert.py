"""Conversion between types (manual: cvt)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..table import Modifier, instruction
from ..types import ScalarType
from ..words import Value

INTEGERS = "u8 u16 u32 u64 s8 s16 s32 s64"
FLOATS = "f16 bf16 f32 f64"
ROUNDINGS = "rn rz rm rp"
INTEGER_ROUNDINGS = "rni rzi rmi rpi"
UNIT = {"f64": "fp64", "": "xu"}
CONVERT: dict[str, Any] = {"category": "bit_convert", "unit": UNIT}


@instruction("cvt{.sat}.dtype.atype d:dtype+, a:atype+", dtype=INTEGERS, atype=INTEGERS, category="bit_convert", unit="alu")
def integer_to_integer(a: Value, *, dtype: ScalarType, sat: bool | None) -> Value:
    """a extended by its signedness or truncated; .sat: limited to the range of the result."""
    return a.convert(dtype, saturate=bool(sat))


def _flushable(modifiers: Mapping[str, Modifier]) -> str:
    if modifiers.get("ftz") and "f32" not in (modifiers["dtype"], modifiers["atype"]):
        return "'.ftz' needs f32 as source or result"
    return ""


@instruction(
    "cvt.rnd{.ftz}{.sat}.dtype.atype d:dtype, a:atype+", rnd=ROUNDINGS, dtype=FLOATS, atype=INTEGERS, valid=_flushable, **CONVERT
)
def integer_to_float(a: Value, *, dtype: ScalarType, rnd: str) -> Value:
    """a rounded to a floating-point number."""
    return a.convert(dtype, rounding=rnd)


@instruction(
    "cvt.rnd{.ftz}{.sat}.dtype.atype d:dtype+, a:atype", rnd=INTEGER_ROUNDINGS, dtype=INTEGERS, atype=FLOATS, valid=_flushable,
    **CONVERT,
)  # fmt: skip
def float_to_integer(a: Value, *, dtype: ScalarType, rnd: str) -> Value:
    """a rounded to an integer and limited to the range of the result; 0 for NaN."""
    return a.convert(dtype, rounding=rnd)


#: Floating types by how much of each other they hold: a conversion to the right is exact.
_WIDER = {("f16", "f32"), ("f16", "f64"), ("bf16", "f32"), ("bf16", "f64"), ("f32", "f64")}


def _narrowing(modifiers: Mapping[str, Modifier]) -> str:
    if modifiers["dtype"] == modifiers["atype"] or (modifiers["atype"], modifiers["dtype"]) in _WIDER:
        return "a rounding is for results that are narrower than the source"
    return _flushable(modifiers)


def _exact(modifiers: Mapping[str, Modifier]) -> str:
    target, source = modifiers["dtype"], modifiers["atype"]
    if target != source and (source, target) not in _WIDER:
        return f"a rounding (.rn .rz .rm .rp) is needed from {source} to {target}"
    return _flushable(modifiers)


@instruction("cvt.rnd{.ftz}{.sat}.dtype.atype d:dtype, a:atype", rnd=ROUNDINGS, dtype=FLOATS, atype=FLOATS, valid=_narrowing, **CONVERT)
def float_to_narrower(a: Value, *, dtype: ScalarType, rnd: str) -> Value:
    """a rounded to the narrower type."""
    return a.convert(dtype, rounding=rnd)


@instruction("cvt{.ftz}{.sat}.dtype.atype d:dtype, a:atype", dtype=FLOATS, atype=FLOATS, valid=_exact, **CONVERT)
def float_to_wider(a: Value, *, dtype: ScalarType) -> Value:
    """a in a type that holds all its values."""
    return a if dtype == a.type else a.convert(dtype, rounding="rn")


def _same(modifiers: Mapping[str, Modifier]) -> str:
    if modifiers["dtype"] != modifiers["atype"]:
        return "rounding to an integral value keeps the type"
    return _flushable(modifiers)


@instruction("cvt.rnd{.ftz}{.sat}.dtype.atype d:dtype, a:atype", rnd=INTEGER_ROUNDINGS, dtype=FLOATS, atype=FLOATS, valid=_same, **CONVERT)
def float_to_integral(a: Value, *, rnd: str) -> Value:
    """a rounded to an integral value of its own type."""
    return a.apply("round_integral", rounding=rnd)
