"""IEEE-754 arithmetic on bit patterns with Python integers only.

A number is a bit pattern (``int``) plus its :class:`Format`. Every operation forms the exact result as
``mantissa * 2**exponent`` and rounds once in :func:`pack`. No host floating point takes part, except in
the approximate functions, whose results PTX leaves open within an error bound.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass


@dataclass(frozen=True)
class Format:
    """A binary interchange format: field widths in bits, and the NaN that PTX instructions produce."""

    name: str
    exponent_bits: int
    mantissa_bits: int
    nan: int

    @property
    def width(self) -> int:
        return 1 + self.exponent_bits + self.mantissa_bits

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        top = (1 << self.exponent_bits) - 1
        set_field(self, "sign_bit", 1 << (self.exponent_bits + self.mantissa_bits))
        set_field(self, "infinity", top << self.mantissa_bits)
        set_field(self, "bias", top >> 1)
        set_field(self, "least", 1 - (top >> 1) - self.mantissa_bits)  # exponent of the smallest subnormal
        set_field(self, "largest", (top << self.mantissa_bits) - 1)
        set_field(self, "one", (top >> 1) << self.mantissa_bits)
        set_field(self, "hidden", 1 << self.mantissa_bits)
        set_field(self, "magnitude", (1 << (self.exponent_bits + self.mantissa_bits)) - 1)

    sign_bit: int = 0
    infinity: int = 0
    bias: int = 0
    least: int = 0
    largest: int = 0
    one: int = 0
    hidden: int = 0  # the mantissa's leading bit, which a normal number does not store
    magnitude: int = 0  # all bits but the sign


F16 = Format("f16", 5, 10, 0x7FFF)
BF16 = Format("bf16", 8, 7, 0x7FFF)
F32 = Format("f32", 8, 23, 0x7FFFFFFF)
F64 = Format("f64", 11, 52, 0x7FFFFFFFFFFFFFFF)
TF32 = Format("tf32", 8, 10, 0x7FFFFFFF >> 13)

FORMATS = {f.name: f for f in (F16, BF16, F32, F64)}


def is_nan(f: Format, x: int) -> bool:
    return (x & f.magnitude) > f.infinity


def is_infinite(f: Format, x: int) -> bool:
    return (x & f.magnitude) == f.infinity


def is_zero(f: Format, x: int) -> bool:
    return not x & (f.sign_bit - 1)


def sign_of(f: Format, x: int) -> int:
    return 1 if x & f.sign_bit else 0


def unpack(f: Format, x: int) -> tuple[int, int]:
    """Signed mantissa and exponent of a finite number: its value is exactly ``m * 2**e``."""
    magnitude, exponent = x & f.magnitude, f.least
    field = magnitude >> f.mantissa_bits
    if field:
        magnitude += f.hidden - (field << f.mantissa_bits)
        exponent += field - 1
    return (-magnitude if x & f.sign_bit else magnitude), exponent


def round_quotient(kept: int, rest: int, drop: int, negative: bool, mode: str) -> int:
    """Round ``kept + rest / 2**drop`` (a magnitude) to an integer."""
    if not rest:
        return kept
    half = 1 << (drop - 1)
    if mode == "rn":
        up = rest > half or (rest == half and kept & 1 == 1)
    elif mode == "rna":
        up = rest >= half
    elif mode == "rz":
        up = False
    elif mode == "rm":
        up = negative
    elif mode == "rp":
        up = not negative
    else:
        raise ValueError(f"unknown rounding mode {mode!r}")
    return kept + up


def pack(f: Format, m: int, e: int, mode: str = "rn", negative_zero: bool = False) -> int:
    """Round the exact value ``m * 2**e`` to the format; ``negative_zero`` is the sign of an exact zero."""
    if m == 0:
        return f.sign_bit if negative_zero else 0
    negative = m < 0
    sign = f.sign_bit if negative else 0
    m = abs(m)
    last = m.bit_length() + e - 1 - f.mantissa_bits  # exponent of the last place kept
    if last < f.least:
        last = f.least
    drop = last - e
    if drop <= 0:
        m <<= -drop
    else:
        m = round_quotient(m >> drop, m & ((1 << drop) - 1), drop, negative, mode)
    hidden = f.hidden
    if m >= hidden << 1:  # rounding carried into a new binade
        m >>= 1
        last += 1
    if m < hidden:
        return sign | m
    result = ((last - f.least + 1) << f.mantissa_bits) | (m - hidden)
    if result >= f.infinity:
        toward_zero = mode == "rz" or (mode == "rm" and not negative) or (mode == "rp" and negative)
        result = f.largest if toward_zero else f.infinity
    return sign | result


def flush(f: Format, x: int) -> int:
    """``.ftz``: a subnormal becomes a zero of the same sign."""
    return x if x & f.infinity else x & f.sign_bit


def saturate(f: Format, x: int) -> int:
    """``.sat``: clamp to [0, 1]; NaN becomes +0."""
    if is_nan(f, x) or x & f.sign_bit:
        return 0
    return min(x, f.one)


def relu(f: Format, x: int) -> int:
    """``.relu``: negative becomes +0; NaN stays the canonical NaN."""
    if is_nan(f, x):
        return f.nan
    return 0 if x & f.sign_bit else x


def negate(f: Format, x: int) -> int:
    return x ^ f.sign_bit


def absolute(f: Format, x: int) -> int:
    return x & (f.sign_bit - 1)


def add(f: Format, a: int, b: int, mode: str = "rn") -> int:
    special = f.infinity
    if a & special == special or b & special == special:  # NaN or infinite
        if is_nan(f, a) or is_nan(f, b):
            return f.nan
        if is_infinite(f, a):
            return f.nan if is_infinite(f, b) and a != b else a
        return b
    return _sum(f, *unpack(f, a), sign_of(f, a), b, mode)


def _sum(f: Format, m: int, e: int, sign: int, c: int, mode: str) -> int:
    """The finite ``m * 2**e`` (with the sign of its zero) plus the finite number ``c``, rounded once."""
    cm, ce = unpack(f, c)
    low = e if e < ce else ce
    total = (m << (e - low)) + (cm << (ce - low))
    if total:
        return pack(f, total, low, mode)
    # An exact zero keeps a sign both addends share, else it is +0 (-0 when rounding down).
    both_zero = m == 0 and cm == 0
    shared = sign == sign_of(f, c)
    return pack(f, 0, 0, mode, bool(sign) if both_zero and shared else mode == "rm")


def mul(f: Format, a: int, b: int, mode: str = "rn") -> int:
    sign, special = (a ^ b) & f.sign_bit, f.infinity
    if a & special == special or b & special == special:  # NaN or infinite
        if is_nan(f, a) or is_nan(f, b):
            return f.nan
        return f.nan if is_zero(f, a) or is_zero(f, b) else sign | f.infinity
    (am, ae), (bm, be) = unpack(f, a), unpack(f, b)
    return pack(f, am * bm, ae + be, mode, bool(sign))


def fma(f: Format, a: int, b: int, c: int, mode: str = "rn") -> int:
    sign = (a ^ b) & f.sign_bit
    special = f.infinity
    if a & special == special or b & special == special or c & special == special:  # NaN or infinite
        if is_nan(f, a) or is_nan(f, b) or is_nan(f, c):
            return f.nan
        if is_infinite(f, a) or is_infinite(f, b):
            if is_zero(f, a) or is_zero(f, b) or (is_infinite(f, c) and c != sign | f.infinity):
                return f.nan
            return sign | f.infinity
        return c
    (am, ae), (bm, be) = unpack(f, a), unpack(f, b)
    return _sum(f, am * bm, ae + be, 1 if sign else 0, c, mode)


def div(f: Format, a: int, b: int, mode: str = "rn") -> int:
    if is_nan(f, a) or is_nan(f, b):
        return f.nan
    sign = (a ^ b) & f.sign_bit
    if is_infinite(f, a):
        return f.nan if is_infinite(f, b) else sign | f.infinity
    if is_infinite(f, b):
        return sign
    if is_zero(f, b):
        return f.nan if is_zero(f, a) else sign | f.infinity
    (am, ae), (bm, be) = unpack(f, a), unpack(f, b)
    if not am:
        return sign
    am, bm = abs(am), abs(bm)
    shift = max(0, f.mantissa_bits + 4 - am.bit_length() + bm.bit_length())
    quotient, rest = divmod(am << shift, bm)
    quotient = quotient << 1 | (rest != 0)  # a sticky bit: enough to round correctly
    return pack(f, -quotient if sign else quotient, ae - be - shift - 1, mode)


def sqrt(f: Format, a: int, mode: str = "rn") -> int:
    if is_nan(f, a):
        return f.nan
    if is_zero(f, a):
        return a
    if a & f.sign_bit:
        return f.nan
    if is_infinite(f, a):
        return a
    m, e = unpack(f, a)
    shift = max(0, 2 * (f.mantissa_bits + 4) - m.bit_length())
    shift += (e - shift) & 1  # the exponent under the root must be even
    m, e = m << shift, e - shift
    root = math.isqrt(m)
    return pack(f, root << 1 | (root * root != m), e // 2 - 1, mode)


def order(f: Format, x: int) -> int:
    """An integer that sorts like the number (NaN excluded); both zeros give 0."""
    magnitude = x & (f.sign_bit - 1)
    return -magnitude if x & f.sign_bit else magnitude


def compare(f: Format, op: str, a: int, b: int) -> bool:
    """The comparison of ``set``/``setp``; the unordered forms (``equ`` …) are true for NaN."""
    unordered = is_nan(f, a) or is_nan(f, b)
    if op == "num":
        return not unordered
    if op == "nan":
        return unordered
    if unordered:
        return op in ("equ", "neu", "ltu", "leu", "gtu", "geu")
    x, y = order(f, a), order(f, b)
    return {"eq": x == y, "ne": x != y, "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y}[op[:2]]


def extremum(f: Format, a: int, b: int, largest: bool, nan: bool = False, xorsign: bool = False) -> int:
    """``min``/``max``: a number wins over NaN unless ``.NaN``; −0 is below +0."""
    sign = (a ^ b) & f.sign_bit
    if xorsign:
        a, b = absolute(f, a), absolute(f, b)
    if is_nan(f, a) or is_nan(f, b):
        if nan or (is_nan(f, a) and is_nan(f, b)):
            return f.nan
        result = b if is_nan(f, a) else a
    else:
        first = (order(f, a), -sign_of(f, a)) >= (order(f, b), -sign_of(f, b))
        result = a if first == largest else b
    return absolute(f, result) | sign if xorsign else result


def convert(source: Format, target: Format, x: int, mode: str = "rn") -> int:
    """Float to float with one rounding."""
    if is_nan(source, x):
        return target.nan
    sign = sign_of(source, x)
    if is_infinite(source, x):
        return (target.sign_bit if sign else 0) | target.infinity
    m, e = unpack(source, x)
    return pack(target, m, e, mode, bool(sign))


def to_integer(f: Format, x: int, mode: str) -> int:
    """A finite number rounded to an integer (unbounded)."""
    m, e = unpack(f, x)
    if e >= 0:
        return m << e
    magnitude = abs(m)
    rounded = round_quotient(magnitude >> -e, magnitude & ((1 << -e) - 1), -e, m < 0, mode)
    return -rounded if m < 0 else rounded


def round_to_integral(f: Format, x: int, mode: str) -> int:
    """``cvt.rni`` and its kin between equal float types; zero results keep the sign."""
    if is_nan(f, x):
        return f.nan
    if is_infinite(f, x):
        return x
    return pack(f, to_integer(f, x, mode), 0, "rn", bool(x & f.sign_bit))


def to_python(f: Format, x: int) -> float:
    """The number as a Python float (exact for every format here)."""
    bits = x if f is F64 else convert(f, F64, x)
    return float(struct.unpack("<d", bits.to_bytes(8, "little"))[0])


def from_python(f: Format, value: float) -> int:
    """A Python float rounded to nearest even."""
    bits = int.from_bytes(struct.pack("<d", value), "little")
    return convert(F64, f, bits)


def approximate(f: Format, name: str, x: int) -> int:
    """The approximate functions, computed in double and rounded; exact at their documented special values."""
    if is_nan(f, x):
        return f.nan
    v = to_python(f, x)
    if name == "rcp":
        return div(f, f.one, x)
    if name == "sqrt":
        return sqrt(f, x)
    if name == "rsqrt":
        if v == 0:
            return f.infinity | (x & f.sign_bit)
        return f.nan if v < 0 else from_python(f, 0.0 if math.isinf(v) else 1 / math.sqrt(v))
    if name == "ex2":
        return f.infinity if v >= 1024 else from_python(f, 2.0 ** max(v, -2000.0))
    if name == "lg2":
        if v == 0:
            return f.infinity | f.sign_bit
        return f.nan if v < 0 else f.infinity if math.isinf(v) else from_python(f, math.log2(v))
    if name == "tanh":
        return x if v == 0 else from_python(f, math.tanh(v))
    if name in ("sin", "cos"):
        if math.isinf(v):
            return f.nan
        return (
            x if name == "sin" and v == 0 else from_python(f, math.sin(v) if name == "sin" else math.cos(v))
        )
    raise ValueError(f"no approximate function {name!r}")
