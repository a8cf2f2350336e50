"""Conversion to and from packed numbers of 8, 6 and 4 bits (manual: cvt with e4m3x2, e5m2x2, e2m3x2, e3m2x2, e2m1x2, ue5m3x2,
ue8m0x2, s2f6x2 and the x4 types).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..availability import Available
from ..formats import FORMATS, decode, encode, fixed, power, scale, unfixed
from ..model import Accepts, Applied
from ..primitives import Value, brev, concat, maximum, minimum, select, split
from ..table import Modifier, Options, instruction
from ..types import ScalarType, scalar_type
from .narrow import limited

F32, U32, BF16 = scalar_type("f32"), scalar_type("u32"), scalar_type("bf16")
PACK: Options = {"category": "bit_convert", "unit": "xu", "applied": Applied(whole=True)}
EIGHT: Options = {**PACK, "available": Available(since=(7, 8), target=90, also=((8, 1), 89))}
FAMILIES = "100f 110f 120f"
BLACKWELL: Options = {**PACK, "only": FAMILIES}
FIXED: Options = {**PACK, "since": (9, 1), "only": "100a 103a 107a 110a 120a 121a"}
FIXED_RUBIN: Options = {**PACK, "since": (9, 4), "only": "107a"}
RUBIN: Options = {**PACK, "since": (9, 4), "only": "107f"}
EIGHTS, SMALLS = "e4m3x2 e5m2x2", "e2m1x2 e2m3x2 e3m2x2"
NARROW = f"{EIGHTS} {SMALLS}"
ONE_SCALE, TWO_SCALES = "scaled::n1::ue8m0", "scaled::n2::ue8m0"


def _newer(modifiers: Mapping[str, Modifier]) -> str:
    """Why a combination belongs to another row, that of older targets, or ``""``."""
    plain = modifiers["rnd"] == "rn" and not modifiers["pzo"] and not modifiers["scaled"]
    return "this line has '.rz', '.pzo' or a scale" if plain else ""


@instruction(
    "cvt.rnd.satfinite{.relu}{.pzo}{.scaled}.dtype.f32 d:dtype, a:f32, b:f32, scale:b8?scaled",
    rnd="rz rn",
    scaled=ONE_SCALE,
    dtype=NARROW,
    accepts=Accepts(valid=_newer),
    **RUBIN,
)
def scaled_singles_to_narrow(
    a: Value,
    b: Value,
    *scales: Value,
    rnd: str,
    relu: bool | None,
    pzo: bool | None,
    dtype: ScalarType,
) -> Value:
    """a (upper) and b (lower element), divided by a power of two (subnormal numbers count as 0), rounded and limited to finite
    numbers; .pzo: +0 instead of −0."""
    return _pack([_over(lane, scales, F32) for lane in (b, a)], dtype, rnd, relu, pzo)


@instruction(
    "cvt.rnd.satfinite{.relu}{.pzo}{.scaled}.dtype.atype d:dtype, a:atype, scale:b8?scaled",
    rnd="rz rn",
    scaled=ONE_SCALE,
    dtype=NARROW,
    atype="f16x2 bf16x2",
    accepts=Accepts(valid=_newer),
    **RUBIN,
)
def scaled_halves_to_narrow(
    a: Value,
    *scales: Value,
    rnd: str,
    relu: bool | None,
    pzo: bool | None,
    dtype: ScalarType,
    atype: ScalarType,
) -> Value:
    """Both lanes of a, divided by a power of two (subnormal numbers count as 0), rounded and limited to finite numbers; .pzo:
    +0 instead of −0."""
    return _pack([_over(lane, scales, atype) for lane in _halves(a, atype)], dtype, rnd, relu, pzo)


@instruction(
    "cvt.rn.satfinite{.relu}.dtype.f32 d:dtype, a:f32, b:f32", dtype=SMALLS, since=(8, 6), **BLACKWELL
)
@instruction("cvt.rn.satfinite{.relu}.dtype.f32 d:dtype, a:f32, b:f32", dtype=EIGHTS, **EIGHT)
def singles_to_narrow(a: Value, b: Value, *, relu: bool | None, dtype: ScalarType) -> Value:
    """a (upper) and b (lower element) rounded, limited to finite numbers."""
    return _pack([b, a], dtype, "rn", relu)


@instruction(
    "cvt.rn.satfinite{.relu}.dtype.bf16x2 d:dtype, a:bf16x2", dtype=NARROW, since=(9, 1), **BLACKWELL
)
@instruction("cvt.rn.satfinite{.relu}.dtype.f16x2 d:dtype, a:f16x2", dtype=SMALLS, since=(9, 1), **BLACKWELL)
@instruction("cvt.rn.satfinite{.relu}.dtype.f16x2 d:dtype, a:f16x2", dtype=EIGHTS, **EIGHT)
def halves_to_narrow(a: Value, *, relu: bool | None, dtype: ScalarType, bf16x2: bool | None) -> Value:
    """Both lanes of a rounded, limited to finite numbers."""
    return _pack(_halves(a, scalar_type("bf16x2" if bf16x2 else "f16x2")), dtype, "rn", relu)


@instruction(
    "cvt.rs{.relu}.satfinite.dtype.f32 d:dtype, a:f32*4, rbits:u32%",
    dtype="e4m3x4 e5m2x4 e2m3x4 e3m2x4 e2m1x4",
    since=(8, 7),
    only="100a 103a 107a",
    **PACK,
)
def singles_to_four(
    a: Value, b: Value, e: Value, f: Value, rbits: Value, *, relu: bool | None, dtype: ScalarType
) -> Value:
    """Four numbers, the first uppermost, rounded away from zero where 16 random bits carry out of the bits dropped. The upper half
    of the random bits (e2m1x4: bytes 3 and 1) serves the first two, the rest the others; the first of each two takes them in
    reverse order."""
    random = rbits.bits(U32)
    if dtype.name == "e2m1x4":
        upper = ((random >> 16) & 0xFF00) | ((random >> 8) & 0xFF)
        lower = ((random >> 8) & 0xFF00) | (random & 0xFF)
    else:
        upper, lower = random >> 16, random & 0xFFFF
    bits = (lower, brev(lower) >> 16, upper, brev(upper) >> 16)
    form = FORMATS[dtype.name]
    codes = [encode(_clamped(lane, relu), form, "rs", some) for lane, some in zip((f, e, b, a), bits)]
    return _joined(codes, dtype)


@instruction("cvt.rn{.relu}.f16x2.atype d:f16x2, a:atype", atype=SMALLS, since=(8, 6), **BLACKWELL)
@instruction("cvt.rn{.relu}.f16x2.atype d:f16x2, a:atype", atype=EIGHTS, **EIGHT)
@instruction("cvt.rn.f16x2.atype d:f16x2, a:atype", atype="ue5m3x2", **RUBIN)
def narrow_to_halves(a: Value, *, relu: bool | None, atype: ScalarType) -> Value:
    """Both elements of a as half-precision numbers, exactly (∞ for those of ue5m3 that are too large)."""
    form = FORMATS[atype.name]
    return concat(
        [_clamped(decode(code, form), relu).convert(scalar_type("f16"), rounding="rn") for code in _codes(a)]
    )


@instruction(
    "cvt.rn{.satfinite}{.scaled}.bf16x2.ue5m3x2 d:bf16x2, a:ue5m3x2, scale:b16?scaled",
    scaled=TWO_SCALES,
    **RUBIN,
)
@instruction(
    "cvt.rn{.relu}{.satfinite}{.scaled}.bf16x2.atype d:bf16x2, a:atype, scale:b16?scaled",
    scaled=TWO_SCALES,
    atype=NARROW,
    since=(9, 2),
    **BLACKWELL,
)
def narrow_to_bfloats(
    a: Value,
    *scales: Value,
    relu: bool | None,
    satfinite: bool | None,
    atype: str | ScalarType | None,
) -> Value:
    """Both elements of a, each multiplied by its power of two, as bfloat16; .satfinite: the largest finite number instead of ∞."""
    form = FORMATS[str(atype or "ue5m3x2")]
    return _bfloats([decode(code, form) for code in _codes(a)], scales, relu, satfinite)


@instruction("cvt.rn.bf16x2.ue8m0x2 d:bf16x2, a:ue8m0x2", since=(8, 6), **BLACKWELL)
def powers_to_bfloats(a: Value) -> Value:
    """Both powers of two as bfloat16; NaN for 255."""
    return _bfloats([scale(code) for code in _codes(a)], (), None, None)


@instruction(
    "cvt.rnd{.satfinite}.ue8m0x2.f32 d:ue8m0x2, a:f32, b:f32", rnd="rz rp", since=(8, 6), **BLACKWELL
)
def singles_to_powers(a: Value, b: Value, *, rnd: str, satfinite: bool | None) -> Value:
    """The powers of two at most (rz) or at least (rp) the magnitudes of a (upper) and b (lower); 255 for NaN and what is too
    large (.satfinite: 254)."""
    return _joined([power(lane, rnd, bool(satfinite)) for lane in (b, a)], scalar_type("ue8m0x2"))


@instruction("cvt.rnd{.satfinite}.ue8m0x2.bf16x2 d:ue8m0x2, a:bf16x2", rnd="rz rp", since=(8, 6), **BLACKWELL)
def bfloats_to_powers(a: Value, *, rnd: str, satfinite: bool | None) -> Value:
    """As from two single-precision numbers."""
    lanes = _halves(a, scalar_type("bf16x2"))
    return _joined([power(lane, rnd, bool(satfinite)) for lane in lanes], scalar_type("ue8m0x2"))


@instruction(
    "cvt.rnd.satfinite{.relu}{.scaled}.s2f6x2.f32 d:s2f6x2, a:f32, b:f32, scale:b16?scaled",
    rnd="rz",
    scaled=TWO_SCALES,
    **FIXED_RUBIN,
)
@instruction(
    "cvt.rnd.satfinite{.relu}{.scaled}.s2f6x2.f32 d:s2f6x2, a:f32, b:f32, scale:b16?scaled",
    rnd="rn",
    scaled=TWO_SCALES,
    **FIXED,
)
def singles_to_fixed(a: Value, b: Value, *scales: Value, rnd: str, relu: bool | None) -> Value:
    """a (upper) and b (lower), each divided by its power of two, in units of 1/64, limited to a signed byte; 127 for NaN."""
    return _fixed([b, a], scales, rnd, relu)


@instruction(
    "cvt.rnd.satfinite{.relu}{.scaled}.s2f6x2.bf16x2 d:s2f6x2, a:bf16x2, scale:b16?scaled",
    rnd="rz",
    scaled=TWO_SCALES,
    **FIXED_RUBIN,
)
@instruction(
    "cvt.rnd.satfinite{.relu}{.scaled}.s2f6x2.bf16x2 d:s2f6x2, a:bf16x2, scale:b16?scaled",
    rnd="rn",
    scaled=TWO_SCALES,
    **FIXED,
)
def bfloats_to_fixed(a: Value, *scales: Value, rnd: str, relu: bool | None) -> Value:
    """As from two single-precision numbers."""
    return _fixed(_halves(a, scalar_type("bf16x2")), scales, rnd, relu)


@instruction(
    "cvt.rn{.satfinite}{.relu}{.scaled}.bf16x2.s2f6x2 d:bf16x2, a:s2f6x2, scale:b16?scaled",
    scaled=TWO_SCALES,
    **FIXED,
)
def fixed_to_bfloats(a: Value, *scales: Value, relu: bool | None, satfinite: bool | None) -> Value:
    """Both signed bytes in units of 1/64, each multiplied by its power of two, as bfloat16."""
    return _bfloats([unfixed(byte) for byte in split(a, 2)], scales, relu, satfinite)


@instruction(
    "cvt.rnd{.satfinite}.scaled.ue5m3x2.f32 d:ue5m3x2, a:f32, b:f32, scale:b8",
    rnd="rn rz",
    scaled=ONE_SCALE,
    **RUBIN,
)
@instruction("cvt.rnd{.satfinite}.ue5m3x2.f32 d:ue5m3x2, a:f32, b:f32", rnd="rn rz rp", **RUBIN)
def singles_to_unsigned(a: Value, b: Value, *scales: Value, rnd: str, satfinite: bool | None) -> Value:
    """The magnitudes of a (upper) and b (lower), divided by a power of two, rounded; NaN for what is too large (.satfinite: the
    largest number)."""
    return _unsigned([_over(lane, scales, F32) for lane in (b, a)], rnd, satfinite)


@instruction(
    "cvt.rnd{.satfinite}.scaled.ue5m3x2.atype d:ue5m3x2, a:atype, scale:b8",
    rnd="rn rz",
    scaled=ONE_SCALE,
    atype="f16x2 bf16x2",
    **RUBIN,
)
@instruction(
    "cvt.rnd{.satfinite}.ue5m3x2.atype d:ue5m3x2, a:atype", rnd="rn rz rp", atype="f16x2 bf16x2", **RUBIN
)
def halves_to_unsigned(
    a: Value, *scales: Value, rnd: str, satfinite: bool | None, atype: ScalarType
) -> Value:
    """As from two single-precision numbers."""
    return _unsigned([_over(lane, scales, atype) for lane in _halves(a, atype)], rnd, satfinite)


def _halves(a: Value, packed: ScalarType) -> list[Value]:
    """Both lanes of a in single precision, the lower first."""
    element = scalar_type(packed.name[:-2])
    return [half.bits(element).convert(F32, rounding="rn") for half in split(a, 2)]


def _codes(a: Value) -> list[Value]:
    """Both elements of a packed value, the lower first."""
    if a.type.bits == 16:
        return list(split(a, 2))
    whole = a.bits(scalar_type("u8"))
    return [whole & 0xF, whole >> 4]


def _clamped(a: Value, relu: bool | None) -> Value:
    return maximum(a, 0.0, nan=True) if relu else a


def _joined(codes: Sequence[Value], packed: ScalarType) -> Value:
    """Codes (u32) side by side, the first lowest."""
    step = packed.bits // len(codes)
    result = codes[0]
    for index, code in enumerate(codes[1:], 1):
        result = result | (code << (index * step))
    return result.convert(scalar_type(f"u{packed.bits}"))


def _pack(
    lanes: Sequence[Value], packed: ScalarType, rnd: str, relu: bool | None, pzo: bool | None = None
) -> Value:
    form = FORMATS[packed.name]
    return _joined(
        [encode(_clamped(lane, relu), form, rnd, positive_zero=bool(pzo)) for lane in lanes], packed
    )


def _unsigned(lanes: Sequence[Value], rnd: str, satfinite: bool | None) -> Value:
    form = FORMATS["ue5m3"]
    codes = [encode(lane, form, rnd, finite=bool(satfinite)) for lane in lanes]
    return _joined(codes, scalar_type("ue5m3x2"))


def _over(a: Value, scales: Sequence[Value], source: ScalarType) -> Value:
    """a (f32) divided by the power of two, if there is one; subnormal numbers of the source's format count as 0. Finite numbers
    stay finite."""
    if not scales:
        return a
    if source.name == "f16x2":
        a = select(abs(a).compare("lt", 2.0**-14), (a.bits(U32) & (1 << 31)).bits(F32), a)
    else:
        a = a.flush()
    quotient = a.div(scale(scales[0]))
    largest = a.constant_bits(0x7F7FFFFF, F32)
    within = maximum(minimum(quotient, largest, nan=True), -largest, nan=True)
    return select(abs(a).compare("eq", float("inf")), quotient, within)


def _fixed(lanes: Sequence[Value], scales: Sequence[Value], rnd: str, relu: bool | None) -> Value:
    if scales:
        lanes = [lane.div(scale(code)) for lane, code in zip(lanes, split(scales[0], 2))]
    return _joined([fixed(_clamped(lane, relu), rnd) for lane in lanes], scalar_type("s2f6x2"))


def _bfloats(
    lanes: Sequence[Value], scales: Sequence[Value], relu: bool | None, satfinite: bool | None
) -> Value:
    """Exact numbers times powers of two: exact in single precision or too large for bfloat16."""
    if scales:
        lanes = [lane * scale(code) for lane, code in zip(lanes, split(scales[0], 2))]
    return concat(
        [
            limited(_clamped(lane, relu), BF16)
            if satfinite
            else _clamped(lane, relu).convert(BF16, rounding="rn")
            for lane in lanes
        ]
    )
