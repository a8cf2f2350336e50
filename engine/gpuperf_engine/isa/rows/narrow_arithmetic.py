"""Arithmetic on four numbers of 8, 6 and 4 bits (manual: "Alternate Floating Point Instructions").

Results are rounded once: products are exact in double precision, and sums are rounded to odd there, which makes a further rounding to
so few bits correct.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..formats import FORMATS, decode, encode, scale
from ..model import Applied
from ..primitives import Value, select, split
from ..table import Options, instruction
from ..types import ScalarType, scalar_type

F32, F64, U32, U64 = (scalar_type(name) for name in ("f32", "f64", "u32", "u64"))
RESULTS = "e5m2x4 e4m3x4"
OPERANDS = "e5m2x4 e4m3x4 e3m2x4 e2m3x4 e2m1x4 e2m1p4x4 ue8m0x4"
NARROW: Options = {
    "category": "fp16",
    "unit": "fp16",
    "applied": Applied(whole=True),
    "since": (9, 4),
    "only": "100a 103a",
    "rnd": "rn",
}


@instruction(
    "add{.rnd}{.satfinite}.dtype.atype d:dtype, a:atype, c:dtype",
    dtype=RESULTS,
    atype=OPERANDS,
    **NARROW,
)
def add(a: Value, c: Value, *, satfinite: bool | None, dtype: ScalarType, atype: ScalarType) -> Value:
    """a + c in four lanes, rounded once; too large: ∞ (e5m2), NaN (e4m3), or (.satfinite) the largest number."""
    return _lanewise(_sum, (_four(a, atype), _four(c, dtype)), dtype, satfinite)


@instruction(
    "sub{.rnd}{.satfinite}.dtype.atype d:dtype, a:atype, c:dtype",
    dtype=RESULTS,
    atype=OPERANDS,
    **NARROW,
)
def sub(a: Value, c: Value, *, satfinite: bool | None, dtype: ScalarType, atype: ScalarType) -> Value:
    """a − c in four lanes, as add."""
    return _lanewise(lambda x, z: _sum(x, -z), (_four(a, atype), _four(c, dtype)), dtype, satfinite)


@instruction(
    "mul{.rnd}{.satfinite}.dtype.atype.ctype d:dtype, a:atype, c:ctype",
    dtype=RESULTS,
    atype=OPERANDS,
    ctype=OPERANDS,
    **NARROW,
)
def mul(
    a: Value, c: Value, *, satfinite: bool | None, dtype: ScalarType, atype: ScalarType, ctype: ScalarType
) -> Value:
    """a · c in four lanes, as add."""
    return _lanewise(lambda x, z: x * z, (_four(a, atype), _four(c, ctype)), dtype, satfinite)


@instruction(
    "fma{.rnd}{.satfinite}.dtype.atype.btype d:dtype, a:atype, b:btype, c:dtype",
    dtype=RESULTS,
    atype=OPERANDS,
    btype=OPERANDS,
    **NARROW,
)
def fused(
    a: Value,
    b: Value,
    c: Value,
    *,
    satfinite: bool | None,
    dtype: ScalarType,
    atype: ScalarType,
    btype: ScalarType,
) -> Value:
    """a · b + c in four lanes, as add."""
    operands = (_four(a, atype), _four(b, btype), _four(c, dtype))
    return _lanewise(lambda x, y, z: _sum(x * y, z), operands, dtype, satfinite)


def _four(packed: Value, type: ScalarType) -> list[Value]:
    """The four numbers (f64), the lowest first."""
    if type.name == "e2m1x4":
        whole = packed.bits(scalar_type("u16")).convert(U32)
        codes = [(whole >> (4 * index)) & 0xF for index in range(4)]
    else:
        codes = [byte.bits(scalar_type("u8")).convert(U32) for byte in split(packed, 4)]
    if type.name == "ue8m0x4":
        return [scale(code).convert(F64) for code in codes]
    form = FORMATS["e2m1" if type.name == "e2m1p4x4" else type.name]
    return [decode(code, form).convert(F64) for code in codes]


def _sum(a: Value, b: Value) -> Value:
    """a + b (f64) rounded to odd."""
    down, up = a.add(b, rounding="rm"), a.add(b, rounding="rp")
    towards = a.add(b, rounding="rz")
    odd = (towards.bits(U64) | 1).bits(F64)
    exact = a + b
    return select(down.compare("neu", up) & exact.compare("num", exact), odd, exact)


def _lanewise(
    operation: Callable[..., Value],
    operands: Sequence[Sequence[Value]],
    to: ScalarType,
    satfinite: bool | None,
) -> Value:
    result: Value | None = None
    for index, lane in enumerate(zip(*operands)):
        wide = operation(*lane)
        narrow = wide.convert(F32, rounding="rz")
        lost = narrow.convert(F64).compare("ne", wide)
        narrow = select(lost, (narrow.bits(U32) | 1).bits(F32), narrow)
        code = encode(narrow, FORMATS[to.name], finite=bool(satfinite)) << (8 * index)
        result = code if result is None else result | code
    assert result is not None
    return result
