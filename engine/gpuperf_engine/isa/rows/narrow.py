"""Conversion of single precision to half precision, bfloat16 and tf32 with saturation, packing and stochastic rounding
(manual: cvt with f16, bf16, f16x2, bf16x2, tf32).
"""

from __future__ import annotations

from ..model import Applied
from ..primitives import Value, concat, is_nan, maximum, minimum, select
from ..table import Options, instruction
from ..types import ScalarType, scalar_type

F32, U32, U16 = scalar_type("f32"), scalar_type("u32"), scalar_type("u16")
PACK: Options = {"category": "bit_convert", "unit": "xu", "applied": Applied(whole=True)}
AMPERE: Options = {**PACK, "since": (7, 0), "target": 80, "requires": {"satfinite": ((8, 1), 80)}}
#: Forms with ``.pzo``: +0 instead of −0.
RUBIN: Options = {**PACK, "since": (9, 4), "only": "107f"}
STOCHASTIC: Options = {**PACK, "since": (8, 7), "only": "100a 103a 107a"}
#: Largest finite numbers, by bit pattern in f32 (exact there).
LARGEST = {"f16": 0x477FE000, "bf16": 0x7F7F0000, "tf32": 0x7F7FE000}


@instruction(
    "cvt.rnd{.relu}{.satfinite}.pzo.dtype.f32 d:dtype, a:f32", rnd="rn rz", dtype="f16 bf16", **RUBIN
)
@instruction(
    "cvt.rnd.satfinite.dtype.f32 d:dtype, a:f32", rnd="rn rz", dtype="f16", since=(8, 1), target=75, **PACK
)
@instruction("cvt.rnd.relu{.satfinite}.dtype.f32 d:dtype, a:f32", rnd="rn rz", dtype="f16", **AMPERE)
@instruction("cvt.rnd{.relu}{.satfinite}.dtype.f32 d:dtype, a:f32", rnd="rn rz", dtype="bf16", **AMPERE)
def to_half(
    a: Value, *, rnd: str, relu: bool | None, satfinite: bool | None, pzo: bool | None, dtype: ScalarType
) -> Value:
    """a rounded to half precision or bfloat16; .relu: at least 0; .satfinite: the largest finite number instead of ∞;
    .pzo: +0 instead of −0."""
    return _halve(a, rnd, relu, satfinite, pzo, dtype)


@instruction(
    "cvt.rnd{.relu}{.satfinite}.pzo.dtype.f32 d:dtype, a:f32, b:f32",
    rnd="rn rz",
    dtype="f16x2 bf16x2",
    **RUBIN,
)
@instruction(
    "cvt.rnd{.relu}{.satfinite}.dtype.f32 d:dtype, a:f32, b:f32", rnd="rn rz", dtype="f16x2 bf16x2", **AMPERE
)
def to_packed_half(
    a: Value,
    b: Value,
    *,
    rnd: str,
    relu: bool | None,
    satfinite: bool | None,
    pzo: bool | None,
    dtype: ScalarType,
) -> Value:
    """a (upper) and b (lower lane) rounded to half precision or bfloat16; .pzo: +0 instead of −0."""
    element = scalar_type(dtype.name[:-2])
    return concat([_halve(lane, rnd, relu, satfinite, pzo, element) for lane in (b, a)])


@instruction(
    "cvt.rs{.relu}{.satfinite}.dtype.f32 d:dtype, a:f32, b:f32, rbits:u32%",
    dtype="f16x2 bf16x2",
    **STOCHASTIC,
)
def to_random_half(
    a: Value, b: Value, rbits: Value, *, relu: bool | None, satfinite: bool | None, dtype: ScalarType
) -> Value:
    """a (upper) and b (lower lane) rounded away from zero where the random bits carry out of those dropped: bits 28…16 and
    12…0 for f16, the upper and lower half for bf16."""
    element = scalar_type(dtype.name[:-2])
    random = rbits.bits(U32)
    return concat(
        [
            _random_half(lane, bits, relu, satfinite, element)
            for lane, bits in ((b, random & 0xFFFF), (a, random >> 16))
        ]
    )


