"""Integer arithmetic (manual: "Integer Arithmetic Instructions")."""

from __future__ import annotations

from ..model import Accepts
from ..primitives import Value, brev, clz, high, maximum, minimum, popc, select
from ..table import instruction
from ..types import ScalarType, scalar_type

S32, U32, S64, U64 = scalar_type("s32"), scalar_type("u32"), scalar_type("s64"), scalar_type("u64")
INTEGERS = "u16 u32 u64 s16 s32 s64"
PACKED = "u16x2 s16x2"


@instruction("add.type d, a, b", type=PACKED, category="integer", unit="alu", since=(8, 0), target=90)
@instruction("add.type d, a, b", type=INTEGERS, category="integer", unit="alu")
def add(a: Value, b: Value) -> Value:
    """a + b, modulo 2^n."""
    return a + b


@instruction("add.sat.s32 d, a, b", category="integer", unit="alu")
def add_saturating(a: Value, b: Value) -> Value:
    """a + b, limited to the range of s32."""
    return (a.convert(S64) + b.convert(S64)).convert(S32, saturate=True)


@instruction("sub.type d, a, b", type=INTEGERS, category="integer", unit="alu")
def sub(a: Value, b: Value) -> Value:
    """a − b, modulo 2^n."""
    return a - b


@instruction("sub.sat.s32 d, a, b", category="integer", unit="alu")
def sub_saturating(a: Value, b: Value) -> Value:
    """a − b, limited to the range of s32."""
    return (a.convert(S64) - b.convert(S64)).convert(S32, saturate=True)


@instruction(
    "mul.mode.type d, a, b", mode="lo hi", leads="mode", type=INTEGERS, category="integer", unit="imad"
)
def mul(a: Value, b: Value, *, mode: str) -> Value:
    """The low or high half of a · b."""
    return a * b if mode == "lo" else high(a, b)


@instruction("mul.wide.type d:wide, a, b", type="u16 u32 s16 s32", category="integer", unit="imad")
def mul_wide(a: Value, b: Value) -> Value:
    """a · b in twice the width."""
    wide = _doubled(a.type)
    return a.convert(wide) * b.convert(wide)


@instruction(
    "mad.mode.type d, a, b, c", mode="lo hi", leads="mode", type=INTEGERS, category="integer", unit="imad"
)
def mad(a: Value, b: Value, c: Value, *, mode: str) -> Value:
    """The low or high half of a · b, plus c."""
    return mul(a, b, mode=mode) + c


@instruction("mad.hi.sat.s32 d, a, b, c", category="integer", unit="imad")
def mad_saturating(a: Value, b: Value, c: Value) -> Value:
    """The high half of a · b, plus c, limited to the range of s32."""
    return add_saturating(high(a, b), c)


@instruction("mad.wide.type d:wide, a, b, c:wide", type="u16 u32 s16 s32", category="integer", unit="imad")
def mad_wide(a: Value, b: Value, c: Value) -> Value:
    """a · b in twice the width, plus c."""
    return mul_wide(a, b) + c


@instruction(
    "mul24.mode.type d, a, b", mode="lo hi", leads="mode", type="u32 s32", category="integer", unit="imad"
)
def mul24(a: Value, b: Value, *, mode: str) -> Value:
    """Bits 31…0 (lo) or 47…16 (hi) of the product of the low 24 bits of a and b."""
    if mode == "lo":
        return _low24(a) * _low24(b)
    wide = _doubled(a.type)
    return ((_low24(a).convert(wide) * _low24(b).convert(wide)) >> 16).convert(a.type)


@instruction(
    "mad24.mode.type d, a, b, c", mode="lo hi", leads="mode", type="u32 s32", category="integer", unit="imad"
)
def mad24(a: Value, b: Value, c: Value, *, mode: str) -> Value:
    """mul24, plus c."""
    return mul24(a, b, mode=mode) + c


@instruction("mad24.hi.sat.s32 d, a, b, c", category="integer", unit="imad")
def mad24_saturating(a: Value, b: Value, c: Value) -> Value:
    """mul24.hi, plus c, limited to the range of s32."""
    return add_saturating(mul24(a, b, mode="hi"), c)


@instruction("sad.type d, a, b, c", type=INTEGERS, category="integer", unit="alu")
def sad(a: Value, b: Value, c: Value) -> Value:
    """c + |a − b|."""
    return c + select(a.compare("lt", b), b - a, a - b)


@instruction("div.type d, a, b", type=INTEGERS, category="integer", unit="xu")
def div(a: Value, b: Value) -> Value:
    """a / b, truncated. Division by zero gives all ones, as the hardware does."""
    return a.div(b)


@instruction("rem.type d, a, b", type=INTEGERS, category="integer", unit="xu")
def rem(a: Value, b: Value) -> Value:
    """The remainder of the truncated a / b, of a's sign."""
    return a.rem(b)


@instruction("abs.type d, a", type="s16 s32 s64", category="integer", unit="alu")
def absolute(a: Value) -> Value:
    """|a|; the lowest value stays."""
    return abs(a)


