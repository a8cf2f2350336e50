"""Conversion to and from packed and narrow floating-point formats (manual: cvt with f16x2, bf16x2, tf32, e4m3x2, e5m2x2).

The 8-bit formats are worked out on integers and single-precision sums, so that backends need not know them.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..table import instruction
from ..types import ScalarType, scalar_type
from ..words import Value, concat, is_nan, maximum, minimum, select, split

F16, BF16, F32, U32, B8, B16 = (scalar_type(name) for name in ("f16", "bf16", "f32", "u32", "b8", "b16"))
PACK: dict[str, Any] = {"category": "bit_convert", "unit": "xu", "whole": True}
NEEDS = {"satfinite": ((8, 1), 80)}
#: Largest finite numbers, by bit pattern in f32 (exact there).
LARGEST = {"f16": 0x477FE000, "bf16": 0x7F7F0000, "tf32": 0x7F7FE000}


@instruction(
    "cvt.rnd.satfinite.dtype.f32 d:dtype, a:f32", rnd="rn rz", dtype="f16", since=(8, 1), target=75, **PACK
)
@instruction(
    "cvt.rnd.relu{.satfinite}.dtype.f32 d:dtype, a:f32",
    rnd="rn rz",
    dtype="f16",
    since=(7, 0),
    target=80,
    requires=NEEDS,
    **PACK,
)
@instruction(
    "cvt.rnd{.relu}{.satfinite}.dtype.f32 d:dtype, a:f32",
    rnd="rn rz",
    dtype="bf16",
    since=(7, 0),
    target=80,
    requires=NEEDS,
    **PACK,
)
def to_half(a: Value, *, rnd: str, relu: bool | None, satfinite: bool | None, dtype: ScalarType) -> Value:
    """a rounded to half precision or bfloat16; .relu: at least 0; .satfinite: the largest finite number instead of ∞."""
    return _halve(a, rnd, relu, satfinite, dtype)


@instruction(
    "cvt.rnd{.relu}{.satfinite}.dtype.f32 d:dtype, a:f32, b:f32",
    rnd="rn rz",
    dtype="f16x2 bf16x2",
    since=(7, 0),
    target=80,
    requires=NEEDS,
    **PACK,
)
def to_packed_half(
    a: Value, b: Value, *, rnd: str, relu: bool | None, satfinite: bool | None, dtype: ScalarType
) -> Value:
    """a (upper) and b (lower lane) rounded to half precision or bfloat16."""
    element = scalar_type(dtype.name[:-2])
    return concat([_halve(lane, rnd, relu, satfinite, element) for lane in (b, a)])


@instruction("cvt.rna{.satfinite}.tf32.f32 d:b32, a:f32", since=(7, 0), target=80, requires=NEEDS, **PACK)
def to_tf32_away(a: Value, *, satfinite: bool | None) -> Value:
    """a rounded to 10 bits of mantissa, ties away from zero."""
    return _tf32(a, (a.bits(U32) + 0x1000) & 0xFFFFE000, None, satfinite)


@instruction(
    "cvt.rnd{.satfinite}{.relu}.tf32.f32 d:b32, a:f32",
    rnd="rn rz",
    since=(7, 8),
    target=90,
    requires={"satfinite": ((8, 6), 100)},
    **PACK,
)
def to_tf32(a: Value, *, rnd: str, relu: bool | None, satfinite: bool | None) -> Value:
    """a rounded to 10 bits of mantissa."""
    pattern = a.bits(U32)
    if rnd == "rn":
        pattern = pattern + 0xFFF + ((pattern >> 13) & 1)
    return _tf32(a, pattern & 0xFFFFE000, relu, satfinite)


def _tf32(a: Value, rounded: Value, relu: bool | None, satfinite: bool | None) -> Value:
    infinite = abs(a).compare("eq", float("inf"))
    result = select(infinite, a, rounded.bits(F32))
    if satfinite:
        result = _limit(result, "tf32")
    result = select(is_nan(a), a.constant_bits(0x7FFFFFFF, F32), result)
    return maximum(result, 0.0, nan=True) if relu else result


def _limit(a: Value, name: str) -> Value:
    """a limited to the finite numbers of a format; NaN stays."""
    largest = a.constant_bits(LARGEST[name], F32)
    return maximum(minimum(a, largest, nan=True), -largest, nan=True)


def _halve(a: Value, rnd: str, relu: bool | None, satfinite: bool | None, to: ScalarType) -> Value:
    if satfinite:
        a = _limit(a, to.name)
    result = a.convert(to, rounding=rnd)
    if satfinite:
        largest = a.constant_bits(LARGEST[to.name], F32).convert(to, rounding="rz")
        result = maximum(minimum(result, largest, nan=True), -largest, nan=True)
    return maximum(result, 0.0, nan=True) if relu else result


@dataclass(frozen=True)
class Narrow:
    """An 8-bit format: bits of mantissa, least exponent of a normal number, pattern of the largest number, bias."""

    mantissa: int
    least: int
    largest: int


E4M3, E5M2 = Narrow(3, -6, 0x7E), Narrow(2, -14, 0x7B)
FORMATS = {"e4m3x2": E4M3, "e5m2x2": E5M2}
EIGHT: dict[str, Any] = {**PACK, "since": (7, 8), "target": 90, "also": ((8, 1), 89)}


@instruction("cvt.rn.satfinite{.relu}.dtype.f32 d:dtype, a:f32, b:f32", dtype="e4m3x2 e5m2x2", **EIGHT)
def singles_to_eight(a: Value, b: Value, *, relu: bool | None, dtype: ScalarType) -> Value:
    """a (upper) and b (lower byte) rounded to 8 bits, limited to finite numbers."""
    return concat([_to_eight(lane, FORMATS[dtype.name], relu) for lane in (b, a)])


@instruction("cvt.rn.satfinite{.relu}.dtype.f16x2 d:dtype, a:f16x2", dtype="e4m3x2 e5m2x2", **EIGHT)
def halves_to_eight(a: Value, *, relu: bool | None, dtype: ScalarType) -> Value:
    """Both lanes of a rounded to 8 bits, limited to finite numbers."""
    lanes = [half.bits(F16).convert(F32, rounding="rn") for half in split(a, 2)]
    return concat([_to_eight(lane, FORMATS[dtype.name], relu) for lane in lanes])


@instruction("cvt.rn{.relu}.f16x2.atype d:f16x2, a:atype", atype="e4m3x2 e5m2x2", **EIGHT)
def eight_to_halves(a: Value, *, relu: bool | None, atype: ScalarType) -> Value:
    """Both bytes of a as half-precision numbers, exactly."""
    return concat([from_eight(byte, FORMATS[atype.name], relu) for byte in split(a, 2)])


def _to_eight(a: Value, form: Narrow, relu: bool | None) -> Value:
    """The byte nearest to a (f32), ties to even."""
    if relu:
        a = maximum(a, 0.0, nan=True)
    pattern = a.bits(U32)
    sign, magnitude = (pattern >> 24) & 0x80, pattern & 0x7FFFFFFF
    dropped = 23 - form.mantissa
    # normal numbers: round the mantissa, then change the bias of the exponent (1 at the least normal number)
    rounded = magnitude + ((1 << (dropped - 1)) - 1) + ((magnitude >> dropped) & 1)
    normal = (rounded >> dropped) - ((form.least + 126) << form.mantissa)
    # below: a sum whose unit in the last place is the format's smallest number
    aligned = float(2.0 ** (form.least - form.mantissa + 23))
    anchor = a.constant(aligned, F32)
    tiny = (magnitude.bits(F32) + anchor).bits(U32) - anchor.bits(U32)
    code = select(magnitude.compare("lt", (form.least + 127) << 23), tiny, minimum(normal, form.largest))
    code = select(magnitude.compare("gt", 0x7F800000), code.constant(0x7F, U32), code | sign)
    return code.convert(scalar_type("u8"))


def from_eight(byte: Value, form: Narrow, relu: bool | None = None) -> Value:
    """The half-precision number that a byte stands for, exactly."""
    code = byte.convert(scalar_type("b16")).bits(scalar_type("u16"))
    sign, magnitude = (code & 0x80) << 8, code & 0x7F
    half = (magnitude << (10 - form.mantissa)).bits(F16)
    if form is E4M3:
        half = half * 256.0  # the biases differ by 8; exact, subnormals too
        special = magnitude.compare("eq", 0x7F)
    else:
        special = magnitude.compare("gt", 0x7C)
    result = select(
        special, half.constant_bits(0x7FFF, F16), (half.bits(scalar_type("u16")) | sign).bits(F16)
    )
    return maximum(result, 0.0, nan=True) if relu else result