def _random_half(a: Value, random: Value, relu: bool | None, satfinite: bool | None, to: ScalarType) -> Value:
    """The random bits are aligned with the highest dropped bits: 16 for bf16, 13 and more (subnormal results) for f16."""
    if relu:
        a = maximum(a, 0.0, nan=True)
    pattern = a.bits(U32)
    magnitude = pattern & 0x7FFFFFFF
    infinity = 0x7F80 if to.name == "bf16" else 0x7C00
    if to.name == "bf16":
        code = (magnitude + random) >> 16
    else:
        random = random & 0x1FFF
        exponent = maximum(magnitude >> 23, 1)
        significand = select(magnitude.compare("lt", 1 << 23), magnitude, (magnitude & 0x7FFFFF) | (1 << 23))
        tiny = ((significand >> (113 - exponent)) + random) >> 13
        normal = ((magnitude + random) >> 13) - (112 << 10)
        code = select(magnitude.compare("lt", 113 << 23), tiny, normal)
    code = minimum(code, infinity - bool(satfinite)) | ((pattern >> 16) & 0x8000)
    code = select(magnitude.compare("gt", 0x7F800000), code.constant(0x7FFF, U32), code)
    return code.convert(U16).bits(to)


@instruction("cvt.rna{.satfinite}.tf32.f32 d:b32, a:f32", **AMPERE)
def to_tf32_away(a: Value, *, satfinite: bool | None) -> Value:
    """a rounded to 10 bits of mantissa, ties away from zero."""
    return _tf32(a, (a.bits(U32) + 0x1000) & 0xFFFFE000, None, satfinite, None)


@instruction("cvt.rnd{.satfinite}{.relu}.pzo.tf32.f32 d:b32, a:f32", rnd="rn rz", **RUBIN)
@instruction(
    "cvt.rnd{.satfinite}{.relu}.tf32.f32 d:b32, a:f32",
    rnd="rn rz",
    since=(7, 8),
    target=90,
    requires={"satfinite": ((8, 6), 100)},
    **PACK,
)
def to_tf32(a: Value, *, rnd: str, relu: bool | None, satfinite: bool | None, pzo: bool | None) -> Value:
    """a rounded to 10 bits of mantissa; .pzo: +0 instead of −0."""
    pattern = a.bits(U32)
    if rnd == "rn":
        pattern = pattern + 0xFFF + ((pattern >> 13) & 1)
    return _tf32(a, pattern & 0xFFFFE000, relu, satfinite, pzo)


def _tf32(a: Value, rounded: Value, relu: bool | None, satfinite: bool | None, pzo: bool | None) -> Value:
    infinite = abs(a).compare("eq", float("inf"))
    result = select(infinite, a, rounded.bits(F32))
    if satfinite:
        result = _limit(result, "tf32")
    result = select(is_nan(a), a.constant_bits(0x7FFFFFFF, F32), result)
    if relu:
        result = maximum(result, 0.0, nan=True)
    return _positive_zero(result) if pzo else result


def _limit(a: Value, name: str) -> Value:
    """a limited to the finite numbers of a format; NaN stays."""
    largest = a.constant_bits(LARGEST[name], F32)
    return maximum(minimum(a, largest, nan=True), -largest, nan=True)


def _halve(
    a: Value, rnd: str, relu: bool | None, satfinite: bool | None, pzo: bool | None, to: ScalarType
) -> Value:
    result = limited(a, to, rnd) if satfinite else a.convert(to, rounding=rnd)
    if relu:
        result = maximum(result, 0.0, nan=True)
    return _positive_zero(result) if pzo else result


def limited(a: Value, to: ScalarType, rnd: str = "rn") -> Value:
    """a (f32) rounded to f16 or bf16, and the largest finite number of either sign for what is larger; NaN stays."""
    result = _limit(a, to.name).convert(to, rounding=rnd)
    largest = a.constant_bits(LARGEST[to.name], F32).convert(to, rounding="rz")
    return maximum(minimum(result, largest, nan=True), -largest, nan=True)


def _positive_zero(a: Value) -> Value:
    return select(a.compare("eq", 0.0), a.constant(0.0, a.type), a)
