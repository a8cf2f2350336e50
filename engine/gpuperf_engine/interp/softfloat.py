"""IEEE 754 arithmetic on bit patterns, correctly rounded in every direction, on NumPy arrays of any shape.

Operands and results are raw patterns in unsigned arrays of the format's width. Results are those of the primitives in
``isa.primitives``: subnormals are kept, a NaN result is the format's canonical NaN, ``rounding`` is ``rn rz rm rp`` (and ``rna``,
ties away from zero, for conversions to tf32). Nothing warns, and results do not depend on the host's rounding mode.

Every number is unpacked into sign, exponent and a 64-bit significand whose top bit is set; each operation produces
such a number, with inexactness jammed into its lowest bit, and ``_pack`` rounds once. If NumPy's own arithmetic returns the
same result (rounding to nearest in f32 and f64, and f16, bf16 and f32 computed in f64 with rounding to odd), it is used
instead, for speed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from ..isa.types import ScalarType
from .wide import Counts, Words, clz64, multiply64, shift_left128, shift_right_jam64, shift_right_jam128

__all__ = [
    "FORMATS",
    "Format",
    "add",
    "convert",
    "divide",
    "fma",
    "format_of",
    "from_double",
    "from_integer",
    "is_nan",
    "multiply",
    "square_root",
    "subtract",
    "to_double",
]

Raw: TypeAlias = npt.NDArray[Any]
"""Bit patterns, in integers of their size."""
Floats: TypeAlias = npt.NDArray[np.float32] | npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_ONE = np.uint64(1)
_ZERO_EXPONENT = -(1 << 20)  # of zeros: so low that aligning shifts them out


@dataclass(frozen=True, slots=True)
class Format:
    """A binary format: ``fraction`` bits after the point; ``low`` unused low bits of the pattern (tf32 has 13)."""

    name: str
    bits: int
    exponent: int
    fraction: int
    low: int = 0

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    @property
    def infinity(self) -> int:
        """The pattern of +∞ without the unused low bits."""
        return ((1 << self.exponent) - 1) << self.fraction

    @property
    def nan(self) -> int:
        """The canonical NaN's whole pattern."""
        return (1 << (self.bits - 1)) - 1

    @property
    def dtype(self) -> np.dtype[np.generic]:
        return np.dtype(f"u{self.bits // 8}")


FORMATS: dict[str, Format] = {
    "f16": Format("f16", 16, 5, 10),
    "bf16": Format("bf16", 16, 8, 7),
    "tf32": Format("tf32", 32, 8, 10, 13),
    "f32": Format("f32", 32, 8, 23),
    "f64": Format("f64", 64, 11, 52),
}
_F32, _F64 = FORMATS["f32"], FORMATS["f64"]


def format_of(type: ScalarType) -> Format:
    """The format of a scalar floating-point type. Raises ``KeyError`` for other types."""
    return FORMATS[type.name]


class _Number(NamedTuple):
    """value = (−1)^sign · significand/2^63 · 2^exponent; the significand's top bit is set unless the value is zero."""

    sign: Bools
    exponent: Counts
    significand: Words
    nan: Bools
    infinite: Bools


def _unpack(raw: Raw, form: Format) -> _Number:
    word = raw.astype(np.uint64) >> np.uint64(form.low)
    fraction = word & np.uint64((1 << form.fraction) - 1)
    field = ((word >> np.uint64(form.fraction)) & np.uint64((1 << form.exponent) - 1)).astype(np.int64)
    special = field == (1 << form.exponent) - 1
    whole = np.where(field == 0, fraction, fraction | np.uint64(1 << form.fraction)) << np.uint64(
        63 - form.fraction
    )
    zeros = clz64(whole)
    exponent = np.where(whole == 0, _ZERO_EXPONENT, np.maximum(field, 1) - form.bias - zeros)
    sign = (word >> np.uint64(form.bits - 1 - form.low)) != 0
    return _Number(
        sign, exponent, _normal(whole, zeros), special & (fraction != 0), special & (fraction == 0)
    )


def _normal(word: Words, zeros: Counts) -> Words:
    return word << np.minimum(zeros, 63).astype(np.uint64)


def _round_up(sign: Bools, kept: Words, rest: Words, half: int, rounding: str) -> Bools:
    if rounding == "rn":
        tie = np.uint64(half)
        return cast(Bools, (rest > tie) | ((rest == tie) & ((kept & _ONE) != 0)))
    if rounding == "rna":
        above: Bools = rest >= np.uint64(half)
        return above
    if rounding == "rz":
        return np.zeros_like(sign)
    return cast(Bools, (rest != 0) & (sign if rounding == "rm" else ~sign))