@instruction("neg.type d, a", type="s16 s32 s64", category="integer", unit="alu")
def neg(a: Value) -> Value:
    """−a, modulo 2^n."""
    return -a


@instruction("min.type d, a, b", type=PACKED, category="integer", unit="alu", since=(8, 0), target=90)
@instruction(
    "min.relu.type d, a, b", type="s16x2 s32", category="integer", unit="alu", since=(8, 0), target=90
)
@instruction("min.type d, a, b", type=INTEGERS, category="integer", unit="alu")
def integer_min(a: Value, b: Value, *, relu: bool | None) -> Value:
    """The smaller of a and b; .relu: at least 0."""
    least = minimum(a, b)
    return maximum(least, 0) if relu else least


@instruction("max.type d, a, b", type=PACKED, category="integer", unit="alu", since=(8, 0), target=90)
@instruction(
    "max.relu.type d, a, b", type="s16x2 s32", category="integer", unit="alu", since=(8, 0), target=90
)
@instruction("max.type d, a, b", type=INTEGERS, category="integer", unit="alu")
def integer_max(a: Value, b: Value, *, relu: bool | None) -> Value:
    """The larger of a and b; .relu: at least 0."""
    most = maximum(a, b)
    return maximum(most, 0) if relu else most


@instruction("popc.type d:u32, a", type="b32 b64", category="integer", unit="xu", since=(2, 0), target=20)
def population(a: Value) -> Value:
    """The number of one bits."""
    return popc(a)


@instruction("clz.type d:u32, a", type="b32 b64", category="integer", unit="xu", since=(2, 0), target=20)
def leading_zeros(a: Value) -> Value:
    """The number of leading zeros."""
    return clz(a)


@instruction(
    "bfind{.shiftamt}.type d:u32, a",
    type="u32 u64 s32 s64",
    category="integer",
    unit="xu",
    since=(2, 0),
    target=20,
)
def bfind(a: Value, *, shiftamt: bool | None) -> Value:
    """The position of the most significant bit that is not sign, or the left shift that brings it to the top; all ones if
    there is none."""
    unsigned = scalar_type(f"u{a.type.bits}")
    bits = a.bits(unsigned)
    if a.type.is_signed:
        bits = select(a.compare("lt", 0), ~bits, bits)
    zeros = clz(bits)
    position = zeros if shiftamt else (a.type.bits - 1) - zeros
    return select(bits.compare("eq", 0), zeros.constant(0xFFFFFFFF, U32), position)


@instruction(
    "fns.b32 d, mask:b32, base:b32, offset:s32", category="integer", unit="xu", since=(6, 0), target=30
)
def fns(mask: Value, base: Value, offset: Value) -> Value:
    """The position of the n-th set bit of mask, counted from bit ``base`` upwards (offset n) or downwards (−n); offset 0
    asks for bit ``base`` itself. All ones if there is none."""
    bits, start = mask.bits(U32), base.bits(U32)
    down, at_base = offset.compare("lt", 0), offset.compare("eq", 0)
    bits, start = select(down, brev(bits), bits), select(down, 31 - start, start)
    bits = bits & select(at_base, bits.constant(1, U32) << start, bits.constant(0xFFFFFFFF, U32) << start)
    remaining = select(at_base, bits.constant(1, U32), abs(offset).bits(U32))
    none = remaining.compare("gt", popc(bits))
    position = bits.constant(0, U32)
    for width in (16, 8, 4, 2, 1):
        count = popc((bits >> position) & ((1 << width) - 1))
        beyond = remaining.compare("gt", count)
        remaining, position = (
            select(beyond, remaining - count, remaining),
            select(beyond, position + width, position),
        )
    return select(none, bits.constant(0xFFFFFFFF, U32), select(down, 31 - position, position))


@instruction("brev.type d, a", type="b32 b64", category="integer", unit="xu", since=(2, 0), target=20)
def reverse(a: Value) -> Value:
    """The bits in reverse order."""
    return brev(a)


@instruction(
    "bfe.type d, a, b:u32, c:u32",
    accepts=Accepts(constants={name: (lambda value: 0 <= value <= 255, "0 to 255") for name in "bc"}),
    type="u32 u64 s32 s64",
    category="integer",
    unit="alu",
    since=(2, 0),
    target=20,
)
def bfe(a: Value, b: Value, c: Value) -> Value:
    """The field of c bits from bit b of a, extended by the sign of its highest bit (within a) if the type is signed."""
    bits, top = a.bits(scalar_type(f"u{a.type.bits}")), a.type.bits - 1
    position, length = b & 0xFF, c & 0xFF
    ones = bits.constant(-1, bits.type)
    mask = (bits.constant(1, bits.type) << length) - 1
    field = (bits >> position) & mask
    if a.type.is_signed:
        sign = (bits >> minimum(position + length - 1, top)) & 1
        negative = sign.compare("ne", 0) & length.compare("ne", 0)
        field = field | select(negative, ~(mask & (ones >> position)), 0)
    return field