def _pack(sign: Bools, exponent: Counts, significand: Words, form: Format, rounding: str) -> Words:
    """Rounds a finite number to the format; a zero significand gives a zero of that sign."""
    low = np.clip(1 - form.bias - exponent, 0, 64)
    shifted = shift_right_jam64(significand, low)
    drop = 63 - form.fraction
    kept = shifted >> np.uint64(drop)
    rest = shifted & np.uint64((1 << drop) - 1)
    # The hidden bit of `kept` increments the exponent field, and so does a carry out of rounding.
    field = np.clip(exponent + form.bias - 1, 0, 2 * form.bias).astype(np.uint64) << np.uint64(form.fraction)
    magnitude = field + kept + _round_up(sign, kept, rest, 1 << (drop - 1), rounding)
    infinity = np.uint64(form.infinity)
    over = (magnitude >= infinity) | (exponent > form.bias)
    if rounding in ("rn", "rna"):
        largest = np.broadcast_to(infinity, sign.shape)
    else:
        to_infinity = np.zeros_like(sign) if rounding == "rz" else (sign if rounding == "rm" else ~sign)
        largest = np.where(to_infinity, infinity, infinity - _ONE)
    magnitude = np.where(significand == 0, np.uint64(0), np.where(over, largest, magnitude))
    return _signed(sign, magnitude << np.uint64(form.low), form)


def _signed(sign: Bools, magnitude: Words, form: Format) -> Words:
    return cast(Words, magnitude | (sign.astype(np.uint64) << np.uint64(form.bits - 1)))


def _finish(result: Words, form: Format, nan: Bools, infinite: Bools, sign: Bools) -> Raw:
    infinity = _signed(sign, np.full(sign.shape, form.infinity << form.low, np.uint64), form)
    out = np.where(nan, np.uint64(form.nan), np.where(infinite, infinity, result))
    return out.astype(form.dtype)


def _host(raw: Raw, form: Format) -> Floats:
    return raw.view(np.float32) if form.bits == 32 else raw.view(np.float64)


def _from_host(value: Floats, form: Format) -> Raw:
    nan = np.isnan(value)
    raw = value.view(form.dtype)
    return np.where(nan, form.dtype.type(form.nan), raw) if nan.any() else raw


#: arithmetic that never warns
_QUIET = np.errstate(all="ignore")


def _to_double(raw: Raw, form: Format) -> npt.NDArray[np.float64]:
    """The values in f64, exact for every format (NaN payloads are not kept)."""
    if form.name == "f16":
        return cast("npt.NDArray[np.float64]", raw.view(np.float16).astype(np.float64))
    if form.name == "bf16":
        raw = raw.astype(np.uint32) << np.uint32(16)
        return cast("npt.NDArray[np.float64]", raw.view(np.float32).astype(np.float64))
    return cast("npt.NDArray[np.float64]", _host(raw, form).astype(np.float64))


to_double = _QUIET(_to_double)


def _from_double(value: npt.NDArray[np.float64], form: Format, rounding: str = "rn") -> Raw:
    """f64 values rounded to a format."""
    if form is _F64:
        return _from_host(value, form)
    if form is _F32 and rounding == "rn":
        return _from_host(value.astype(np.float32), form)
    number = _unpack(value.view(np.uint64), _F64)
    packed = _pack(number.sign, number.exponent, number.significand, form, rounding)
    return _finish(packed, form, number.nan, number.infinite, number.sign)


from_double = _QUIET(_from_double)


@_QUIET
def convert(raw: Raw, source: Format, target: Format, rounding: str = "rn") -> Raw:
    """Patterns of one format as patterns of another, rounded."""
    return _from_double(_to_double(raw, source), target, rounding)


def from_integer(value: npt.NDArray[np.integer], form: Format, rounding: str = "rn") -> Raw:
    """Integers (any signed or unsigned dtype) rounded to a format."""
    if value.dtype.kind == "i":
        sign = value < 0
        wide = value.astype(np.int64).view(np.uint64)
        magnitude = np.where(sign, ~wide + _ONE, wide)
    else:
        sign, magnitude = np.zeros(value.shape, np.bool_), value.astype(np.uint64)
    zeros = clz64(magnitude)
    return _pack(sign, 63 - zeros, _normal(magnitude, zeros), form, rounding).astype(form.dtype)


def _odd_sum(
    a: npt.NDArray[np.float64], b: npt.NDArray[np.float64], rounding: str
) -> npt.NDArray[np.float64]:
    """``a + b`` rounded to odd: any later rounding to 51 bits or fewer gives what rounding the exact sum would give.

    For operands whose sum and rounding error neither overflow nor underflow in f64.
    """
    total = a + b
    rest = total - a
    error = (a - (total - rest)) + (b - rest)
    word = total.view(np.uint64)
    inexact = (error != 0) & np.isfinite(total) & ((word & _ONE) == 0)
    odd = np.where((error < 0) == (total < 0), word + _ONE, word - _ONE)
    word = np.where(inexact, odd, word)
    if rounding == "rm":
        opposite = np.signbit(a) != np.signbit(b)
        word = np.where((total == 0) & opposite, np.uint64(1 << 63), word)
    return word.view(np.float64)


@_QUIET
def add(a: Raw, b: Raw, form: Format, rounding: str = "rn") -> Raw:
    """``a + b``."""
    if rounding == "rn" and form.bits >= 32 and not form.low:
        return _from_host(_host(a, form) + _host(b, form), form)
    if form is not _F64:
        return _from_double(_odd_sum(_to_double(a, form), _to_double(b, form), rounding), form, rounding)
    return _exact_sum(_unpack(a, form), None, _unpack(b, form), form, rounding)


def subtract(a: Raw, b: Raw, form: Format, rounding: str = "rn") -> Raw:
    """``a − b``."""
    return add(a, b ^ form.dtype.type(1 << (form.bits - 1)), form, rounding)


@_QUIET
def multiply(a: Raw, b: Raw, form: Format, rounding: str = "rn") -> Raw:
    """``a · b``."""
    if rounding == "rn" and form.bits >= 32 and not form.low:
        return _from_host(_host(a, form) * _host(b, form), form)
    if form is not _F64:
        return _from_double(_to_double(a, form) * _to_double(b, form), form, rounding)
    left, right = _unpack(a, form), _unpack(b, form)
    sign, exponent, high, low, nan, infinite = _product(left, right)
    packed = _pack(sign, exponent, high | (low != 0), form, rounding)
    return _finish(packed, form, nan, infinite, sign)


@_QUIET
def fma(a: Raw, b: Raw, c: Raw, form: Format, rounding: str = "rn") -> Raw:
    """``a · b + c``, rounded once."""
    if form is not _F64:
        # The product of two significands of at most 24 bits is exact in f64.
        product = _to_double(a, form) * _to_double(b, form)
        return _from_double(_odd_sum(product, _to_double(c, form), rounding), form, rounding)
    return _exact_sum(_unpack(a, form), _unpack(b, form), _unpack(c, form), form, rounding)


def _product(a: _Number, b: _Number) -> tuple[Bools, Counts, Words, Words, Bools, Bools]:
    """Sign, exponent, both words of the significand (top bit set), NaN, infinite."""
    high, low = multiply64(a.significand, b.significand)
    short = (high >> np.uint64(63)) == 0
    zero = (a.significand == 0) | (b.significand == 0)
    high, low = (
        np.where(short, (high << _ONE) | (low >> np.uint64(63)), high),
        np.where(short, low << _ONE, low),
    )
    exponent = np.where(zero, _ZERO_EXPONENT, a.exponent + b.exponent + 1 - short)
    nan = a.nan | b.nan | (a.infinite & (b.significand == 0)) | (b.infinite & (a.significand == 0))
    return a.sign ^ b.sign, exponent, high, low, nan, a.infinite | b.infinite


def _exact_sum(a: _Number, b: _Number | None, c: _Number, form: Format, rounding: str) -> Raw:
    """``a · b + c`` (``a + c`` without ``b``) by 128-bit arithmetic."""
    if b is None:
        sign, exponent, high, low, nan, infinite = (
            a.sign, a.exponent, a.significand, np.zeros_like(a.significand), a.nan, a.infinite,
        )  # fmt: skip
    else:
        sign, exponent, high, low, nan, infinite = _product(a, b)
    # One bit of headroom: both significands have zeros in their lowest bits.
    high, low = high >> _ONE, (low >> _ONE) | (high << np.uint64(63))
    other_high, other_low = c.significand >> _ONE, c.significand << np.uint64(63)
    top = np.maximum(exponent, c.exponent)
    high, low = shift_right_jam128(high, low, top - exponent)
    other_high, other_low = shift_right_jam128(other_high, other_low, top - c.exponent)

    opposite = sign ^ c.sign
    larger = (high > other_high) | ((high == other_high) & (low >= other_low))
    sum_low = low + other_low
    sum_high = high + other_high + (sum_low < low)
    left_high, left_low = np.where(larger, high, other_high), np.where(larger, low, other_low)
    right_high, right_low = np.where(larger, other_high, high), np.where(larger, other_low, low)
    difference_high = left_high - right_high - (left_low < right_low)
    out_high = np.where(opposite, difference_high, sum_high)
    out_low = np.where(opposite, left_low - right_low, sum_low)

    zeros = np.where(out_high == 0, 64 + clz64(out_low), clz64(out_high))
    out_high, out_low = shift_left128(out_high, out_low, np.minimum(zeros, 127))
    cancelled = out_high == 0
    out_sign = np.where(opposite & ~larger, c.sign, sign)
    out_sign = np.where(cancelled & opposite, np.bool_(rounding == "rm"), out_sign)
    packed = _pack(out_sign, top + 1 - zeros, out_high | (out_low != 0), form, rounding)
    nan = nan | c.nan | (infinite & c.infinite & opposite)
    return _finish(packed, form, nan, infinite | c.infinite, np.where(c.infinite, c.sign, sign))