@instruction(
    "bfi.type f, a, b, c:u32, d:u32",
    accepts=Accepts(constants={name: (lambda value: 0 <= value <= 255, "0 to 255") for name in "cd"}),
    type="b32 b64",
    category="integer",
    unit="alu",
    since=(2, 0),
    target=20,
)
def bfi(a: Value, b: Value, c: Value, d: Value) -> Value:
    """b with the low d bits of a put in from bit c."""
    position, length = c & 0xFF, d & 0xFF
    mask = ((a.constant(1, a.type) << length) - 1) << position
    return (b & ~mask) | ((a << position) & mask)


@instruction(
    "szext.mode.type d, a, b:u32",
    mode="clamp wrap",
    type="u32 s32",
    category="integer",
    unit="alu",
    since=(7, 6),
    target=70,
)
def szext(a: Value, b: Value, *, mode: str) -> Value:
    """The low b bits of a, extended to 32 by the type; b above 31 counts modulo 32 (wrap) or leaves a as it is (clamp)."""
    bits, width = a.bits(U32), b & 31
    mask = bits.constant(0xFFFFFFFF, U32) << width
    if mode == "clamp":
        mask = select(b.compare("ge", 32), bits.constant(0, U32), mask)
    low = bits & ~mask
    if a.type.is_signed:
        sign = (bits >> ((width - 1) & 31)) & 1
        low = low | select(sign.compare("ne", 0) & width.compare("ne", 0), mask, 0)
    return low


@instruction(
    "bmsk.mode.b32 d:u32, a:u32, b:u32",
    mode="clamp wrap",
    category="integer",
    unit="alu",
    since=(7, 6),
    target=70,
)
def bmsk(a: Value, b: Value, *, mode: str) -> Value:
    """A mask of b ones from bit a; both modulo 32 (wrap) or limited to 32 (clamp)."""
    start, width = a & 31, b & 31
    ones = a.constant(0xFFFFFFFF, U32)
    upper, lower = ones << (start + width), ones << start
    if mode == "clamp":
        upper = select(a.compare("ge", 32) | b.compare("ge", 32), a.constant(0, U32), upper)
        lower = select(a.compare("ge", 32), a.constant(0, U32), lower)
    return lower & ~upper


@instruction(
    "dp4a.atype.btype d:u32, a:u32, b:u32, c:u32",
    atype="u32 s32",
    btype="u32 s32",
    category="integer",
    unit="imad",
    since=(5, 0),
    target=61,
)
def dp4a(a: Value, b: Value, c: Value, *, atype: ScalarType, btype: ScalarType) -> Value:
    """c plus the sum of the four products of the bytes of a and b."""
    total = c.bits(S32)
    for index in range(4):
        total = total + _piece(a, atype, 8, index) * _piece(b, btype, 8, index)
    return total


@instruction(
    "dp2a.mode.atype.btype d:u32, a:u32, b:u32, c:u32",
    mode="lo hi",
    leads="mode",
    atype="u32 s32",
    btype="u32 s32",
    category="integer",
    unit="imad",
    since=(5, 0),
    target=61,
)
def dp2a(a: Value, b: Value, c: Value, *, mode: str, atype: ScalarType, btype: ScalarType) -> Value:
    """c plus the products of the two halves of a with the lower or upper two bytes of b."""
    total = c.bits(S32)
    for index in range(2):
        byte = index + (2 if mode == "hi" else 0)
        total = total + _piece(a, atype, 16, index) * _piece(b, btype, 8, byte)
    return total


@instruction(
    "clmad.mode.u64 d, a, b, c",
    mode="lo hi",
    leads="mode",
    category="integer",
    unit="imad",
    since=(9, 3),
    target=80,
)
def clmad(a: Value, b: Value, c: Value, *, mode: str) -> Value:
    """The low or high half of the carry-less product of a and b, exclusive or c."""
    if mode == "lo":
        return _carryless(a, b) ^ c
    return (brev(_carryless(brev(a), brev(b))) >> 1) ^ c


def _carryless(a: Value, b: Value) -> Value:
    """The low half of the carry-less product. If only every fourth bit of the factors is set, at most 16 bits add up in a position, so
    carries of an ordinary product stay below the next such position (Pornin, BearSSL, "Constant-Time Mul")."""
    masks = [0x1111111111111111 << shift for shift in range(4)]
    first, second = [a & mask for mask in masks], [b & mask for mask in masks]
    total = None
    for shift, mask in enumerate(masks):
        term = first[0] * second[shift]
        for other in range(1, 4):
            term = term ^ (first[other] * second[(shift - other) % 4])
        total = term & mask if total is None else total | (term & mask)
    assert total is not None
    return total


def _doubled(narrow: ScalarType) -> ScalarType:
    return scalar_type(f"{narrow.kind}{narrow.bits * 2}")


def _low24(a: Value) -> Value:
    return (a << 8) >> 8


def _piece(a: Value, sign: ScalarType, width: int, index: int) -> Value:
    """Bits ``width·index`` up of a 32-bit value, extended by the signedness of ``sign``, as s32."""
    return ((a.bits(sign) << (32 - width * (index + 1))) >> (32 - width)).bits(S32)