@_QUIET
def divide(a: Raw, b: Raw, form: Format, rounding: str = "rn") -> Raw:
    """``a / b``."""
    if rounding == "rn":
        if form.bits >= 32 and not form.low:
            return _from_host(_host(a, form) / _host(b, form), form)
        # 53 bits are at least twice the format's plus two, so double rounding is innocuous (Figueroa).
        return _from_double(_to_double(a, form) / _to_double(b, form), form)
    left, right = _unpack(a, form), _unpack(b, form)
    sign = left.sign ^ right.sign
    zero_divisor = right.significand == 0
    divisor = np.where(zero_divisor, _ONE, right.significand >> np.uint64(11))
    dividend = left.significand >> np.uint64(11)
    quotient, remainder = dividend // divisor, dividend % divisor
    step = np.uint64(11)
    for _ in range(5):
        remainder = remainder << step
        quotient = (quotient << step) | (remainder // divisor)
        remainder = remainder % divisor
    significand = (quotient << np.uint64(8)) | (remainder != 0)
    zeros = clz64(significand)
    zero = (left.significand == 0) | right.infinite
    significand = np.where(zero, np.uint64(0), _normal(significand, zeros))
    packed = _pack(sign, left.exponent - right.exponent - zeros, significand, form, rounding)
    nan = left.nan | right.nan | (left.infinite & right.infinite) | ((left.significand == 0) & zero_divisor)
    return _finish(packed, form, nan, left.infinite | zero_divisor, sign)


@_QUIET
def square_root(a: Raw, form: Format, rounding: str = "rn") -> Raw:
    """``√a``; −0 for −0, NaN for other negative numbers."""
    if rounding == "rn":
        if form.bits >= 32 and not form.low:
            return _from_host(np.sqrt(_host(a, form)), form)
        return _from_double(np.sqrt(_to_double(a, form)), form)
    number = _unpack(a, form)
    zero = number.significand == 0
    odd = (number.exponent & 1).astype(np.uint64)
    radicand = (number.significand >> np.uint64(11)) << odd  # 2^52 ≤ radicand < 2^54, scaled by 2^52 below
    root = (np.sqrt(radicand.astype(np.float64)) * 2.0**26).astype(np.int64)
    scaled = radicand << np.uint64(52)  # the low word is enough: the remainder is small
    remainder = (scaled - (root * root).view(np.uint64)).view(np.int64)
    for _ in range(2):
        high, low = remainder < 0, remainder > 2 * root
        remainder = np.where(
            high, remainder + 2 * root - 1, np.where(low, remainder - 2 * root - 1, remainder)
        )
        root = np.where(high, root - 1, np.where(low, root + 1, root))
    # (root + 1/2)² − root² = root + 1/4: a remainder above `root` lies beyond the middle, and no remainder lies on it.
    significand = (root.view(np.uint64) << np.uint64(11)) | (
        (remainder > root).astype(np.uint64) << np.uint64(10)
    )
    significand = np.where(zero, np.uint64(0), significand | (remainder != 0))
    packed = _pack(number.sign, number.exponent >> 1, significand, form, rounding)
    nan = number.nan | (number.sign & ~zero)
    return _finish(packed, form, nan, number.infinite, number.sign)


def is_nan(raw: Raw, form: Format) -> Bools:
    """Whether each pattern is a NaN."""
    magnitude = raw & form.dtype.type((1 << (form.bits - 1)) - 1)
    return cast(Bools, magnitude > form.dtype.type(form.infinity << form.low))
